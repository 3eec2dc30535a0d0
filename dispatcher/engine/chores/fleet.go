package chores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
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
		loop.Wake(c.Wakes.Adopt)
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
