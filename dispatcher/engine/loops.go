package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/engine/chores"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// pace is when a loop makes its step.
type pace struct {
	interval time.Duration
	wake     loop.Signal
	mine     func(time.Time) bool // the intervals that are this node's turn; nil: each is
}

// every calls step at once, then at each interval or wake, until ctx ends, but not more often than
// the shortest pause. It logs a step's error; the next call is the retry. Each call is progress.
func (e *Engine) every(ctx context.Context, name string, p pace, step func(context.Context, time.Time) error) {
	ctx, end := e.progress.Watch(ctx, name, p.interval)
	defer end()
	ticker := time.NewTicker(p.interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		loop.Turned(ctx)
		pause := loop.ShortestPause
		if err := step(ctx, e.clock.Now()); err != nil && ctx.Err() == nil {
			e.log.Failed(ctx, name, err)
			pause += backoff.Jittered(min(p.interval, time.Second)) / 2 // nodes do not all come back at once
		}
		backoff.Sleep(ctx, pause)
		for asked := false; !asked && ctx.Err() == nil; loop.Turned(ctx) {
			select {
			case <-ctx.Done():
			case <-ticker.C:
				asked = p.mine == nil || p.mine(e.clock.Now())
			case <-p.wake:
				asked = true
			}
		}
	}
}

// leastPatience is more than the statements between two marks of a loop take together, even if each
// of them ends with its deadline.
const leastPatience = 30 * time.Second

// Stalled returns nil while the node's loops make progress: heartbeat, poll, sweep, claim, adopt and handler. An
// unreachable database stalls none of them. A loop that is stuck stays stuck, so only a new process helps. A node that
// has not started, or has drained, is not stalled.
func (e *Engine) Stalled(now time.Time) error {
	return e.progress.Stalled(now, max(e.opts.DeadAfter, leastPatience))
}

// handlerLoop runs the steps of the cluster and misfire handler every 15 s, give or take a tenth, so
// that the rounds of nodes that started together drift apart. The first round is the node's
// start-up: it settles what happened while no node ran.
func (e *Engine) handlerLoop(ctx context.Context) {
	ctx, end := e.progress.Watch(ctx, "handler", e.opts.Handler+e.opts.Handler/10)
	defer end()
	for ctx.Err() == nil {
		begun := time.Now()
		if err := e.chores.Round(ctx, e.clock.Now()); ctx.Err() == nil {
			e.log.Failed(ctx, "handler", err)
		}
		backoff.Sleep(ctx, max(loop.Spread(e.opts.Handler)-time.Since(begun), loop.ShortestPause))
	}
}

// pollLoop reads the window at each interval, and at once when a notification announces a change.
func (e *Engine) pollLoop(ctx context.Context) {
	next := time.Now() // when a poll should begin at the latest
	e.every(ctx, "poll", pace{interval: e.opts.Window, wake: e.wakePoll}, func(ctx context.Context, now time.Time) error {
		begun := time.Now()
		late := max(0, begun.Sub(next))
		// A fifth of slack covers a poll that begins late.
		n, err := e.plan.Poll(ctx, now, now.Add(e.opts.Window+e.opts.Window/5))
		took := time.Since(begun)
		e.metrics.polls.Observe(took.Seconds())
		e.metrics.drift.Set(late.Seconds())
		e.log.DebugContext(ctx, "window polled", "fires", n, "took", took)
		if took > e.opts.Window || late > e.opts.Window/5 {
			e.log.WarnContext(ctx, "poll overruns its window; fires may be late",
				"node", e.fleet.ID().String(), "took", took.String(), "late", late.String(), "fires", n)
		}
		next = begun.Add(e.opts.Window)
		return err
	})
}

// sweepLoop plans, after the grace, the fires that the nodes before this one left alone. It also wakes the poll after
// lost fires of its own.
func (e *Engine) sweepLoop(ctx context.Context) {
	e.every(ctx, "sweep", pace{interval: e.opts.Grace}, func(ctx context.Context, now time.Time) error {
		// Not at each loss: where nodes contend, that would cause one poll after the other.
		if e.plan.LostFires.Swap(false) {
			e.wakePoll.Notify()
		}
		return e.plan.Sweep(ctx, now)
	})
}

