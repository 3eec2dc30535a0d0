package target

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Call is one attempt as a target sees it.
type Call struct {
	App, Job, Trigger string // Trigger is empty for a run without a trigger, such as a manual one
	Key               run.Key
	EventID           string
	Attempt           int
	Missed            *run.MissedRange // what a catch-up run stands for; nil for other runs
	Cause             *run.Cause       // why the run exists; nil if Key.Kind is enough
	Target            Target
	// Group is the group that Target names; nil if it names none.
	Group *GroupVersion
	// Shard is the place of the run in a broadcast; nil for other runs.
	Shard   *run.Shard
	Payload json.RawMessage
	// Templates are those of Target, nil if it has none. PreviousFire and NextFire are the scheduled times of the
	// trigger before and after this one, or zero; they are set only if Templates use them.
	Templates              *Templates
	PreviousFire, NextFire time.Time
	// Delivery and Retry decide how the engine continues after a failed call.
	Delivery run.Delivery
	Retry    run.Retry
	// Slots is how many runs of its job there may be at once; 0 means any number. See Job.Slots.
	Slots int
	// Occupy takes the slot of an endpoint for the attempt; nil without such slots. See
	// GroupTarget.EndpointConcurrency.
	Occupy Occupy
	// Held reports whether the node still holds the run, which may have changed during a slow connection; nil if it
	// does. If not, no request is sent, and the outcome is cancelled and NotSent.
	Held func() bool
	// Bounds are those of the app, with defaults; nil means the defaults. AWSExternalID is the app's.
	Bounds        *Bounds
	AWSExternalID string
	// Carried is the state of the job as the attempt begins; nil if the job carries none.
	Carried *run.CarriedState
	// Callback is how the target ends the attempt after it accepts it; nil if it cannot accept it.
	Callback *run.CallToken
	// Installation is the id of the database, Sampling is whether the trace of the run is recorded, and Requester is
	// the trace of the request for the run, or nil. See TraceOf.
	Installation string
	Sampling     run.Sampling
	Requester    *run.Requester
	// Notification fills in the templates of the target of an alert; nil for other targets.
	Notification *AlertNotification
}

// fireText describes a fire in JSON. It is the same on every attempt, like everything that receivers may sign or
// compare, except for the data for a callback.
type fireText struct {
	App         string      `json:"app"`
	Job         string      `json:"job"`
	Trigger     string      `json:"trigger"`
	Run         string      `json:"run"`
	Kind        run.Kind    `json:"kind"`
	ScheduledAt string      `json:"scheduled_at"`
	Missed      *missedText `json:"missed,omitempty"`
	Cause       *run.Cause  `json:"cause,omitempty"`
	ShardIndex  *int        `json:"shard_index,omitempty"`
	ShardTotal  *int        `json:"shard_total,omitempty"`
	// State is the state from earlier runs. It differs between attempts only if an operator changes it meanwhile.
	State    json.RawMessage `json:"state,omitempty"`
	Callback *run.CallToken  `json:"callback,omitempty"` // of the attempt
}

func (c Call) fire() fireText {
	fire := fireText{
		App: c.App, Job: c.Job, Trigger: c.Trigger, Run: c.Key.String(), Kind: c.Key.Kind,
		ScheduledAt: input.FormatInstant(c.Key.ScheduledAt), Missed: c.missed(), Cause: c.Cause,
		State: c.State(), Callback: c.Callback,
	}
	if c.Shard != nil {
		fire.ShardIndex, fire.ShardTotal = &c.Shard.Index, &c.Shard.Total
	}
	return fire
}

// State returns the state that the job carries, or nil.
func (c Call) State() json.RawMessage {
	if c.Carried == nil || string(c.Carried.State) == "null" {
		return nil
	}
	return c.Carried.State
}

// Body returns the body of a webhook: the payload or, without one, a description of the fire.
func (c Call) Body() []byte {
	if len(c.Payload) > 0 {
		return c.Payload
	}
	body, _ := json.Marshal(c.fire()) // no field of it can fail
	return body
}

// FunctionEvent returns the event of a Lambda function: the payload, and the values that a webhook gets as headers.
// Package lambda has its type for functions in Go.
func (c Call) FunctionEvent() ([]byte, error) {
	text, err := json.Marshal(struct {
		Carillon attemptText     `json:"carillon"`
		Payload  json.RawMessage `json:"payload,omitempty"`
	}{c.attempt(), c.Payload})
	if err != nil {
		return nil, fmt.Errorf("write the event: %w", err)
	}
	return text, nil
}

// attemptText describes an attempt in JSON.
type attemptText struct {
	EventID string `json:"event_id"`
	fireText
	Attempt     int    `json:"attempt"`
	Fence       int64  `json:"fence"`
	Traceparent string `json:"traceparent,omitempty"`
}

