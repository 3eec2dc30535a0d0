// Package run has the identity and the outcome of a run: its key and id, its kind, state and class of failure, its
// attempts, its shard of a broadcast, the state that it carries, and the callback of its target.
package run

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Run is the execution of one fire, or of a request to run a job by hand.
type Run struct {
	// ID is the run's key as text; see Key.String.
	ID string `json:"id" schema:"RunID"`
	// App, Job and Trigger are names; Trigger is empty without a trigger, as in a manual run.
	App string `json:"app"`
	Job string `json:"job"`
	// Empty for a run without a trigger, such as a manual one.
	Trigger string `json:"trigger"`
	// Kind is the origin of the run.
	Kind Kind `json:"kind"`
	// ScheduledAt is the scheduled time of the fire.
	ScheduledAt time.Time `json:"scheduled_at"`
	// Revision is the job's revision when the run was claimed or requested, or when it was last
	// adopted or attempted again.
	Revision int64 `json:"revision"`
	State    State `json:"state"`
	// EventID is sent as webhook-id, the same on every attempt.
	EventID string `json:"event_id"`
	// TraceID is the id of the trace that has the spans of the attempts, if the nodes make traces.
	TraceID string `json:"trace_id"`
	// Attempt counts from 1; 0 while no node has taken the run.
	Attempt int `json:"attempt"`
	// Node is the node that holds or held the run; nil if no node has taken it yet.
	Node *NodeID `json:"node,omitempty"`
	// ClaimedAt, StartedAt and EndedAt belong to the latest attempt, nil until they happen.
	ClaimedAt *time.Time `json:"claimed_at,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// FirstStartedAt is when the first attempt began, if the run was or will be attempted again; else nil. It is set
	// in lists.
	FirstStartedAt *time.Time `json:"first_started_at,omitempty"`
	// NextAttemptAt is when a retrying run is attempted next; nil if it waits for its host. Class and Error say why.
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// WaitsFor is the host that a retrying run waits for, because its circuit is open; empty if it waits for none.
	WaitsFor string `json:"waits_for,omitempty"`
	// WaitsForEndpoint is the endpoint that a queued run waits for, because another run of the job is under way
	// there; empty if it waits for none. See GroupTarget.EndpointConcurrency.
	WaitsForEndpoint string `json:"waits_for_endpoint,omitempty"`
	// Queue is the place of a run that waits for a slot of its job, nil for other runs. It is set when a single run is read.
	Queue *QueuePlace `json:"queue,omitempty"`
	// SlotWait is the slot that a queued run waits for; nil for a run that waits for none.
	SlotWait *SlotWait `json:"slot_wait,omitempty"`
	// ProbeAt is when the next of the job's runs that wait for the host goes, as a probe; nil if the run waits for no
	// host, or if the host responds again and all runs go.
	ProbeAt *time.Time `json:"probe_at,omitempty"`
	// Waited is what the run last waited for before its first attempt, as its job asked. It is not late because of that.
	Waited WaitReason `json:"waited,omitempty"`
	// Held is why no node takes a waiting run: its app is disabled or suspended; empty for other runs.
	Held string `json:"held,omitempty"`
	// Callback is the state of the callback of a run in state waiting_callback; nil for other runs.
	Callback *CallbackState `json:"callback,omitempty"`
	// HTTPStatus is the status of the response; 0 without a response.
	HTTPStatus int `json:"http_status,omitempty"`
	// Class is how the attempt failed; empty if it did not.
	Class Class `json:"class,omitempty"`
	// Error is the failure in words, or why the run was cancelled or skipped, of at most 1024
	// characters.
	Error string `json:"error,omitempty" schema:"max=1024"`
	// Missed are the fires that a catch-up run stands for; nil for other runs.
	Missed *MissedRange `json:"missed,omitempty"`
	// Parent is the run that a shard is part of, and Shard is its part; empty and nil for other runs.
	Parent string `json:"parent,omitempty" schema:"RunID"`
	Shard  *Shard `json:"shard,omitempty"`
	// Shards counts the shards of a broadcast; nil for other runs. It is set when a single run is read.
	Shards *ShardCounts `json:"shards,omitempty"`
	// Payload is the run's own payload in place of the job's; nil without one. Cause is why the run exists; nil if
	// Kind is enough. Both are set when a single run is read.
	Payload json.RawMessage `json:"payload,omitempty"`
	Cause   *Cause          `json:"cause,omitempty"`
	// FollowedBy are the known runs that followed this one. It is set when a single run is read.
	FollowedBy []Ref `json:"followed_by,omitempty"`
	// Attempts is set when a single run is read.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// Began returns when the first attempt began; nil if it has not begun, or if a list does not have it.
func (r *Run) Began() *time.Time {
	switch {
	case r.FirstStartedAt != nil:
		return r.FirstStartedAt
	case len(r.Attempts) > 0:
		return &r.Attempts[0].StartedAt
	case r.Attempt == 1:
		return r.StartedAt
	}
	return nil
}

// Accepted returns the attempt of a run that waits for its callback, from its start until the target accepted it; nil for
// other runs.
func (r *Run) Accepted() *Attempt {
	if r.Callback == nil || r.StartedAt == nil {
		return nil
	}
	return &Attempt{Attempt: r.Attempt, State: r.State, StartedAt: *r.StartedAt, EndedAt: r.Callback.AcceptedAt, HTTPStatus: r.HTTPStatus}
}

// HasID reports whether the run, or a shard of it, has a webhook-id or a trace.
func (r *Run) HasID(id string) bool {
	return r.EventID == id || r.TraceID == id || strings.HasPrefix(id, r.EventID+"-")
}

// EndpointOf returns the id of the endpoint of a group that an attempt went to; empty if it is not known.
func (r *Run) EndpointOf(attempt int) string {
	if r.Callback != nil && attempt == r.Attempt {
		return r.Callback.Endpoint
	}
	for _, a := range r.Attempts {
		if a.Attempt == attempt && a.Response != nil {
			return a.Response.Endpoint
		}
	}
	return ""
}

// WithoutAddresses returns r as tokens that are bound to apps see it: without the addresses that DNS names resolved to.
func (r Run) WithoutAddresses() Run {
	r.Attempts = slices.Clone(r.Attempts)
	for i, a := range r.Attempts {
		if a.Response == nil || a.Response.Addresses == nil {
			continue
		}
		response := *a.Response
		response.Addresses = nil
		r.Attempts[i].Response = &response
	}
	return r
}

// QueuePlace is the place of a run among the runs that wait for a slot of its job, in the order in which they get one.
type QueuePlace struct {
	Place int `json:"place"` // from 1 on
	Of    int `json:"of"`
}

// Attempt is one try of a run.
type Attempt struct {
	Attempt    int       `json:"attempt"`
	Node       NodeID    `json:"node"`
	State      State     `json:"state"`
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at"`
	HTTPStatus int       `json:"http_status,omitempty"`
	Class      Class     `json:"class,omitempty"`
	Error      string    `json:"error,omitempty"`
	// Response is the stored part of the response; nil if none is stored.
	Response *Response `json:"response,omitempty"`
	// Late is a result that came after another node took over the run.
	Late *Outcome `json:"late_result,omitempty"`
}

