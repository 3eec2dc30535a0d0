package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// A backfill moves on in steps, each one transaction of the store: it counts the runs that have ended and queues the next
// ones. Any node may make a step at any time, so the loop needs no lock: a node makes one when it hears of a new backfill, when
// it has recorded the end of a run of one, and when the pace of one allows another run. In each interval some nodes take their
// turn at all of them, for what a node that died left.

// turnBackfill is how many nodes take turns.
const turnBackfill = 3

// stepsInTurn is how many steps of one backfill follow each other before others have their turn.
const stepsInTurn = 20

// backfilled notes that runs of backfills have ended.
func (e *Engine) backfilled(records []dispatcher.Record) {
	if slices.ContainsFunc(records, func(r dispatcher.Record) bool {
		return r.Kind == dispatcher.KindBackfill && r.Shard == 0 && r.Next == nil
	}) {
		wake(e.wakeBackfill)
	}
}

// backfillLoop feeds the backfills until ctx ends.
func (e *Engine) backfillLoop(ctx context.Context) {
	mine := func(now time.Time) bool {
		turn, _ := e.fleet.turn(now, e.opts.Handler, 0, turnBackfill)
		return turn
	}
	var paced *time.Timer
	e.everyTurn(ctx, "backfill", e.opts.Handler, e.wakeBackfill, mine, func(ctx context.Context, now time.Time) error {
		next, err := e.feedBackfills(ctx, now)
		if paced != nil {
			paced.Stop()
		}
		if !next.IsZero() {
			paced = time.AfterFunc(e.clock.until(next), func() { wake(e.wakeBackfill) })
		}
		return err
	})
	if paced != nil {
		paced.Stop()
	}
}

// feedBackfills moves all backfills on, and returns when the pace of one of them lets it go on; zero: when runs end.
func (e *Engine) feedBackfills(ctx context.Context, now time.Time) (next time.Time, err error) {
	ids, err := e.store.OpenBackfills(ctx)
	if err != nil {
		return next, err
	}
	var errs []error
	for _, id := range ids {
		at, err := e.feedBackfill(ctx, id, now)
		if err != nil {
			errs = append(errs, err) // it is in the way of no other
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, errors.Join(errs...)
}

// feedBackfill moves a backfill on until its runs or its pace keep it, or the others have their turn.
func (e *Engine) feedBackfill(ctx context.Context, id int64, now time.Time) (time.Time, error) {
	for range stepsInTurn {
		turned(ctx)
		fed, err := e.store.FeedBackfill(ctx, id, time.Time{})
		if err != nil {
			return now.Add(time.Second), err
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
