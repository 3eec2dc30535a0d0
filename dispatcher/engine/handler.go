package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// handlerPage is how many triggers or jobs one statement of a step changes.
const handlerPage = 1000

// handlerLoop runs the steps of the cluster and misfire handler every 15 s, give or take a tenth, so
// that the rounds of nodes that started together drift apart. The first round is the node's
// start-up: it settles what happened while no node ran.
func (e *Engine) handlerLoop(ctx context.Context) {
	ctx, end := e.progress.watch(ctx, "handler", e.opts.Handler+e.opts.Handler/10)
	defer end()
	for ctx.Err() == nil {
		begun := time.Now()
		if err := e.handleOnce(ctx, e.clock.now()); ctx.Err() == nil {
			e.logIf(ctx, "handler", err)
		}
		sleep(ctx, max(spread(e.opts.Handler)-time.Since(begun), shortestPause))
	}
}

// handleOnce makes one round. Steps for the fleet or for an app take a lock, so that one node does
// them in a window; the others find out in one statement that there is nothing for them to do. Every write is a
// compare-and-swap, so a node that froze under a lock and wakes when another node has it does no harm.
func (e *Engine) handleOnce(ctx context.Context, now time.Time) error {
	var errs []error
	for _, step := range []struct {
		name string
		do   func(context.Context, time.Time) error
	}{
		{"work for the fleet", e.workForFleet},
		{"skip after a rollback", e.handleRollback},
		{"follow the installation's time zones", e.switchZones},
		{"reschedule for time zones", e.rescheduleForZones},
		{"settle misfires", e.settleMisfires},
		{"reclaim runs", e.reclaimInDoubt},
		{"try again what is set aside", e.retrySetAside},
		{"settle attempts that are not here", e.settleLeft},
		{"mend leaks", e.mendLeaks},
		{"count upcoming fires", e.countUpcoming},
		{"count what there is", e.takeCensus},
		{"report bytes of responses", e.reportBytes},
	} {
		turned(ctx)
		if err := step.do(ctx, now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
		}
	}
	return errors.Join(errs...)
}

// errLockExpired is the cause of a step's end when the time of its lock has passed.
var errLockExpired = errors.New("the time of the lock has passed")

// withLocks takes those of the named locks that are free, and calls do with their names. When the
// time of the locks has passed, as after a freeze, do is stopped before its next statement, and the
// next round goes on with what is left.
func (e *Engine) withLocks(ctx context.Context, names []string, do func(ctx context.Context, won []string) error) error {
	sent := time.Now()
	locks, err := e.store.Lock(ctx, dispatcher.LockRequest{
		Node: e.fleet.id(), Names: names, AtMost: e.opts.DeadAfter, AtLeast: e.opts.Handler * 8 / 10,
	})
	if err != nil || len(locks) == 0 {
		return err
	}
	turned(ctx)
	failpoint.Hit(failpoint.LockTaken)
	won := make([]string, len(locks))
	for i, lock := range locks {
		won[i] = lock.Name
	}
	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := e.fleet.whenLeaseEnds(sent, func() { end(errLockExpired) })
	defer stop()
	err = do(within, won)
	turned(ctx)
	failpoint.Hit(failpoint.BeforeUnlock)
	if errors.Is(context.Cause(within), errLockExpired) {
		e.log.InfoContext(ctx, "lock expired; the next round goes on", "node", e.fleet.id().String(), "locks", len(locks))
		return nil // another node may have them by now
	}
	return errors.Join(err, e.store.Unlock(withoutCancel(ctx), locks))
}

// withLock is withLocks for one lock.
func (e *Engine) withLock(ctx context.Context, name string, do func(context.Context) error) error {
	return e.withLocks(ctx, []string{name}, func(ctx context.Context, _ []string) error { return do(ctx) })
}

