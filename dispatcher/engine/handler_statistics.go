package engine

import (
	"context"
	"time"
)

// statisticsPortions bounds what a round counts for statistics. A node that finds the portions of a week counts them in some
// minutes.
const statisticsPortions = 20

// rollUpStatistics counts the runs of each day. A round begins where the one before ended, on whichever node.
func (e *Engine) rollUpStatistics(ctx context.Context) error {
	for range statisticsPortions {
		turned(ctx)
		rolled, err := e.store.RollUpStatistics(ctx, time.Time{})
		if err != nil || !rolled.More {
			return err
		}
	}
	return nil
}