// Kind is the origin of a run.
type Kind string

// The kinds of run. Each has a code in run ids; see Kind.Code.
const (
	KindSchedule Kind = "schedule" // a fire on time
	KindManual   Kind = "manual"   // an operator's request
	KindCatchUp  Kind = "catch_up" // stands for the fires of a misfire
	KindChain    Kind = "chain"    // the end of another run asked for it
	KindBackfill Kind = "backfill" // an instant in the range of a Backfill
	KindAlert    Kind = "alert"    // delivers the notification of an alert
	KindFollow   Kind = "follow"   // delivers the end of a run to a webhook, function, queue or topic
)

// Kinds returns all kinds.
func Kinds() []Kind { return kinds[1:] }

var kinds = []Kind{1: KindSchedule, 2: KindManual, 3: KindCatchUp, 4: KindChain, 5: KindBackfill, 6: KindAlert, 7: KindFollow}

// OfTrigger reports whether runs of a kind belong to an instant of a trigger. Other runs have the id of their job, or
// a hash of what they follow, in place of the trigger's id; see Key.
func (k Kind) OfTrigger() bool {
	return k == KindSchedule || k == KindCatchUp || k == KindBackfill
}

// HasOwnID reports whether the id of a run of the kind derives only from its cause.
func (k Kind) HasOwnID() bool { return k == KindChain || k == KindAlert || k == KindFollow }

