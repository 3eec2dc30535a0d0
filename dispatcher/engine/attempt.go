package engine

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
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
		wait := e.clock.until(run.ScheduledAt)
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
	call, ok := e.callOf(ctx, run)
	var outcome dispatcher.Outcome
	if ok {
		outcome = e.invoker.Invoke(ctx, call)
	} else {
		now := time.Now()
		outcome = dispatcher.Outcome{
			State: dispatcher.RunCancelled, StartedAt: now, EndedAt: now, Class: dispatcher.ClassJobDeleted,
			Error: "the job or its trigger was deleted before this attempt began",
		}
	}
	if errors.Is(context.Cause(ctx), errCutOff) {
		return // whoever adopts the run accounts for this attempt as lost
	}
	outcome.StartedAt, outcome.EndedAt = e.clock.of(outcome.StartedAt), e.clock.of(outcome.EndedAt)
	e.recorder.put(dispatcher.Record{
		RunKey: run.RunKey, Node: run.node, Token: run.Token, Attempt: run.Attempt, Outcome: outcome,
	})
	if e.opts.OnOutcome != nil && ok {
		e.opts.OnOutcome(call, outcome)
	}
}

// callOf finds what to call, in the cache or, for a run that waited long, in the database.
// It asks until the database answers, and returns false if the definition is gone.
func (e *Engine) callOf(ctx context.Context, run heldRun) (dispatcher.Call, bool) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		if call, ok := e.jobs.call(run.HeldRun); ok {
			return call, true
		}
		err := e.jobs.load(ctx, map[int64]int64{run.JobID: e.jobs.stale(run.JobID)})
		if err == nil || ctx.Err() != nil {
			return e.jobs.call(run.HeldRun)
		}
		e.logIf(ctx, "read job", err)
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
