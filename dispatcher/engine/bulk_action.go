package engine

import (
	"cmp"
	"context"
	"time"
)

// bulkLoop moves bulk actions on until ctx ends: the nodes that hear of a new one begin it, and what one of them does moves the
// others on.
func (e *Engine) bulkLoop(ctx context.Context) {
	e.stepLoop(ctx, "bulk", e.wakeBulk, e.store.OpenBulkActions, e.moveBulkAction)
}

// moveBulkAction moves a bulk action on until a quota keeps it, or the others have their turn.
func (e *Engine) moveBulkAction(ctx context.Context, id int64, now time.Time) (time.Time, error) {
	for range stepsInTurn {
		turned(ctx)
		step, err := e.store.StepBulkAction(ctx, id, time.Time{})
		if err != nil {
			return cmp.Or(step.TryAt, now.Add(time.Second)), err
		}
		if step.Adopt {
			wake(e.wakeAdopt)
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