// Code returns the number of a kind in run ids and databases; 0 for an unknown kind.
func (k Kind) Code() byte {
	return byte(max(slices.Index(kinds, k), 0))
}

// KindOfCode is the inverse of Kind.Code.
func KindOfCode(code byte) (Kind, bool) {
	if code == 0 || int(code) >= len(kinds) {
		return "", false
	}
	return kinds[code], true
}

// State is the state of a run or of an attempt.
type State string

// The states of a run.
const (
	Queued   State = "queued"   // no node has it: it was requested, or waits for a slot
	Claimed  State = "claimed"  // a node has it
	Running  State = "running"  // of at_most_once jobs: its request may have been sent
	Retrying State = "retrying" // to be attempted, or attempted again, at NextAttemptAt
	// WaitingCallback is the state of a run after its target accepted the attempt and before it reports the outcome.
	WaitingCallback State = "waiting_callback"
	// WaitingShards is the state of a broadcast with unfinished shards. No node holds it.
	WaitingShards State = "waiting_shards"

	Succeeded State = "succeeded" // final, as all below
	Failed    State = "failed"
	TimedOut  State = "timed_out"
	Cancelled State = "cancelled"
	Lost      State = "lost" // its node died, so its outcome is unknown
	// Superseded is the state of a run that its target refused as stale, after a newer fire or attempt.
	Superseded State = "superseded"
	Skipped    State = "skipped" // it got no slot and was not attempted
)

// States are all states, in the order in which a run passes through them.
var States = []State{Queued, Claimed, Running, Retrying, WaitingCallback, WaitingShards, Succeeded,
	Failed, TimedOut, Cancelled, Lost, Superseded, Skipped}

// FinalStates are the states of finished runs.
var FinalStates = []State{Succeeded, Failed, TimedOut, Cancelled, Lost, Superseded, Skipped}

// Class is how an attempt failed. The list is closed.
type Class string

// The classes of failure.
const (
	ClassDNS             Class = "dns"
	ClassConnectRefused  Class = "connect_refused"
	ClassConnectTimeout  Class = "connect_timeout"
	ClassTLS             Class = "tls"
	ClassReset           Class = "reset"
	ClassTimeout         Class = "timeout"
	ClassRedirect        Class = "redirect" // 3xx: redirects are not followed
	ClassHTTP2xx         Class = "http_2xx" // not among success_codes
	ClassHTTP4xx         Class = "http_4xx"
	ClassHTTP5xx         Class = "http_5xx"
	ClassRateLimited     Class = "rate_limited"
	ClassProtocol        Class = "protocol"         // a response that is not HTTP
	ClassHeaderTooLarge  Class = "header_too_large" // a response with a header of more than 64 KiB
	ClassBounds          Class = "bounds"           // the job is outside the bounds of its app
	ClassBody            Class = "body"             // a body that is not as expected
	ClassBodyTooLarge    Class = "body_too_large"   // not as expected within the 64 KiB that are read
	ClassEgressDenied    Class = "egress_denied"    // an address that is never called
	ClassCancelled       Class = "cancelled"        // stopped by an operator or a shutdown
	ClassCircuitOpen     Class = "circuit_open"     // deferred: the host failed too often
	ClassHostRate        Class = "host_rate"        // deferred: too many requests to the host
	ClassThrottled       Class = "throttled"        // AWS had no room; it costs no attempt of the policy
	ClassFunctionError   Class = "function_error"
	ClassFunctionTime    Class = "function_timeout" // not the attempt's
	ClassCredentials     Class = "credentials"      // the node has no credentials that AWS accepts
	ClassOAuth2          Class = "oauth2"           // no token from its endpoint, or the target refused a replaced one
	ClassConfig          Class = "config"           // AWS refuses the call: no such function, no permission, key or network trouble
	ClassPanic           Class = "panic"            // a bug in Carillon
	ClassJobDeleted      Class = "job_deleted"      // the job was deleted
	ClassSecret          Class = "secret"           // the node cannot read or use a secret
	ClassSecretReplaced  Class = "secret_replaced"  // the target refused a secret that its manager has replaced since
	ClassTemplate        Class = "template"         // the filled-in template cannot be sent
	ClassNoEndpoint      Class = "no_endpoint"      // no endpoint of the group is up
	ClassEndpointsBusy   Class = "endpoints_busy"   // all endpoints of the group that are up said that they are busy
	ClassCallback        Class = "callback"         // the target said by its callback that the attempt failed
	ClassCallbackTime    Class = "callback_timeout" // no callback came in time
	ClassExecutorRefused Class = "executor_refused" // the executor of XXL-JOB did not take the run
	ClassOther           Class = "other"
)