func (c Call) attempt() attemptText {
	return attemptText{c.EventID, c.fire(), c.Attempt, c.Fence(), c.Traceparent()}
}

// Fence returns a number that grows with each attempt of a run and with each fire of a trigger. A receiver that
// remembers the highest number of a trigger can refuse late requests, such as one from a node that was marked dead.
// For broadcasts it remembers the number of each trigger and index. It is exact as a floating-point number.
func (c Call) Fence() int64 {
	const attempts = 1000
	return c.Key.ScheduledAt.UnixMilli()*attempts + int64(min(c.Attempt, attempts-1))
}

// missedText is a MissedRange in a body.
type missedText struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Count int    `json:"count"`
}

// missed returns the fires that a catch-up run stands for; nil for other runs.
func (c Call) missed() *missedText {
	if m := c.Missed; m != nil {
		return &missedText{input.FormatInstant(m.From), input.FormatInstant(m.To), m.Count}
	}
	return nil
}

// TraceID returns the trace of the run.
func (c Call) TraceID() run.TraceID { return run.TraceOf(c.Installation, c.Key.String()) }

// SpanID returns the span of the attempt.
func (c Call) SpanID() run.SpanID { return run.SpanOf(c.Installation, c.Key.String(), c.Attempt) }

// Traceparent returns the W3C trace context of the attempt; empty if the target does not take part in traces. If the
// node makes no traces, it says "sampled", because receivers that follow their caller would otherwise record nothing.
func (c Call) Traceparent() string {
	if !c.Target.TakesTraceContext() {
		return ""
	}
	flags := "-01"
	if c.Sampling == run.NotSampled {
		flags = "-00"
	}
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + flags
}

// TakesTraceContext reports whether the calls of t carry their trace context. Other targets do not get it, because
// the ids of traces of a system are private to it.
func (t Target) TakesTraceContext() bool {
	switch {
	case t.Webhook != nil:
		return t.Webhook.TraceContext
	case t.Group != nil:
		return t.Group.TraceContext
	case t.Lambda != nil:
		return t.Lambda.TraceContext
	case t.SQS != nil:
		return t.SQS.TraceContext
	case t.SNS != nil:
		return t.SNS.TraceContext
	}
	return false
}

// ExecutorCall is a question about an attempt to the executor of XXL-JOB that has it.
type ExecutorCall struct {
	App string
	// Bounds are the bounds of the app, with defaults.
	Bounds *Bounds
	// AWSExternalID is the external id of the app.
	AWSExternalID string
	// Group is the group of the executor, with the values of its secrets.
	Group *GroupVersion
	// Endpoint is the executor, one of Group.Live.
	Endpoint Endpoint
	// Run identifies the attempt to the executor.
	Run run.ExecutorRun
}

// EndpointRequest asks for the slot of an endpoint for a run that is about to go there.
type EndpointRequest struct {
	run.HeldRun
	Endpoint string
	// IfFree asks for the slot only if no other run has it or waits for it. Otherwise, the request changes nothing.
	IfFree bool
}

// EndpointGrant is the response to an EndpointRequest.
type EndpointGrant struct {
	run.HeldRun
	// Endpoint is the endpoint whose slot the run has now; empty if it has none. It differs from the requested one if
	// the run waited for another, or has it from an attempt of a dead node.
	Endpoint string
	// Busy is why a request with IfFree got no slot.
	Busy string
}

// Occupy takes the slot of an endpoint for an attempt, and waits for the decision of the database. ifFree is as in
// EndpointRequest. A grant without Endpoint and Busy means that the attempt is over and must not send a request.
type Occupy func(endpoint string, ifFree bool) EndpointGrant

// CallbackPolicy lets a target accept an attempt with status 202, or a Lambda function accept an event, and report
// the outcome later by a callback. Without a policy, the attempt succeeds at once in both cases.
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

// warnOfCallback warns if an executor interrupts a run only after the callback of the run is overdue.
func (g *GroupTarget) warnOfCallback(problems *input.Problems) {
	if g.XXLJob == nil || g.Callback == nil || g.XXLJob.ExecutorTimeout < g.Callback.Timeout {
		return
	}
	problems.Add("/target/group/xxl_job/executor_timeout", input.CodeExecutorTimeout,
		"the executor interrupts a run after %s, and by then its "+
			"callback has been missing since %s: the run has timed out, and may have been attempted again next to it; make "+
			"executor_timeout shorter than the timeout of callback", g.XXLJob.ExecutorTimeout, g.Callback.Timeout)
}

// Callback returns the policy of t; nil if the response to a request ends its attempt.
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
