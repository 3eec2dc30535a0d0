package engine

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// leasePause is how often a node without a lease looks whether it has one again.
const leasePause = 200 * time.Millisecond

// hold waits until a run is due by the database's clock and the node may act on it. It
// returns false when stop or ctx ends first, or when the node was declared dead meanwhile:
// then the run is another's.
func (e *Engine) hold(ctx context.Context, run heldRun, stop <-chan struct{}) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := e.clock.until(run.due)
		switch {
		case stopped(stop):
			return false
		case wait > 0:
		case run.node != e.fleet.id():
			return false
		case e.fleet.leased():
			return ctx.Err() == nil
		default:
			wait = leasePause
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// fire makes one attempt and hands its outcome to the recorder.
func (e *Engine) fire(ctx context.Context, run heldRun) {
	var outcome dispatcher.Outcome
	call, err := e.callOf(ctx, run)
	switch {
	case err == nil && !e.acquire(ctx, run, call):
		e.drop(ctx, run)
		return
	case err == nil && e.putOff(ctx, run, call):
		return
	case err == nil && !e.begin(ctx, run, call):
		e.drop(ctx, run)
		return
	case err == nil:
		late := -e.clock.until(run.due)
		e.work.began(late)
		if run.Kind == dispatcher.KindSchedule && run.Attempt == 1 {
			e.metrics.lateness.Observe(late.Seconds())
		}
		outcome = e.invoker.Invoke(ctx, call)
		failpoint.Hit(failpoint.AfterResponse)
	case errors.Is(context.Cause(ctx), errCutOff):
		e.drop(ctx, run) // nobody said what to call in time
		return
	case errors.Is(err, errGone):
		outcome = notAttempted(dispatcher.RunCancelled, dispatcher.ClassJobDeleted, err)
	default:
		outcome = notAttempted(dispatcher.RunFailed, notAttemptedClass(err), err)
	}
	if errors.Is(context.Cause(ctx), errCutOff) {
		return // anyone who adopts the run accounts for this attempt as lost
	}
	e.metrics.attempts.WithLabelValues(string(outcome.State)).Inc()
	if run.delayed {
		e.delays.begun(run.TriggerID)
	}
	outcome.StartedAt, outcome.EndedAt = e.clock.of(outcome.StartedAt), e.clock.of(outcome.EndedAt)
	record := dispatcher.Record{RunKey: run.RunKey, Node: run.node, Token: run.Token, Attempt: run.Attempt, Outcome: outcome}
	if err == nil {
		record.Next = e.judge(ctx, run, call, outcome)
	}
	e.recorder.put(ctx, record)
	if e.opts.OnOutcome != nil && err == nil {
		e.opts.OnOutcome(call, outcome)
	}
}

// begin tells whether the request of a run may be sent. Where it is wanted at most once, that is
// committed first. A run that may not leaves its slot.
func (e *Engine) begin(ctx context.Context, run heldRun, call dispatcher.Call) bool {
	may := call.Delivery != dispatcher.AtMostOnce || e.begins.commit(ctx, run.HeldRun)
	if may {
		failpoint.Hit(failpoint.BeforeSend)
		// The node may have been frozen since it last looked, or the database away: what it then
		// held is another's, or may be. A lease that comes back finds the run still its own.
		may = run.node == e.fleet.id() && e.fleet.leased() || e.hold(ctx, run, nil)
	}
	if !may && call.Slots > 0 {
		e.slots.leave(run.HeldRun)
	}
	return may
}

// drop lets go of a run that may not begin. It is another's, or over, or nobody knows; either way
// anyone who adopts or ends it accounts for it. If only the time to ask was too short, it goes back.
func (e *Engine) drop(ctx context.Context, run heldRun) {
	if errors.Is(context.Cause(ctx), errCutOff) {
		e.pool.giveUp(run.HeldRun)
		return
	}
	e.pool.recorded([]dispatcher.Record{{RunKey: run.RunKey, Token: run.Token, Attempt: run.Attempt}})
}

// unmade is the outcome of an attempt that could not be made.
func notAttempted(state dispatcher.RunState, class dispatcher.Class, reason error) dispatcher.Outcome {
	now := time.Now()
	return dispatcher.Outcome{State: state, StartedAt: now, EndedAt: now, Class: class, Error: reason.Error()}
}

// notAttemptedClass is the class of an attempt for which there was no call.
func notAttemptedClass(reason error) dispatcher.Class {
	var template *dispatcher.TemplateError
	if errors.As(reason, &template) {
		return dispatcher.ClassTemplate
	}
	return dispatcher.ClassOther
}

// callOf finds what to call, in the cache or, for a run that waited long, in the database,
// which it asks until it answers.
func (e *Engine) callOf(ctx context.Context, run heldRun) (dispatcher.Call, error) {
	call, err := e.jobs.call(run)
	if errors.Is(err, errGone) {
		e.ask(ctx, "read job", func() error { return e.jobs.read(ctx, []int64{run.JobID}) })
		call, err = e.jobs.call(run)
	}
	call.Missed = run.missed
	if err == nil && run.Kind == dispatcher.KindCatchUp && run.missed == nil {
		// Another node took the decision.
		e.ask(ctx, "read catch-up run", func() error {
			found, err := e.store.Run(ctx, run.String())
			if call.Missed = found.Missed; errors.Is(err, dispatcher.ErrNotFound) {
				return nil // past its retention: the recorder finds out
			}
			return err
		})
	}
	if err == nil && call.Templates.UseFires() && call.Trigger != "" {
		err = e.addFires(ctx, run, &call)
	}
	return call, err
}

// addFires adds to a call the instants before and after its own, by the schedule that it was
// claimed by: in memory, or on record for a run of another node or an earlier attempt.
func (e *Engine) addFires(ctx context.Context, run heldRun, call *dispatcher.Call) error {
	if run.schedule != nil {
		call.PreviousFire, call.NextFire = dispatcher.FiresAround(run.schedule, run.ScheduledAt)
		return nil
	}
	var template *dispatcher.TemplateError
	e.ask(ctx, "read the schedule of a run", func() (err error) {
		call.PreviousFire, call.NextFire, err = dispatcher.FiresAroundInForce(ctx, e.store, call.App, call.Job, call.Trigger, run.ScheduledAt)
		if errors.As(err, &template) {
			return nil // asking again would not change it
		}
		return err
	})
	if template != nil {
		return template
	}
	return nil
}

// ask asks the database until it answers or ctx ends.
func (e *Engine) ask(ctx context.Context, what string, do func() error) {
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		err := do()
		if err == nil {
			return
		}
		e.logIf(ctx, what, err)
		sleep(ctx, pause)
	}
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
