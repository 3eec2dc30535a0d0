package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

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
