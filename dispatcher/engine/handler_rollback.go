package engine

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// rollbackPage is how many triggers a step of skipping reads.
const rollbackPage = 1000

// tendRollback reminds of a rollback that nobody has decided about, and carries out what was chosen.
// That is done by paused nodes, too, for while it lasts all of them are.
func (e *Engine) tendRollback(ctx context.Context, _ time.Time) error {
	rollback, err := e.store.Rollback(ctx)
	if err != nil {
		return err
	}
	e.metrics.rolledBack(rollback != nil)
	switch {
	case rollback == nil:
		return nil
	case rollback.Choice != dispatcher.RollbackSkip:
		e.log.ErrorContext(ctx, "the database lost commits; nodes are paused until an operator chooses: carillon rollback skip or replay",
			"node", e.fleet.id().String(), "at", rollback.At, "reason", rollback.Reason)
		return nil
	}
	return e.locked(ctx, []string{dispatcher.LockRollback}, func(ctx context.Context, _ []string) error {
		triggers, runs := 0, 0
		for after, more := int64(0), true; more; {
			done, err := e.store.SkipRolledBack(ctx, after, rollbackPage, time.Time{})
			if err != nil {
				return err
			}
			triggers, runs, after, more = triggers+done.Triggers, runs+done.Runs, done.Last, done.More
		}
		e.metrics.rolledBack(false)
		e.log.InfoContext(ctx, "what a rollback had brought back was skipped", "node", e.fleet.id().String(), "triggers", triggers, "runs", runs)
		return nil
	})
}
