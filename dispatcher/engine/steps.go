package engine

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Backfills and bulk actions move on in steps, each of some transactions of the store. Any node may make a step at any time, so
// their loops need no lock: a node makes one when it hears that there is something to do, and in each interval some nodes take
// their turn at all of them, for what a node that died left.

// turnSteps is how many nodes take turns.
const turnSteps = 3

// stepsInTurn is how many steps of one object follow each other before others have their turn.
const stepsInTurn = 20

// stepLoop makes steps of all that is open until ctx ends. step returns when the object goes on; zero: once something wakes the loop.
func (e *Engine) stepLoop(
	ctx context.Context, name string, woken chan struct{}, open func(context.Context) ([]dispatcher.OpenSteps, error),
	step func(ctx context.Context, id int64, now time.Time) (time.Time, error),
) {
	mine := func(now time.Time) bool {
		turn, _ := e.fleet.turn(now, e.opts.Handler, 0, turnSteps)
		return turn
	}
	var again *time.Timer
	e.everyTurn(ctx, name, e.opts.Handler, woken, mine, func(ctx context.Context, now time.Time) error {
		all, err := open(ctx)
		if err != nil {
			return err
		}
		next, err := stepAll(ctx, all, now, step)
		if again != nil {
			again.Stop()
		}
		if !next.IsZero() {
			again = time.AfterFunc(e.clock.until(next), func() { wake(woken) })
		}
		return err
	})
	if again != nil {
		again.Stop()
	}
}

// stepAll makes steps of all that may go on, and returns when the next of them may; zero: none waits for a time. One that fails is
// in the way of no other.
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
