package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// backfilled notes that runs of backfills have ended.
func (e *Engine) backfilled(records []dispatcher.Record) {
	if slices.ContainsFunc(records, func(r dispatcher.Record) bool {
		return r.Kind == run.KindBackfill && r.Shard == 0 && r.Next == nil
	}) {
		wake(e.wakeBackfill)
	}
}

// backfillLoop feeds the backfills until ctx ends. A node makes a step when it hears of a new backfill, when it has recorded the end
// of a run of one, and when the pace of one allows another run.
func (e *Engine) backfillLoop(ctx context.Context) {
	e.stepLoop(ctx, "backfill", e.wakeBackfill, e.store.OpenBackfills, e.feedBackfill)
}

// feedBackfill moves a backfill on until its runs or its pace keep it, or the others have their turn.
func (e *Engine) feedBackfill(ctx context.Context, id int64, now time.Time) (time.Time, error) {
	for range stepsInTurn {
		turned(ctx)
		fed, err := e.store.FeedBackfill(ctx, id, time.Time{})
		if err != nil {
			return cmp.Or(fed.NextAt, now.Add(time.Second)), err
		}
		failpoint.Hit(failpoint.AfterBackfill)
		if fed.Queued > 0 {
			wake(e.wakeAdopt)
		}
		if !fed.More {
			return fed.NextAt, nil
		}
	}
	return now, nil
}