// workForFleet does what one node does for all in a window: it marks nodes dead and takes over from them, rolls up
// the states of jobs, ends pauses whose time is over, looks whether triggers have switches to follow, removes expired
// endpoints, looks at alerts that time decides about, counts fires for objectives and runs for statistics, and notes failures. It
// asks for the locks of all that at once. A node that may not judge others leaves their lock to those that may, and
// takes over from the dead without it.
func (e *Engine) workForFleet(ctx context.Context, _ time.Time) error {
	names := []string{
		dispatcher.LockStates, dispatcher.LockSwitches, dispatcher.LockEndpoints, dispatcher.LockAlerts, dispatcher.LockObjectives,
		dispatcher.LockStatistics,
	}
	heartbeat, may := e.fleet.mayMarkDead()
	var err error
	if may {
		names = append(names, dispatcher.LockFleet)
	} else {
		err = e.takeOver(ctx)
	}
	return errors.Join(err, e.withLocks(ctx, names, func(ctx context.Context, won []string) error {
		var errs []error
		if slices.Contains(won, dispatcher.LockFleet) {
			errs = append(errs, e.markDeadNodes(ctx, heartbeat))
		}
		if slices.Contains(won, dispatcher.LockStates) {
			errs = append(errs, e.rollUpStates(ctx))
		}
		if slices.Contains(won, dispatcher.LockSwitches) {
			errs = append(errs, e.expirePauses(ctx), e.removeCutOffImports(ctx), e.followSwitches(ctx))
		}
		if slices.Contains(won, dispatcher.LockEndpoints) {
			errs = append(errs, e.expireEndpoints(ctx))
		}
		if slices.Contains(won, dispatcher.LockAlerts) {
			errs = append(errs, e.watchAlerts(ctx))
		}
		if slices.Contains(won, dispatcher.LockObjectives) {
			errs = append(errs, e.rollUpObjectives(ctx))
		}
		if slices.Contains(won, dispatcher.LockStatistics) {
			errs = append(errs, e.rollUpStatistics(ctx))
		}
		return errors.Join(errs...)
	}))
}

// markDeadNodes declares nodes dead whose heartbeats stayed out, and takes over from them. heartbeat is the latest of
// this node.
func (e *Engine) markDeadNodes(ctx context.Context, heartbeat time.Time) error {
	dead, err := e.store.MarkDead(ctx, e.fleet.id(), heartbeat, e.opts.DeadAfter+e.opts.ClockMargin, time.Time{})
	if err != nil {
		return fmt.Errorf("declare nodes dead: %w", err)
	}
	if dead > 0 {
		e.log.WarnContext(ctx, "nodes marked dead", "count", dead)
		wake(e.wakeAdopt)
	}
	failpoint.Hit(failpoint.UnderLock)
	return e.takeOver(ctx)
}

// takeOver ends the runs of dead nodes that may have been sent and must not be repeated, ends broadcasts of which no shard is
// left, and passes the slots of dead nodes on. The adopt loop takes their other runs.
func (e *Engine) takeOver(ctx context.Context) error {
	turned(ctx)
	lost, err := e.store.FailLostRuns(ctx, time.Time{})
	if err != nil {
		err = fmt.Errorf("fail begun runs of dead nodes: %w", err)
	}
	if lost > 0 {
		e.log.WarnContext(ctx, "runs lost", "reason", "dead_node_at_most_once", "count", lost)
	}
	_, broadcasts := e.store.EndBroadcasts(ctx, nil, time.Time{})
	return errors.Join(err, broadcasts, e.store.GrantWaiting(ctx))
}

// handleRollback reports a rollback of the database that no operator has resolved, and carries out a
// skip. Paused nodes do it, too, because a rollback pauses all nodes.
func (e *Engine) handleRollback(ctx context.Context, _ time.Time) error {
	if !e.fleet.awaitsRollbackChoice() { // as the latest heartbeat says
		e.metrics.rolledBack(false)
		return nil
	}
	rollback, err := e.store.Rollback(ctx)
	if err != nil {
		return err
	}
	e.metrics.rolledBack(rollback != nil)
	switch {
	case rollback == nil:
		return nil
	case rollback.Choice != dispatcher.RollbackSkip:
		e.log.ErrorContext(ctx, "the database lost commits; nodes are paused until you run carillon rollback skip or replay",
			"node", e.fleet.id().String(), "at", rollback.At, "reason", rollback.Reason)
		return nil
	}
	return e.withLock(ctx, dispatcher.LockRollback, func(ctx context.Context) error {
		triggers, runs := 0, 0
		for after, more := int64(0), true; more; {
			turned(ctx)
			done, err := e.store.SkipRolledBack(ctx, after, handlerPage, time.Time{})
			if err != nil {
				return err
			}
			triggers, runs, after, more = triggers+done.Triggers, runs+done.Runs, done.Last, done.More
		}
		e.metrics.rolledBack(false)
		e.log.InfoContext(ctx, "rollback skipped", "node", e.fleet.id().String(), "triggers", triggers, "runs", runs)
		return nil
	})
}

// rollUpPages is how many pages of jobs a round rolls up at most, so that its cost is bounded however
// many jobs there are.
const rollUpPages = 5

// rollUpStates keeps the states of jobs up to date. A round begins where the one before ended, on whichever node.
func (e *Engine) rollUpStates(ctx context.Context) error {
	for range rollUpPages {
		turned(ctx)
		rolled, err := e.store.RollUp(ctx, handlerPage)
		if err != nil {
			return err
		}
		if rolled.Changed > 0 {
			e.log.DebugContext(ctx, "job states changed", "count", rolled.Changed)
		}
		if !rolled.More {
			return nil
		}
	}
	return nil
}
