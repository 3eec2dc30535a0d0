package chores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// workForFleet does what one node does for all in a window: it marks nodes dead and takes over from them, and what fleetRows
// has. It asks for the locks of all that at once. A node that may not judge others leaves their lock to those that may, and
// takes over from the dead without it.
func (c *Chores) workForFleet(ctx context.Context, now time.Time) error {
	rows := c.fleetRows
	heartbeat, may := c.Fleet.MayMarkDead()
	var err error
	if may {
		rows = slices.Insert(slices.Clone(rows), 0, chore{lock: dispatcher.LockFleet, step: func(ctx context.Context, _ time.Time) error {
			return c.markDeadNodes(ctx, heartbeat)
		}})
	} else {
		err = c.takeOver(ctx)
	}
	names := make([]string, len(rows))
	for i, one := range rows {
		names[i] = one.lock
	}
	return errors.Join(err, c.withLocks(ctx, slices.Compact(names), func(ctx context.Context, won []string) error {
		var errs []error
		for _, one := range rows {
			if slices.Contains(won, one.lock) {
				errs = append(errs, one.step(ctx, now))
			}
		}
		return errors.Join(errs...)
	}))
}

// markDeadNodes declares nodes dead whose heartbeats stayed out, and takes over from them. heartbeat is the latest of
// this node.
func (c *Chores) markDeadNodes(ctx context.Context, heartbeat time.Time) error {
	dead, err := c.Store.MarkDead(ctx, c.Fleet.ID(), heartbeat, c.Options.DeadAfter+c.Options.ClockMargin, time.Time{})
	if err != nil {
		return fmt.Errorf("declare nodes dead: %w", err)
	}
	if dead > 0 {
		c.Log.WarnContext(ctx, "nodes marked dead", "count", dead)
		c.Wakes.Adopt.Notify()
	}
	failpoint.Hit(failpoint.UnderLock)
	return c.takeOver(ctx)
}

// takeOver ends the runs of dead nodes that may have been sent and must not be repeated, ends broadcasts of which no shard is
// left, and passes the slots of dead nodes on. The adopt loop takes their other runs.
func (c *Chores) takeOver(ctx context.Context) error {
	loop.Turned(ctx)
	lost, err := c.Store.FailLostRuns(ctx, time.Time{})
	if err != nil {
		err = fmt.Errorf("fail begun runs of dead nodes: %w", err)
	}
	if lost > 0 {
		c.Log.WarnContext(ctx, "runs lost", "reason", "dead_node_at_most_once", "count", lost)
	}
	_, broadcasts := c.Store.EndBroadcasts(ctx, nil, time.Time{})
	return errors.Join(err, broadcasts, c.Store.GrantWaiting(ctx))
}

// handleRollback reports a rollback of the database that no operator has resolved, and carries out a
// skip. Paused nodes do it, too, because a rollback pauses all nodes.
func (c *Chores) handleRollback(ctx context.Context, _ time.Time) error {
	if !c.Fleet.AwaitsRollbackChoice() { // as the latest heartbeat says
		c.metrics.rolledBack(false)
		return nil
	}
	rollback, err := c.Store.Rollback(ctx)
	if err != nil {
		return err
	}
	c.metrics.rolledBack(rollback != nil)
	switch {
	case rollback == nil:
		return nil
	case rollback.Choice != dispatcher.RollbackSkip:
		c.Log.ErrorContext(ctx, "the database lost commits; nodes are paused until you run carillon rollback skip or replay",
			"node", c.Fleet.ID().String(), "at", rollback.At, "reason", rollback.Reason)
		return nil
	}
	return c.withLock(ctx, dispatcher.LockRollback, func(ctx context.Context) error {
		triggers, runs := 0, 0
		for after, more := int64(0), true; more; {
			loop.Turned(ctx)
			done, err := c.Store.SkipRolledBack(ctx, after, handlerPage, time.Time{})
			if err != nil {
				return err
			}
			triggers, runs, after, more = triggers+done.Triggers, runs+done.Runs, done.Last, done.More
		}
		c.metrics.rolledBack(false)
		c.Log.InfoContext(ctx, "rollback skipped", "node", c.Fleet.ID().String(), "triggers", triggers, "runs", runs)
		return nil
	})
}

// Reclaim executes runs that the database gives to this node and that the node does not have: their
// claim was committed after the node had given up its response and looked for it. A run that is
// missing now may be on its way to the pool; one that is still missing an interval later is not.
// After a rollback the node may have executed them already, so that is for the operator to choose.
func (c *Chores) Reclaim(ctx context.Context, now time.Time) error {
	if c.Fleet.AwaitsRollbackChoice() {
		c.reclaimAt = now
		return nil
	}
	id, before := c.Fleet.ID(), c.missing
	held, err := c.Store.Held(ctx, id, 0)
	if err != nil {
		return err
	}
	c.missing = map[pool.AttemptKey]time.Time{}
	var mine []run.HeldRun
	for _, run := range held {
		// In this order: a token is closed after its runs are in the pool.
		if c.Claims.IsOpen(run.Token) || c.Pool.Owns(run) {
			continue
		}
		since, again := before[pool.KeyOf(run)]
		switch {
		case !again:
			c.missing[pool.KeyOf(run)] = now
		case now.Sub(since) < c.Options.Handler:
			c.missing[pool.KeyOf(run)] = since
		default:
			mine = append(mine, run)
		}
	}
	c.submitMissed(ctx, id, mine, now)
	c.reclaimAt = now
	return nil
}

