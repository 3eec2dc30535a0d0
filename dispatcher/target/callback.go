package target

import (
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// CallbackPolicy lets a target accept an attempt with status 202, or a Lambda function an event, and finish it later: it says
// by a callback how the attempt ended. Without a policy, both are the success of the attempt.
type CallbackPolicy struct {
	// Timeout is how long after the acceptance, and after each heartbeat, the callback may come: 1s to MostCallbackWait.
	Timeout input.Duration `json:"timeout,omitempty"`
}

// SetDefaults gives a decoded policy the values of fields that its JSON leaves out.
func (c *CallbackPolicy) SetDefaults() { c.Timeout = run.DefaultCallbackTimeout }

// check adds everything wrong with c, which may be nil.
func (c *CallbackPolicy) check(problems *input.Problems, path string) {
	if c != nil {
		c.Timeout.CheckRange(problems, path+"/timeout", run.MinCallbackTimeout, run.MostCallbackWait)
	}
}

// warnOfCallback warns of an executor that interrupts a run no earlier than the callback of the run counts as missing.
func (g *GroupTarget) warnOfCallback(problems *input.Problems) {
	if g.XXLJob == nil || g.Callback == nil || g.XXLJob.ExecutorTimeout < g.Callback.Timeout {
		return
	}
	problems.Add("/target/group/xxl_job/executor_timeout", input.CodeExecutorTimeout,
		"the executor interrupts a run after %s, and by then its "+
			"callback has been missing since %s: the run has timed out, and may have been attempted again next to it; make "+
			"executor_timeout shorter than the timeout of callback", g.XXLJob.ExecutorTimeout, g.Callback.Timeout)
}

// Callback returns the policy of t; nil: the response to a request is the end of its attempt.
func (t Target) Callback() *CallbackPolicy {
	switch {
	case t.Webhook != nil:
		return t.Webhook.Callback
	case t.Lambda != nil:
		return t.Lambda.Callback
	case t.Group != nil:
		return t.Group.Callback
	}
	return nil
}
