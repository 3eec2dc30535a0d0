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

// workForFleet does the work that one node does for all in an interval: it marks nodes dead, takes over from them, and
// does the rows of fleetRows. It asks for all of these locks at once. A node that may not mark others dead leaves that
// lock to nodes that may, and takes over from dead nodes without it.
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

// markDeadNodes marks nodes without recent heartbeats dead, and takes over from them. heartbeat is the latest of this
// node.
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

// takeOver ends the runs of dead nodes that may have been sent and must not be repeated, ends broadcasts without open
// shards, and passes the slots of dead nodes on. The adopt loop takes their other runs.
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

// handleRollback reports a rollback of the database that no operator has resolved, and carries out a skip. Paused nodes
// do it, too, because a rollback pauses all nodes.
func (c *Chores) handleRollback(ctx context.Context, _ time.Time) error {
	if !c.Fleet.AwaitsRollbackChoice() { // by the latest heartbeat
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

// Reclaim executes runs that belong to this node in the database and that the node does not have: their claim was
// committed after the node had given up its response and looked for it. A run that is missing now may be on its way to
// the pool; one that is still missing an interval later is not. After a rollback the node may have executed these runs
// already, so the operator chooses what happens to them.
func (c *Chores) Reclaim(ctx context.Context, now time.Time) error {
	if c.Fleet.AwaitsRollbackChoice() {
		c.reclaimAt = now
		return nil
	}
	defer c.Claims.Close(c.Claims.Draw()) // for those that are cancelled meanwhile
	id, before := c.Fleet.ID(), c.missing
	held, err := c.Store.Held(ctx, id, 0)
	if err != nil {
		return err
	}
	c.missing = map[pool.AttemptKey]time.Time{}
	var mine []run.HeldRun
	for _, run := range held {
		// Keep this order: a token is closed after its runs are in the pool.
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
	// The node holds these without knowing it. Those for which the pool has no room stay missing.
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
	c.reclaimAt = now
	return nil
}

// reclaimInterval is how often a node looks for runs to reclaim without a particular reason.
const reclaimInterval = time.Minute

// missesRuns reports whether there may be runs to reclaim, or the round before missed a run.
func (c *Chores) missesRuns(now time.Time) bool { return c.inDoubt(now) || len(c.missing) > 0 }

// missesAttempts reports whether there may be attempts to settle, or the round before missed one.
func (c *Chores) missesAttempts(now time.Time) bool { return c.inDoubt(now) || len(c.left.missed) > 0 }

// inDoubt reports whether this node may have more runs in the database than in memory: a claim had no response a while
// ago, or a rollback was noticed or resolved.
func (c *Chores) inDoubt(now time.Time) bool {
	return c.Claims.Doubted(now, c.Options.DeadAfter+2*c.Options.Handler)
}

// left is what belongs to this node in the database without an attempt on the node: slots, and runs that it has begun.
// The end of the attempt was among the commits that a rollback lost, or the run was cancelled before the node knew
// about it. While a node lives, only the node itself can know that none of its requests is in flight.
type left struct {
	missed map[leftAttempt]time.Time // when an attempt was first missed
	at     time.Time                 // when the node last looked
}

// leftAttempt is an attempt of a run under a token. Its number may be unknown.
type leftAttempt struct {
	run.Key
	token run.Token
}

// settleLeft gives back the slots of attempts that this node does not make, and ends the runs that it had begun as
// lost. An attempt that is missed now may be on its way to the pool; one that is still missed an interval later is not.
// While a rollback awaits an operator's choice nothing ends: replay attempts the runs with their slots.
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

func (c *Chores) loseBegun(ctx context.Context, runs []run.HeldRun) error {
	lost, err := c.Store.LoseRuns(ctx, runs, time.Time{})
	if lost > 0 {
		c.Log.WarnContext(ctx, "runs lost", "reason", "attempt_not_here_at_most_once", "node", c.Fleet.ID().String(), "count", lost)
	}
	return err
}

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

// findLeftSlots returns slots of this node in the database that it may no longer need.
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

// mendLeaks releases runs that wait for something that never comes, for example after a manual edit of the database.
// Other leftovers are freed by the node that holds them, by a probe, or by the follow loop.
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

// retrySetAside makes rows visible again that were set aside long enough ago, and learns which other rows to leave out.
// There are mostly none, so each node asks, without a lock.
func (c *Chores) retrySetAside(ctx context.Context, now time.Time) error {
	retried, err := c.Store.RetrySetAside(ctx, handlerPage, now)
	if retried > 0 {
		c.Wakes.Adopt.Notify()
		c.Wakes.Retry.Notify()
	}
	return err
}
