package engine

import (
	"context"
	"errors"
	"time"
)

// A bulk action moves on in steps of some jobs or runs, each of which is one transaction of the store. Any node may make a step
// at any time, so the loop needs no lock: the nodes that hear of a new action begin it, and what one of them does moves the
// others on. In each interval some nodes take their turn, for what a node that died left.

// turnBulk is how many nodes take turns.
const turnBulk = 3

// stepsOfBulk is how many steps of one bulk action follow each other before others have their turn.
const stepsOfBulk = 20

// bulkLoop moves bulk actions on until ctx ends.
func (e *Engine) bulkLoop(ctx context.Context) {
	mine := func(now time.Time) bool {
		turn, _ := e.fleet.turn(now, e.opts.Handler, 0, turnBulk)
		return turn
	}
	var again *time.Timer
	e.everyTurn(ctx, "bulk", e.opts.Handler, e.wakeBulk, mine, func(ctx context.Context, _ time.Time) error {
		waits, err := e.moveBulkActions(ctx)
		if again != nil {
			again.Stop()
		}
		if waits > 0 {
			again = time.AfterFunc(waits, func() { wake(e.wakeBulk) })
		}
		return err
	})
	if again != nil {
		again.Stop()
	}
}

// moveBulkActions moves all bulk actions on, and returns after how long one of them may go on; 0: none waits.
func (e *Engine) moveBulkActions(ctx context.Context) (waits time.Duration, err error) {
	ids, err := e.store.OpenBulkActions(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, id := range ids {
		wait, err := e.moveBulkAction(ctx, id)
		if err != nil {
			errs = append(errs, err) // it is in the way of no other
		}
		if wait > 0 && (waits == 0 || wait < waits) {
			waits = wait
		}
	}
	return waits, errors.Join(errs...)
}

// moveBulkAction moves a bulk action on until a quota keeps it, or the others have their turn.
func (e *Engine) moveBulkAction(ctx context.Context, id int64) (time.Duration, error) {
	for range stepsOfBulk {
		turned(ctx)
		step, err := e.store.StepBulkAction(ctx, id, time.Time{})
		if err != nil {
			return time.Second, err
		}
		if step.Adopt {
			wake(e.wakeAdopt)
		}
		if !step.More {
			return step.Waits, nil
		}
	}
	return time.Millisecond, nil
}
