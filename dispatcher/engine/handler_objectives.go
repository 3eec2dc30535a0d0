package engine

import (
	"context"
	"time"
)

// A round counts the fires of at most so many pages of jobs, each of so many jobs. Jobs whose objective is new, or has
// another bound, are counted from the beginning of the window on, an hour in each step.
const (
	objectivePages = 20
	objectivePage  = 50
)

// rollUpObjectives counts the fires of jobs with an objective. A round begins where the one before ended, on whichever
// node.
func (e *Engine) rollUpObjectives(ctx context.Context) error {
	for range objectivePages {
		turned(ctx)
		rolled, err := e.store.RollUpObjectives(ctx, objectivePage, time.Time{})
		if err != nil || !rolled.More {
			return err
		}
	}
	return nil
}
