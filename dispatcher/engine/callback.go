package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// A target that accepts an attempt ends it later by a callback. Until then the run is a row that no node holds, as one that
// is retrying, and its deadline is when it is due. Success is what the API records. The deadline, and a callback that says
// that the attempt failed, make a node adopt the run: it calls nothing, and records how the attempt ended as if its target
// had just responded so. So retries, slots and fixed delays need no way of their own.

// untilCallback returns until when a run waits whose target accepted an attempt.
func untilCallback(o run.Outcome) *dispatcher.NextAttempt {
	callback := *o.Callback
	if callback.Within <= 0 {
		callback.Within = run.DefaultCallbackTimeout.Std()
	}
	callback.Within = min(callback.Within, run.MostCallbackWait)
	return &dispatcher.NextAttempt{At: o.EndedAt.Add(callback.Within).Truncate(time.Millisecond), Callback: &callback}
}

// endAccepted records the end of an attempt that its target accepted. It is a step of an attempt, for runs that were adopted
// for it.
func (e *Engine) endAccepted(ctx context.Context, a *attempt) result {
	if a.run.Accepted == nil {
		return proceed
	}
	failpoint.Hit(failpoint.BeforeCallbackEnd)
	a.outcome = endOfAccepted(*a.run.Accepted, a.run.ClaimedAt, e.clock.now())
	e.ended(ctx, a)
	if a.call.Slots > 0 || occupies(a) {
		e.slots.took(a.run.HeldRun) // so that the end of the run gives it back
	}
	e.record(ctx, a.run, a.outcome, e.nextOfFailed(a.run, a.call, a.outcome))
	if e.opts.OnOutcome != nil {
		e.opts.OnOutcome(a.call, a.outcome)
	}
	return finished
}

// endOfAccepted returns how an attempt ended that its target accepted, by the database's clock.
func endOfAccepted(of run.AcceptedAttempt, claimed, now time.Time) run.Outcome {
	o := run.Outcome{
		State: run.TimedOut, StartedAt: of.StartedAt, EndedAt: now, HTTPStatus: of.HTTPStatus, Class: run.ClassCallbackTime,
		Error: fmt.Sprintf("no callback came in time; the target has %s after it accepted the attempt, and after each heartbeat",
			input.Duration(of.Within)),
	}
	if o.StartedAt.IsZero() {
		o.StartedAt = claimed
	}
	switch {
	case of.TimedOut:
		o.Class, o.Error = run.ClassFunctionTime, of.Message
	case of.Failed:
		o.State, o.Class, o.Error = run.Failed, run.ClassCallback, of.Message
	}
	if o.Error == "" {
		o.Error = "the target said so by its callback"
	}
	return o
}