// aheadLoop looks up the triggers of the fires that are due soon.
func (e *Engine) aheadLoop(ctx context.Context) {
	ctx, end := e.progress.Watch(ctx, "ahead", claimPause)
	defer end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		loop.Turned(ctx)
		more, err := e.plan.PlanAhead(ctx, e.clock.Now())
		switch {
		case err != nil:
			e.log.Failed(ctx, "look up triggers", err)
			backoff.Sleep(ctx, plan.LeasePause)
			continue
		case more:
			continue
		}
		wait := claimPause // a poll, or room in the timeline, ends it earlier
		if head, ok := e.plan.Ahead.Head(); ok && !e.plan.Timeline.IsFull() {
			wait = min(wait, e.clock.Until(head.Add(-plan.Soon)))
		}
		timer.Reset(max(wait, loop.ShortestPause))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-e.plan.Ahead.Wake:
		}
	}
}

// adoptLoop adopts runs without a node, and schedules the next fire of fixed delays whose run ended without this node's
// knowledge. A notification wakes it at once; without one, nodes take turns.
func (e *Engine) adoptLoop(ctx context.Context) {
	e.every(ctx, "adopt", pace{e.opts.Handler, e.wakeAdopt, e.turnToAdopt(e.opts.Handler)}, func(ctx context.Context, now time.Time) error {
		e.letNewerAdopt(ctx, 1)
		return errors.Join(e.adopt(ctx), e.plan.ScheduleNext(ctx, nil, now))
	})
}

// turnAdopt is how many nodes take turns to look for runs that no notification announced.
const turnAdopt = 3

// turnToAdopt returns a function that reports this node's turn in an interval.
func (e *Engine) turnToAdopt(interval time.Duration) func(time.Time) bool {
	return func(now time.Time) bool {
		mine, _ := e.fleet.Turn(now, interval, 0, turnAdopt)
		return mine
	}
}

// adopt adopts runs without a node, as far as the pool has room for them.
func (e *Engine) adopt(ctx context.Context) error {
	return e.adopter.Due(ctx, e.idle, time.Time{}, e.clock.Now())
}

// hasRoom is called when a pool that was full has places again.
func (e *Engine) hasRoom() {
	for _, a := range []*chores.Adoption{e.idle, e.retries.adoption} {
		if a.Clogged.Load() {
			a.Wake.Notify()
		}
	}
}

// letNewerAdopt gives newer nodes a head start with retries and runs without a node, if this node leaves long attempts
// to them. Which of these runs are long is unknown before they are adopted.
func (e *Engine) letNewerAdopt(ctx context.Context, graces int) {
	if e.fleet.Yields() {
		backoff.Sleep(ctx, time.Duration(graces)*e.opts.Grace)
	}
}

const (
	// A long purge leaves the database to others between two calls: for at least purgePause, and for purgeRest times as
	// long as the call took. The removed history is years old, and fires must not wait for it.
	purgePause = time.Second
	purgeRest  = 4
	// busyPause is how long to wait while another node purges, or after a step that failed.
	busyPause = time.Minute
)

// purgeLoop removes history past its retention, at once and then about every PurgeInterval, in turns with the other
// nodes, because the history is the same for all. While there is more, it goes on after a short pause.
func (e *Engine) purgeLoop(ctx context.Context) {
	for more := true; ctx.Err() == nil; {
		pause := loop.Spread(e.opts.PurgeInterval)
		if more || e.fleet.TurnToPurge(e.clock.Now(), e.opts.PurgeInterval) {
			var err error
			if pause, more, err = e.purgeOnce(ctx); ctx.Err() == nil {
				e.log.Failed(ctx, "purge history", err)
			}
		}
		backoff.Sleep(ctx, pause)
	}
}