// reclaimInterval is how often a node looks for runs to reclaim without a reason to.
const reclaimInterval = time.Minute

// missesRuns reports whether there may be something to reclaim, or the round before missed a run.
func (c *Chores) missesRuns(now time.Time) bool { return c.inDoubt(now) || len(c.missing) > 0 }

// missesAttempts reports whether there may be something to settle, or the round before missed an attempt.
func (c *Chores) missesAttempts(now time.Time) bool {
	return c.inDoubt(now) || len(c.left.missed) > 0
}

// inDoubt reports whether the database may give to this node what the node does not have: a claim had no response a while
// ago, or a rollback was noticed or resolved.
func (c *Chores) inDoubt(now time.Time) bool {
	return c.Claims.Doubted(now, c.Options.DeadAfter+2*c.Options.Handler)
}

// submitMissed submits runs that the node holds without knowing, as far as the pool has room for them. The others
// stay missing.
func (c *Chores) submitMissed(ctx context.Context, id run.NodeID, mine []run.HeldRun, now time.Time) {
	var admitted []*plan.Held
	for _, run := range c.Plan.HeldBy(id, mine) {
		if c.Pool.Admit(run.Queue) == pool.Admitted {
			admitted = append(admitted, run)
		} else {
			c.missing[pool.KeyOf(run.HeldRun)] = now.Add(-c.Options.Handler)
		}
	}
	if len(admitted) > 0 {
		c.Log.WarnContext(ctx, "runs reclaimed", "reason", "claim_committed_late", "node", id.String(), "count", len(admitted))
		c.Pool.Submit(admitted)
	}
}

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
func (c *Chores) settleLeft(ctx context.Context, now time.Time) error {
	waits := c.Fleet.AwaitsRollbackChoice()
	begun, err := c.Store.Begun(ctx, c.Fleet.ID())
	if err != nil {
		return err
	}
	slots, err := c.findLeftSlots(ctx)
	if err != nil {
		return err
	}
	before := c.left.missed
	c.left = left{missed: map[leftAttempt]time.Time{}, at: now}
	missed := func(runs []run.HeldRun) (again []run.HeldRun) {
		for _, run := range runs {
			// In this order: an attempt leaves the pool before it gives back its slot. Most are found by their numbers.
			if run.Attempt > 0 && c.Pool.Owns(run) || c.Pool.OwnsAny(run.Key, run.Token) || c.HasSlot(run) {
				continue
			}
			key := leftAttempt{run.Key, run.Token}
			since, known := before[key]
			if !known {
				since = now
			}
			c.left.missed[key] = since
			if !waits && now.Sub(since) >= c.Options.Handler {
				again = append(again, run)
			}
		}
		return again
	}
	return errors.Join(c.loseBegun(ctx, missed(begun)), c.releaseLeft(ctx, missed(slots)))
}

// loseBegun ends runs as lost.
func (c *Chores) loseBegun(ctx context.Context, runs []run.HeldRun) error {
	lost, err := c.Store.LoseRuns(ctx, runs, time.Time{})
	if lost > 0 {
		c.Log.WarnContext(ctx, "runs lost", "reason", "attempt_not_here_at_most_once", "node", c.Fleet.ID().String(), "count", lost)
	}
	return err
}

// releaseLeft releases slots.
func (c *Chores) releaseLeft(ctx context.Context, runs []run.HeldRun) error {
	if len(runs) == 0 {
		return nil
	}
	if err := c.Store.ReleaseSlots(ctx, runs); err != nil {
		return err // the next round repeats it
	}
	for _, run := range runs {
		c.Log.WarnContext(ctx, "slot released", "reason", "attempt_not_here", "node", c.Fleet.ID().String(), "run", run.String())
	}
	c.metrics.leftSlots.Add(float64(len(runs)))
	return nil
}

// findLeftSlots returns the slots that this node has, by the database, and may have left.
func (c *Chores) findLeftSlots(ctx context.Context) (found []run.HeldRun, err error) {
	var after dispatcher.SlotKey
	for more := true; more; {
		loop.Turned(ctx)
		page, err := c.Store.LeftSlots(ctx, c.Fleet.ID(), after, handlerPage)
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
func (c *Chores) mendLeaks(ctx context.Context, now time.Time) error {
	leaks, err := c.Store.MendLeaks(ctx, handlerPage, time.Time{})
	for _, leak := range leaks {
		c.Log.WarnContext(ctx, "leak mended", "kind", string(leak.Kind), "node", c.Fleet.ID().String(), "run", leak.Run)
		c.metrics.mendedLeaks.WithLabelValues(string(leak.Kind)).Inc()
	}
	if err == nil && len(leaks) < handlerPage {
		c.mended = now
	}
	return err
}

// retrySetAside lets runs be found again that were set aside long enough ago, and learns which other rows to leave out. There are
// mostly none, so each node asks, without a lock.
func (c *Chores) retrySetAside(ctx context.Context, now time.Time) error {
	retried, err := c.Store.RetrySetAside(ctx, handlerPage, now)
	if retried > 0 {
		c.Wakes.Adopt.Notify()
		c.Wakes.Retry.Notify()
	}
	return err
}
