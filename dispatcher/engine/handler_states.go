package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// A round rolls up the states of at most some thousand jobs, so that its cost is bounded however many
// jobs there are.
const (
	rollUpPage  = 1000
	rollUpPages = 5
)

// rollUpStates keeps the states of jobs up to date, from where the last round ended.
func (e *Engine) rollUpStates(ctx context.Context, _ time.Time) error {
	return e.withLock(ctx, dispatcher.LockStates, func(ctx context.Context) error {
		for range rollUpPages {
			rolled, err := e.store.RollUp(ctx, e.rolledTo, rollUpPage)
			if err != nil {
				return err
			}
			if rolled.Changed > 0 {
				e.log.DebugContext(ctx, "job states changed", "count", rolled.Changed)
			}
			if e.rolledTo = rolled.Last; !rolled.More {
				e.rolledTo = 0
				return nil
			}
		}
		return nil
	})
}
