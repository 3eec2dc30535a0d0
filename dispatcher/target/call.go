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
	App, Job, Trigger string // Trigger is empty for a run that belongs to none, such as a manual one
	Key               run.Key
	EventID           string
	Attempt           int
	Missed            *run.MissedRange // what a catch-up run stands for; nil for other runs
	Cause             *run.Cause       // why the run exists; nil: Key.Kind says all
	Target            Target
	// Group is the group that Target names; nil: it names none.
	Group *GroupVersion
	// Shard is the part of a broadcast that the run is; nil: it is none.
	Shard   *run.Shard
	Payload json.RawMessage
	// Templates are those of Target, nil if it has none. PreviousFire and NextFire are the scheduled
	// times of the trigger before and after this one, zero if there is none; they are set only if
	// Templates use them.
	Templates              *Templates
	PreviousFire, NextFire time.Time
	// Delivery and Retry tell the engine what to do when the call fails.
	Delivery run.Delivery
	Retry    run.Retry
	// Slots is how many runs of its job there may be at once; 0: any number. See Job.Slots.
	Slots int
	// Occupy takes the slot of an endpoint for the attempt; nil: the job has none. See GroupTarget.EndpointConcurrency.
	Occupy Occupy
	// Held tells whether the run is still the node's, which it may not be after a slow connection; nil: it is. If it is not,
	// nothing is sent, and the outcome is cancelled and NotSent.
	Held func() bool
	// Bounds are those of the app, with defaults; nil: the defaults. AWSExternalID is that of the app.
	Bounds        *Bounds
	AWSExternalID string
	// Carried is the state of the job as the attempt begins; nil: the job carries none.
	Carried *run.CarriedState
	// Callback is how the target ends the attempt if it accepts it; nil: it cannot.
	Callback *run.CallToken
	// Installation is that of the database, Sampling whether the trace of the run is recorded, and Requester the trace that
	// asked for the run; nil: none did. See TraceOf.
	Installation string
	Sampling     run.Sampling
	Requester    *run.Requester
	// Notification is what templates are filled in with if the target is that of an alert; nil: it is another.
	Notification *AlertNotification
}

// fireText describes a fire in JSON. It is the same on every attempt, as is all that receivers may
// sign or compare, but for what a target needs to call back.
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
	// State is what the runs before left. It differs between attempts only if an operator changes it meanwhile.
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

// State returns the state that the job carries; nil: there is none.
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

// FunctionEvent returns the event of a Lambda function: the payload and, next to it, what a webhook
// gets as headers. Package lambda has its type for functions in Go.
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

// Fence returns a number that grows with each attempt of a run and with each fire of a trigger. A
// receiver that remembers the highest number of a trigger can refuse late requests, such as one
// from a node that was marked dead. Of a broadcast it remembers it for each trigger and index. It is exact in languages
// whose numbers are floating-point.
func (c Call) Fence() int64 {
	const attempts = 1000
	return c.Key.ScheduledAt.UnixMilli()*attempts + int64(min(c.Attempt, attempts-1))
}

// missedText is a MissedRange as a body holds it.
type missedText struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Count int    `json:"count"`
}

// missed returns what a catch-up run stands for; nil for other runs.
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

// Traceparent returns the W3C trace context of the attempt, for targets that take part in traces; empty: the target of the
// call does not. If the node makes no traces, it says "sampled", because receivers that follow their caller would otherwise
// record nothing.
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

// TakesTraceContext tells whether the calls of t carry their trace context. Nobody else learns it, because the ids of traces
// of a system are nobody else's business.
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
	// Bounds are those of the app, with defaults.
	Bounds *Bounds
	// AWSExternalID is that of the app.
	AWSExternalID string
	// Group is the group of the executor, with the values of its secrets.
	Group *GroupVersion
	// Endpoint is the executor, one of Group.Live.
	Endpoint Endpoint
	// Run is how the executor knows the attempt.
	Run run.ExecutorRun
}

// EndpointRequest is a run that is about to go to an endpoint and wants its slot.
type EndpointRequest struct {
	run.HeldRun
	Endpoint string
	// IfFree asks for the slot only if no other run has it or waits for it. Otherwise, nothing changes.
	IfFree bool
}

// EndpointGrant is the response to an EndpointRequest.
type EndpointGrant struct {
	run.HeldRun
	// Endpoint is the one whose slot the run has now; empty: none. It is not the one that was asked for if the run has
	// waited for another, or had it in an attempt whose node died.
	Endpoint string
	// Busy says, of a request IfFree, why there is no slot.
	Busy string
}

// Occupy takes the slot of an endpoint for an attempt, and waits for the decision of the database. ifFree is as that of
// an EndpointRequest. A grant without Endpoint and Busy means that the attempt is over: nothing may be sent.
type Occupy func(endpoint string, ifFree bool) EndpointGrant

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