// Classes are all classes.
var Classes = []Class{
	ClassDNS, ClassConnectRefused, ClassConnectTimeout, ClassTLS, ClassReset, ClassTimeout, ClassRedirect, ClassHTTP2xx,
	ClassHTTP4xx, ClassHTTP5xx, ClassRateLimited, ClassProtocol, ClassHeaderTooLarge, ClassBounds, ClassBody, ClassBodyTooLarge,
	ClassEgressDenied, ClassCancelled, ClassCircuitOpen, ClassHostRate, ClassThrottled, ClassFunctionError, ClassFunctionTime,
	ClassCredentials, ClassOAuth2, ClassConfig, ClassPanic, ClassJobDeleted, ClassSecret, ClassSecretReplaced, ClassTemplate,
	ClassNoEndpoint, ClassEndpointsBusy, ClassCallback, ClassCallbackTime, ClassExecutorRefused, ClassOther,
}

// Outcome is the end of one attempt, as an Invoker returns it and a Store records it.
type Outcome struct {
	State      State     `json:"state"`
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at"`
	HTTPStatus int       `json:"http_status,omitempty"`
	Class      Class     `json:"class,omitempty"`
	Error      string    `json:"error,omitempty"`
	// RetryAfter is the wait that the target asks for; nil if it does not.
	RetryAfter *time.Duration `json:"-"`
	// NotSent is true if certainly no byte of the request was sent, because the attempt was cancelled first or its
	// request could not be made. Otherwise, the request may have been sent.
	NotSent bool `json:"-"`
	// Callback is set with WaitingCallback: it is how the target reports the outcome later.
	Callback *Callback `json:"-"`
	// Returned is the state of the job that the target returned; nil if it returned none that can be stored. It is
	// stored only if the attempt ends its run as succeeded.
	Returned *ReturnedState `json:"-"`
	// Response is the stored part of the response; nil if none is stored.
	Response *Response `json:"response,omitempty"`
}

// Response is the stored part of a target's response, and its duration. An attempt of a webhook that succeeded within
// a second, with no body and no request id, has none.
type Response struct {
	// Endpoint is the id of the endpoint of a group that the request went to.
	Endpoint string `json:"endpoint,omitempty"`
	// Addresses are left out of the error of the attempt: those that names resolved to, and those of name servers.
	// They are for operators; see Run.WithoutAddresses.
	Addresses []string `json:"addresses,omitempty"`
	// RequestID is the id that the target gave the request.
	RequestID string `json:"request_id,omitempty"`
	// MessageID is the id that a queue or topic gave the message.
	MessageID string `json:"message_id,omitempty"`
	// Headers are a selection of the response's headers.
	Headers map[string]string `json:"headers,omitempty" schema:"each_max=1024"`
	// Body is the beginning of the body, at most 64 KiB; invalid UTF-8 is replaced.
	Body string `json:"body,omitempty"`
	// BodyTruncated is true if the body was longer.
	BodyTruncated bool `json:"body_truncated,omitempty"`
	// Omitted is why the rest of the response was not stored: the quota of the app (bytes_kept) is used up.
	Omitted string `json:"omitted,omitempty"`
	// FunctionError is Handled or Unhandled, of a Lambda function that failed.
	FunctionError string `json:"function_error,omitempty"`
	// ExecutedVersion is the version of the function that an alias resolved to.
	ExecutedVersion string `json:"executed_version,omitempty"`
	// LogTail is the end of the function's log; texts that look like secrets are masked.
	LogTail string `json:"log_tail,omitempty"`
	// CallbackResult is the message with which the target completed the run by its callback.
	CallbackResult string `json:"callback_result,omitempty" schema:"max=1024"`
	// State is the state of the job that the target returned; StateProblem is why a returned state was not stored.
	State json.RawMessage `json:"state,omitempty"`
	// Why a returned state was not stored.
	StateProblem string `json:"state_problem,omitempty"`
	Phases       Phases `json:"phases,omitzero"`
}

