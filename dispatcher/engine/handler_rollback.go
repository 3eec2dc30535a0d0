package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// rollbackPage is how many triggers one statement skips.
const rollbackPage = 1000

// handleRollback reports a rollback of the database that no operator has resolved, and carries out a
// skip. Paused nodes do it, too, because a rollback pauses all nodes.
func (e *Engine) handleRollback(ctx context.Context, _ time.Time) error {
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
			done, err := e.store.SkipRolledBack(ctx, after, rollbackPage, time.Time{})
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
