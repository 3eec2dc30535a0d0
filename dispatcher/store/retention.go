package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Bounds of the clean-up: what one call deletes, what one transaction, and how many jobs are looked
// through at once. Claims of other nodes go between. Where there is one writer they wait for a
// transaction, so it is short, and the next leaves them some time.
const (
	purgeMost  = 10_000
	purgeRows  = 500
	singleRows = 100
	singleRest = 20 * time.Millisecond
	purgeJobs  = 200
)

// cleaner is who has the lock of the clean-up.
type cleaner struct {
	*store
	db   *sql.DB
	lock dispatcher.Lock
	now  time.Time // zero: the database's clock
}

// cleanUpTime is how long a call may clean up. Who froze beyond it finds that it writes nothing
// any more.
const cleanUpTime = time.Minute

// cleaner takes the lock; nil: another node has it.
func (s *store) cleaner(ctx context.Context, node dispatcher.NodeID, now time.Time) (*cleaner, error) {
	locks, err := s.Lock(ctx, dispatcher.LockRequest{Node: node, Names: []string{dispatcher.LockHistory}, AtMost: cleanUpTime, Now: now})
	if err != nil || len(locks) == 0 {
		return nil, err
	}
	return &cleaner{store: s, db: s.write, lock: locks[0], now: now}, nil
}

// end gives the lock back.
func (c *cleaner) end(ctx context.Context) error {
	return c.Unlock(ctx, []dispatcher.Lock{c.lock})
}

// tryTransaction runs do in a transaction that gives up when it has to wait for another. done is
// false if it gave up, or if the lock is lost; then nothing was changed.
func (c *cleaner) tryTransaction(ctx context.Context, do func(context.Context, *sql.Tx) error) (done bool, err error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	err = c.limitLockWait(ctx, tx)
	held := false
	if err == nil {
		held, err = holds(ctx, tx, c.flavor, c.lock, c.now)
	}
	if err == nil && !held {
		return false, nil
	}
	if err == nil {
		err = do(ctx, tx)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil && c.transient(err) {
		return false, nil
	}
	return err == nil, err
}

// Purge removes what is older than its retention, a bounded part of it at a time.
func (s *store) Purge(ctx context.Context, node dispatcher.NodeID, now time.Time) (dispatcher.Purged, error) {
	c, err := s.cleaner(ctx, node, now)
	if err != nil {
		return dispatcher.Purged{}, fmt.Errorf("purge history: %w", err)
	}
	if c == nil {
		return dispatcher.Purged{Busy: true}, nil
	}
	t := purge{cleaner: *c, size: purgeRows}
	if s.single() {
		t.size = singleRows
	}
	if err := errors.Join(t.run(ctx, now), c.end(ctx)); err != nil {
		return t.result, fmt.Errorf("purge history: %w", err)
	}
	return t.result, nil
}

// purge is one call of Purge.
type purge struct {
	cleaner
	result  dispatcher.Purged
	size    int // of a batch
	batches int
	stopped bool // somebody was in the way
}

// retention is how long the history of an app is kept, in milliseconds.
type retention struct{ app, kept int64 }

// run goes from the cheap to the dear: days as a whole, then from the oldest row on what is
// beyond every retention, then job by job the apps that keep less than others.
func (t *purge) run(ctx context.Context, now time.Time) error {
	apps, present, err := t.retentions(ctx, now)
	if err != nil {
		return err
	}
	longest := dispatcher.DefaultRetention.Std().Milliseconds()
	if len(apps) > 0 {
		longest = apps[0].kept
	}
	before := day(present - longest)
	var done bool
	if t.result.Partitions, done, err = t.rotatePartitions(ctx, t.cleaner, present, before); err != nil {
		return err
	}
	// A day that only waits to be dropped is not worth deleting row by row.
	if done {
		err = t.repeat(ctx, func(ctx context.Context, tx *sql.Tx) (int, error) { return t.removeOldest(ctx, tx, before) })
	}
	if err == nil {
		err = t.repeat(ctx, func(ctx context.Context, tx *sql.Tx) (int, error) { return t.removeRevisions(ctx, tx, before) })
	}
	if err == nil {
		audited := min(before, day(present-dispatcher.AuditLogKept.Milliseconds()))
		err = t.repeat(ctx, func(ctx context.Context, tx *sql.Tx) (int, error) { return t.purgeAuditLog(ctx, tx, audited) })
	}
	if err == nil {
		err = t.repeat(ctx, func(ctx context.Context, tx *sql.Tx) (int, error) { return t.removeDeleted(ctx, tx, before) })
	}
	for _, app := range apps {
		if err == nil && app.kept < longest {
			err = t.sweep(ctx, app.app, day(present-app.kept))
		}
	}
	return errors.Join(err, t.removeExpired(ctx, present))
}

// retentions returns those of all apps, also of deleted ones, longest first, and now.
func (t *purge) retentions(ctx context.Context, now time.Time) (apps []retention, present int64, err error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	if now.IsZero() {
		if now, err = t.clock(ctx, t.read); err != nil {
			return nil, 0, err
		}
	}
	apps, err = collect(ctx, t.read, func(row scanner) (r retention, err error) {
		err = row.Scan(&r.app, &r.kept)
		return r, err
	}, `SELECT id, retention FROM apps ORDER BY retention DESC, id`)
	return apps, now.UnixMilli(), err
}

// repeat calls batch, each time in a transaction of its own, until it removes less than it may,
// somebody is in the way, or the call has done its share.
func (t *purge) repeat(ctx context.Context, batch func(context.Context, *sql.Tx) (removed int, err error)) error {
	for removed := t.size; removed >= t.size && !t.stopped && !t.result.More; {
		before := t.result
		done, err := t.tryTransaction(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			removed, err = batch(ctx, tx)
			return err
		})
		if err != nil || !done {
			t.result, t.stopped = before, true
			return err
		}
		if removed > 0 {
			t.batches++
			t.result.More = t.batches == purgeMost/t.size
		}
		// What waits for a batch where there is one writer is a claim, and its record comes after.
		if t.single() && removed >= t.size && !t.result.More {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(singleRest):
			}
		}
	}
	return nil
}