// Phases are the durations of the parts of an attempt. 0 means that the part did not happen, as on a kept connection,
// or did not end.
type Phases struct {
	DNS     input.Duration `json:"dns,omitempty"`
	Connect input.Duration `json:"connect,omitempty"`
	TLS     input.Duration `json:"tls,omitempty"`
	// FirstByte and LastByte of the response are measured from the start of the attempt.
	FirstByte input.Duration `json:"first_byte,omitempty"`
	// Counted from the attempt's start.
	LastByte input.Duration `json:"last_byte,omitempty"`
}

// MissedRange is a range of missed instants, both ends inclusive.
type MissedRange struct {
	// The first missed scheduled time.
	From time.Time `json:"from"`
	// The last missed scheduled time.
	To time.Time `json:"to"`
	// Number of missed fires; 10000 means at least that many.
	Count int `json:"count"`
}

// Repeatable reports whether another attempt may succeed. Of the statuses 4xx only those about timing
// are repeatable, because the others are about the request itself.
func (c Class) Repeatable(httpStatus int) bool {
	switch c {
	case ClassHTTP4xx:
		return httpStatus == 408 || httpStatus == 425
	case ClassRedirect, ClassConfig, ClassEgressDenied, ClassBounds, ClassCancelled, ClassPanic, ClassJobDeleted, ClassTemplate:
		return false
	}
	return true
}

// NeverSent reports whether an attempt failed before the first byte of its request, or before its
// target acted on it.
func (c Class) NeverSent() bool {
	switch c {
	case ClassDNS, ClassConnectRefused, ClassConnectTimeout, ClassSecret, ClassTemplate, ClassBounds, ClassCredentials,
		ClassOAuth2, ClassThrottled, ClassCircuitOpen, ClassHostRate, ClassNoEndpoint, ClassEndpointsBusy, ClassExecutorRefused:
		return true
	}
	return false
}

// OfHost reports whether the failure concerns the whole host and not a single request.
func (c Class) OfHost() bool {
	switch c {
	case ClassDNS, ClassConnectRefused, ClassConnectTimeout, ClassTLS, ClassReset, ClassTimeout, ClassHTTP5xx, ClassProtocol,
		ClassNoEndpoint:
		return true
	}
	return false
}

// HeldRun is a run that a node holds and has to execute.
type HeldRun struct {
	Key
	JobID    int64
	Revision int64 // the job's when the run was claimed, requested, adopted or retried
	Token    Token
	Attempt  int
	// Failures are the attempts that count against the job's Retry. RetryUntil is when the run fails permanently;
	// zero before the first failure.
	Failures   int
	RetryUntil time.Time
	ClaimedAt  time.Time // when the node got it
	// Live is true if the run was a row of the live runs, and not a fire of a claim, when the node got it.
	Live bool
	// HasInput is true if RunInputs has an input of the run.
	HasInput bool
	// Waited is what it last waited for before its first attempt; see Run.Waited. A fire of a claim has not waited.
	Waited WaitReason
	// Accepted is set if the node only has to record the end of the attempt; see AcceptedAttempt.
	Accepted *AcceptedAttempt
}

// HeaderOutcome is the header for an outcome besides the status. Its only value is OutcomeSuperseded.
const HeaderOutcome = "Carillon-Outcome"

// OutcomeSuperseded refuses a request as stale: the receiver has done a newer fire of the trigger, or a newer attempt of the
// run. It is the value of HeaderOutcome, or of the member outcome in a body {"carillon": {"outcome": …}}.
const OutcomeSuperseded = "superseded"

// OutcomeInBody returns the outcome in the body of a response; empty if it has none.
func OutcomeInBody(body []byte) string { return envelopeIn(body).Carillon.Outcome }

// IsSuperseded reports whether a receiver's outcome refuses a request as stale.
func IsSuperseded(outcome string) bool {
	return strings.EqualFold(strings.TrimSpace(outcome), OutcomeSuperseded)
}

// SupersededOutcome is the outcome of an attempt that a receiver refused as stale. It has no class, because it is not a
// failure.
func SupersededOutcome() Outcome {
	return Outcome{
		State: Superseded,
		Error: "the target refused the request as stale: a newer fire of the trigger, or a newer attempt of the run, had been done",
	}
}

// MayBeSuperseded reports whether a target may refuse runs of a kind as stale. It may not refuse deliveries about a
// run or an alert: these would be lost without a failure.
func (k Kind) MayBeSuperseded() bool { return k != KindAlert && k != KindFollow }
