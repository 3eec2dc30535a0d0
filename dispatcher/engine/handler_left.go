package engine

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// left is what the database says that this node has, for attempts that it does not make: slots, and runs that it has begun. The
// end of the attempt was among the commits that a rollback lost, or the run was cancelled before the node learned that it
// has it. While a node lives, nobody else can tell that none of its requests is in flight.
type left struct {
	missed map[leftAttempt]time.Time // when an attempt was first missed
	at     time.Time                 // when the node last looked
}

// leftAttempt is an attempt of a run under a token, of which the number may be unknown.
type leftAttempt struct {
	run.Key
	token run.Token
}

// settleLeft gives back the slots of attempts that this node does not make, and ends the runs that it had begun as lost. An attempt
// that is missed now may be on its way to the pool; one that is still missed an interval later is not. While a rollback
// awaits its choice nothing ends: replay attempts the runs with their slots.
func (e *Engine) settleLeft(ctx context.Context, now time.Time) error {
	waits := e.fleet.awaitsRollbackChoice()
	if !e.inDoubt(now) && len(e.left.missed) == 0 && !passed(e.left.at, now, reclaimInterval) {
		return nil
	}
	begun, err := e.store.Begun(ctx, e.fleet.id())
	if err != nil {
		return err
	}
	slots, err := e.findLeftSlots(ctx)
	if err != nil {
		return err
	}
	before := e.left.missed
	e.left = left{missed: map[leftAttempt]time.Time{}, at: now}
	missed := func(runs []run.HeldRun) (again []run.HeldRun) {
		for _, run := range runs {
			// In this order: an attempt leaves the pool before it gives back its slot. Most are found by their numbers.
			if run.Attempt > 0 && e.pool.Owns(run) || e.pool.OwnsAny(run.Key, run.Token) || e.slots.has(run) {
				continue
			}
			key := leftAttempt{run.Key, run.Token}
			since, known := before[key]
			if !known {
				since = now
			}
			e.left.missed[key] = since
			if !waits && now.Sub(since) >= e.opts.Handler {
				again = append(again, run)
			}
		}
		return again
	}
	return errors.Join(e.loseBegun(ctx, missed(begun)), e.releaseLeft(ctx, missed(slots)))
}

// loseBegun ends runs as lost.
func (e *Engine) loseBegun(ctx context.Context, runs []run.HeldRun) error {
	lost, err := e.store.LoseRuns(ctx, runs, time.Time{})
	if lost > 0 {
		e.log.WarnContext(ctx, "runs lost", "reason", "attempt_not_here_at_most_once", "node", e.fleet.id().String(), "count", lost)
	}
	return err
}

// releaseLeft releases slots.
func (e *Engine) releaseLeft(ctx context.Context, runs []run.HeldRun) error {
	if len(runs) == 0 {
		return nil
	}
	if err := e.store.ReleaseSlots(ctx, runs); err != nil {
		return err // the next round repeats it
	}
	for _, run := range runs {
		e.log.WarnContext(ctx, "slot released", "reason", "attempt_not_here", "node", e.fleet.id().String(), "run", run.String())
	}
	e.metrics.leftSlots.Add(float64(len(runs)))
	return nil
}

// findLeftSlots returns the slots that this node has, by the database, and may have left.
func (e *Engine) findLeftSlots(ctx context.Context) (found []run.HeldRun, err error) {
	var after dispatcher.SlotKey
	for more := true; more; {
		turned(ctx)
		page, err := e.store.LeftSlots(ctx, e.fleet.id(), after, handlerPage)
		if err != nil {
			return nil, err
		}
		found = append(found, page.Runs...)
		after, more = page.Last, page.More
	}
	return found, nil
}

// mendLeaks lets runs go on that wait for something that never comes, as after somebody edited the database. What else is left is freed
// by the node that has it, by a probe or by the loop that follows ends.
func (e *Engine) mendLeaks(ctx context.Context, now time.Time) error {
	if e.fleet.awaitsRollbackChoice() || !passed(e.mended, now, reclaimInterval) {
		return nil
	}
	leaks, err := e.store.MendLeaks(ctx, handlerPage, time.Time{})
	for _, leak := range leaks {
		e.log.WarnContext(ctx, "leak mended", "kind", string(leak.Kind), "node", e.fleet.id().String(), "run", leak.Run)
		e.metrics.mendedLeaks.WithLabelValues(string(leak.Kind)).Inc()
	}
	if err == nil && len(leaks) < handlerPage {
		e.mended = now
	}
	return err
}
