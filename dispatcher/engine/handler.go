package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// handlerLoop is the cluster and misfire handler. Its first round is the node's start-up: it
// settles what a stop left behind. The rounds of nodes that started together drift apart.
func (e *Engine) handlerLoop(ctx context.Context) {
	for ctx.Err() == nil {
		begun := time.Now()
		if err := e.handleOnce(ctx, e.clock.now()); ctx.Err() == nil {
			e.logIf(ctx, "handler", err)
		}
		sleep(ctx, max(spread(e.opts.Handler)-time.Since(begun), shortestPause))
	}
}

// spread returns an interval give or take a tenth.
func spread(interval time.Duration) time.Duration {
	return interval - interval/10 + randomBelow(interval/5+1)
}

// jittered returns half of a pause, or up to all of it.
func jittered(pause time.Duration) time.Duration { return pause/2 + randomBelow(pause/2+1) }

// handleOnce makes one round: the care for the fleet and for apps that need it, each under its
// lock, so that of all nodes one does it in a window; and what concerns this node alone. Every
// write in it is a compare-and-swap, so that a node which was frozen under a lock, and wakes when
// another has it, does no harm either.
func (e *Engine) handleOnce(ctx context.Context, now time.Time) error {
	var errs []error
	for _, step := range []struct {
		what string
		do   func(context.Context, time.Time) error
	}{
		{"care for the fleet", e.tendFleet}, {"see to a rollback", e.tendRollback}, {"follow time zones", e.rescheduleForZones}, {"settle misfires", e.tendApps}, {"reclaim runs", e.reclaim}, {"roll up states", e.rollUp},
	} {
		if err := step.do(ctx, now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
		}
	}
	return errors.Join(errs...)
}

// errLockEnd is the cause of what ends because the time of its lock does.
var errLockEnd = errors.New("the time of the lock has passed")

// locked takes those of locks that are free and does what is to be done under them, as long as
// they last. Beyond that it counts on nothing: who goes on there, as after a freeze, is stopped
// before its next statement. What is left is for the next round.
func (e *Engine) locked(ctx context.Context, names []string, do func(ctx context.Context, won []string) error) error {
	sent := time.Now()
	locks, err := e.store.Lock(ctx, dispatcher.LockRequest{
		Node: e.fleet.id(), Names: names, AtMost: e.opts.DeadAfter, AtLeast: e.opts.Handler * 8 / 10,
	})
	if err != nil || len(locks) == 0 {
		return err
	}
	failpoint.Hit(failpoint.LockTaken)
	won := make([]string, len(locks))
	for i, lock := range locks {
		won[i] = lock.Name
	}
	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	timer := time.AfterFunc(time.Until(e.fleet.leaseFrom(sent)), func() { end(errLockEnd) })
	defer timer.Stop()
	err = do(within, won)
	failpoint.Hit(failpoint.BeforeUnlock)
	if errors.Is(context.Cause(within), errLockEnd) {
		e.log.InfoContext(ctx, "the time of a lock has passed; the next round goes on", "node", e.fleet.id().String(), "locks", len(locks))
		return nil // somebody else may have them by now
	}
	return errors.Join(err, e.store.Unlock(context.WithoutCancel(ctx), locks))
}

// tendFleet declares nodes dead and ends what they may have sent. A node that may not say who is
// dead leaves the lock to those who may.
func (e *Engine) tendFleet(ctx context.Context, _ time.Time) error {
	heartbeat, may := e.fleet.mayMarkDead()
	if !may {
		return e.takeOver(ctx)
	}
	return e.locked(ctx, []string{dispatcher.LockFleet}, func(ctx context.Context, _ []string) error {
		dead, err := e.store.MarkDead(ctx, e.fleet.id(), heartbeat, e.opts.DeadAfter, time.Time{})
		if err != nil {
			return fmt.Errorf("declare nodes dead: %w", err)
		}
		if dead > 0 {
			e.log.WarnContext(ctx, "nodes declared dead", "count", dead)
			wake(e.wakeAdopt)
		}
		failpoint.Hit(failpoint.UnderLock)
		return e.takeOver(ctx)
	})
}

// takeOver ends what dead nodes may have sent and must not be repeated, and passes their slots on.
func (e *Engine) takeOver(ctx context.Context) error {
	lost, err := e.store.FailLostRuns(ctx, time.Time{})
	if err != nil {
		return fmt.Errorf("end begun runs of dead nodes: %w", err)
	}
	if lost > 0 {
		e.log.WarnContext(ctx, "runs of dead nodes lost, for they may have been sent and are wanted at most once", "count", lost)
	}
	return e.store.GrantWaiting(ctx)
}

// The states of jobs are rolled up some thousands a round, so that the cost of a round is bounded
// however many there are.
const (
	rollUpPage  = 1000
	rollUpPages = 5
)

// rollUp keeps the states of jobs true, from where the round before ended.
func (e *Engine) rollUp(ctx context.Context, _ time.Time) error {
	return e.locked(ctx, []string{dispatcher.LockStates}, func(ctx context.Context, _ []string) error {
		for range rollUpPages {
			rolled, err := e.store.RollUp(ctx, e.rolledTo, rollUpPage)
			if err != nil {
				return err
			}
			if rolled.Changed > 0 {
				e.log.DebugContext(ctx, "states of jobs changed", "count", rolled.Changed)
			}
			if e.rolledTo = rolled.Last; !rolled.More {
				e.rolledTo = 0
				return nil
			}
		}
		return nil
	})
}

// rezone works the fire times out again that another time zone database may have given, as when a
// fleet has been brought to another version. Fires go on meanwhile: for each that moves, it is
// a compare-and-swap against its claim.
func (e *Engine) rescheduleForZones(ctx context.Context, _ time.Time) error {
	changed, err := e.store.ZonesChanged(ctx)
	if err != nil || !changed {
		return err
	}
	return e.locked(ctx, []string{dispatcher.LockZones}, func(ctx context.Context, _ []string) error {
		moved := 0
		for after, more := int64(0), true; more; {
			done, err := e.store.RescheduleForZones(ctx, after, rollUpPage, time.Time{})
			if err != nil {
				return err
			}
			moved, after, more = moved+done.Moved, done.Last, done.More
		}
		e.log.InfoContext(ctx, "fire times worked out with this program's time zones", "node", e.fleet.id().String(), "moved", moved)
		return nil
	})
}

// tendApps settles the misfires of the apps that have any.
func (e *Engine) tendApps(ctx context.Context, now time.Time) error {
	if !e.fleet.active() {
		return nil
	}
	apps, err := e.store.OverdueApps(ctx, e.opts.Apps, e.opts.Labels, now)
	if err != nil || len(apps) == 0 {
		return err
	}
	names, byName := make([]string, len(apps)), make(map[string]string, len(apps))
	for i, app := range apps {
		names[i] = dispatcher.LockApp(app)
		byName[names[i]] = app
	}
	return e.locked(ctx, names, func(ctx context.Context, won []string) error {
		mine := make([]string, len(won))
		for i, name := range won {
			mine[i] = byName[name]
		}
		return e.settle(ctx, mine, now)
	})
}