// purgeOnce makes one round. It returns the pause until the next; more is true if that one comes even if it is not the
// node's turn. A node that died while it purged keeps its lock for a minute, so a node that finds the lock taken tries
// again then.
func (e *Engine) purgeOnce(ctx context.Context) (pause time.Duration, more bool, err error) {
	begun := time.Now()
	removed, err := e.store.Purge(ctx, e.fleet.ID(), time.Time{})
	e.metrics.purged(removed)
	if removed.Partitions+removed.Runs+removed.Misfires+removed.Jobs+removed.AuditEntries > 0 {
		e.log.InfoContext(ctx, "history removed", "node", e.fleet.ID().String(), "partitions", removed.Partitions,
			"runs", removed.Runs, "misfires", removed.Misfires, "jobs", removed.Jobs, "audit_entries", removed.AuditEntries)
	}
	switch {
	case err == nil && removed.More:
		return max(purgePause, purgeRest*time.Since(begun)), true, nil
	case removed.Busy, removed.More: // one step failed, and others go on
		return min(loop.Spread(busyPause), loop.Spread(e.opts.PurgeInterval)), false, err
	}
	return loop.Spread(e.opts.PurgeInterval), false, err
}

// Backfills and bulk actions advance in steps, each of some transactions of the store. Any node may make a step at any
// time, so their loops need no lock: a node makes one when it is notified of work, and in each interval some nodes take
// their turn at all of them, for the leftovers of a node that died.

// turnSteps is how many nodes take turns.
const turnSteps = 3

// stepsInTurn is how many steps of one object follow each other before others have their turn.
const stepsInTurn = 20

// stepLoop makes steps of all open objects until ctx ends. step returns when its object goes on; zero: at a wake-up.
func (e *Engine) stepLoop(
	ctx context.Context, name string, woken loop.Signal, open func(context.Context) ([]dispatcher.OpenSteps, error),
	step func(ctx context.Context, id int64, now time.Time) (time.Time, error),
) {
	mine := func(now time.Time) bool {
		turn, _ := e.fleet.Turn(now, e.opts.Handler, 0, turnSteps)
		return turn
	}
	var again *time.Timer
	e.every(ctx, name, pace{e.opts.Handler, woken, mine}, func(ctx context.Context, now time.Time) error {
		all, err := open(ctx)
		if err != nil {
			return err
		}
		next, err := stepAll(ctx, all, now, step)
		if again != nil {
			again.Stop()
		}
		if !next.IsZero() {
			again = time.AfterFunc(e.clock.Until(next), func() { woken.Notify() })
		}
		return err
	})
	if again != nil {
		again.Stop()
	}
}

// stepAll makes steps of all objects that may go on, and returns when the next of them may; zero: none waits for a
// time. A failed step does not stop the others.
func stepAll(
	ctx context.Context, all []dispatcher.OpenSteps, now time.Time,
	step func(ctx context.Context, id int64, now time.Time) (time.Time, error),
) (next time.Time, err error) {
	var errs []error
	for _, one := range all {
		at := one.TryAt
		if !at.After(now) {
			if at, err = step(ctx, one.ID, now); err != nil {
				errs = append(errs, err)
			}
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, errors.Join(errs...)
}

// feedBackfill advances a backfill until its runs or its pace stop it, or the others have their turn.
func (e *Engine) feedBackfill(ctx context.Context, id int64, now time.Time) (time.Time, error) {
	for range stepsInTurn {
		loop.Turned(ctx)
		fed, err := e.store.FeedBackfill(ctx, id, time.Time{})
		if err != nil {
			return cmp.Or(fed.NextAt, now.Add(time.Second)), err
		}
		failpoint.Hit(failpoint.AfterBackfill)
		if fed.Queued > 0 {
			e.wakeAdopt.Notify()
		}
		if !fed.More {
			return fed.NextAt, nil
		}
	}
	return now, nil
}

// moveBulkAction advances a bulk action until a quota stops it, or the others have their turn. Each step wakes other nodes.
func (e *Engine) moveBulkAction(ctx context.Context, id int64, now time.Time) (time.Time, error) {
	for range stepsInTurn {
		loop.Turned(ctx)
		step, err := e.store.StepBulkAction(ctx, id, time.Time{})
		if err != nil {
			return cmp.Or(step.TryAt, now.Add(time.Second)), err
		}
		if step.Adopt {
			e.wakeAdopt.Notify()
		}
		if !step.More {
			if step.Waits > 0 {
				return now.Add(step.Waits), nil
			}
			return time.Time{}, nil
		}
	}
	return now, nil
}
