// Package retention removes history past the retention of its app, in small steps under a lock.
package retention

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// Limits of the clean-up: rows deleted by one call in a step, rows deleted by one transaction, and jobs examined at
// once. Claims of other nodes go in between. With a single writer they wait for a transaction, so it is short, and the
// next one leaves them some time.
const (
	purgeMost  = 10_000
	purgeRows  = 500
	singleRows = 100
	singleRest = 20 * time.Millisecond
	purgeJobs  = 2000
)

// CleanUp is the holder of the lock of the clean-up.
type CleanUp struct {
	*Store
	conn *sql.DB
	lock dispatcher.Lock
	Now  time.Time // zero: the database's clock
}

// CleanUpTime is how long a call may clean up. A node that froze for longer has lost the lock, and its transactions
// write nothing.
const CleanUpTime = time.Minute

// Cleaner takes the lock; nil: another node has it.
func (s *Store) Cleaner(ctx context.Context, node run.NodeID, now time.Time) (*CleanUp, error) {
	of := dispatcher.LockRequest{Node: node, Names: []string{dispatcher.LockHistory}, AtMost: CleanUpTime, Now: now}
	locks, err := s.dispatch.Lock(ctx, of)
	if err != nil || len(locks) == 0 {
		return nil, err
	}
	return &CleanUp{Store: s, conn: s.db.Write, lock: locks[0], Now: now}, nil
}

// End releases the lock.
func (c *CleanUp) End(ctx context.Context) error {
	return c.dispatch.Unlock(ctx, []dispatcher.Lock{c.lock})
}

// tryTransaction runs do in a transaction that gives up when it has to wait for another. done is false if it gave up,
// or if the lock is lost; then nothing was changed.
func (c *CleanUp) tryTransaction(ctx context.Context, do func(context.Context, *sql.Tx) error) (done bool, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	tx, err := c.conn.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	err = c.db.LimitLockWait(ctx, tx)
	held := false
	if err == nil {
		held, err = dispatch.Holds(ctx, tx, c.db.Flavor, c.lock, c.Now)
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
	if err != nil && c.db.Transient(err) {
		return false, nil
	}
	return err == nil, err
}

// briefly is the time limit of a clean-up transaction that changes tables, if no setting limits its wait for locks:
// claims wait behind it.
const briefly = time.Second

// tryBriefly is tryTransaction for changes of tables.
func (c *CleanUp) tryBriefly(ctx context.Context, do func(context.Context, *sql.Tx) error) (done bool, err error) {
	if c.db.LimitsLockWait() {
		return c.tryTransaction(ctx, do)
	}
	limited, cancel := context.WithTimeout(ctx, briefly)
	defer cancel()
	done, err = c.tryTransaction(limited, do)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return done, err
}

// FirstDays makes the first partitions of a database, so that no day begins in the default one. If several nodes start
// at the same time, one does this.
func (s *Store) FirstDays(ctx context.Context) error {
	c, err := s.Cleaner(ctx, run.NodeID(rand.Int64()), time.Time{})
	if err != nil || c == nil {
		return err
	}
	now, err := s.db.Now(ctx, s.db.Read)
	if err == nil {
		_, err = s.db.RotatePartitions(ctx, s.db.Write, c.tryBriefly, now.UnixMilli(), 0)
	}
	return errors.Join(err, c.End(ctx))
}

// Purge removes history past its retention, a bounded part at a time.
func (s *Store) Purge(ctx context.Context, node run.NodeID, now time.Time) (dispatcher.Purged, error) {
	left, err := s.dispatch.UnfoldForgotten(ctx, now)
	var c *CleanUp
	if err == nil && !left {
		c, err = s.Cleaner(ctx, node, now)
	}
	if err != nil {
		return dispatcher.Purged{}, fmt.Errorf("purge history: %w", err)
	}
	if c == nil { // others have the lock, or an old claim
		return dispatcher.Purged{Busy: true}, nil
	}
	t := s.PurgeWith(c)
	if err := errors.Join(t.Run(ctx, now), c.End(ctx)); err != nil {
		return t.Result, fmt.Errorf("purge history: %w", err)
	}
	return t.Result, nil
}

// PurgeWith returns a Purge for the holder of the lock.
func (s *Store) PurgeWith(c *CleanUp) *Purge {
	t := &Purge{CleanUp: *c, size: purgeRows}
	if s.db.Single() {
		t.size = singleRows
	}
	return t
}

// Purge is one call of Store.Purge.
type Purge struct {
	CleanUp
	Result dispatcher.Purged
	size   int // of a batch
	// first returns the row of a batch of one; left is the row that was last set aside.
	first func(context.Context) (row dispatch.AsideRow, found bool, err error)
	left  string
	share
}

// share is the progress of a step in a call.
type share struct {
	batches int
	used    bool // a later call has more to do
	stopped bool // another transaction was in the way
}

// over reports whether the step ends, for this call.
func (s *share) over() bool { return s.used || s.stopped }

// keeping is how long the history of an app is kept, in milliseconds.
type keeping struct {
	app, kept int64
	from      int64 // earlier history was removed
	deleted   bool
	sweep
}

// Run takes the steps of a call. None of them reads more than it removes, plus a few rows for each app or job with
// something to remove. Each has its own share, and a failed step does not stop the others.
func (t *Purge) Run(ctx context.Context, now time.Time) error {
	apps, present, err := t.retentions(ctx, now)
	if err != nil {
		return err
	}
	var errs []error
	longest, err := t.longest(ctx, apps)
	if err != nil {
		longest = apps[0].kept // too long is harmless
		errs = append(errs, err)
	}
	before := db.Day(present - longest)
	audited := db.Day(present - t.auditKept.Milliseconds())
	type step struct {
		name string
		do   func() error
	}
	remove := func(name string, before int64, rows removal) step {
		return step{"remove " + name, func() error { return t.repeat(ctx, t.size, before, rows) }}
	}
	steps := []step{
		{"rotate partitions", func() (err error) {
			t.Result.Partitions, err = t.db.RotatePartitions(ctx, t.conn, t.tryBriefly, present, before)
			return err
		}},
		remove("what no app keeps", before, t.removeOldest),
		remove("misfires", before, t.removeRows(expiredMisfires, &t.Result.Misfires)),
		{"remove what single apps do not keep", func() error { return t.sweepApps(ctx, apps, longest, present) }},
		remove("events of alerts", present, t.removeRows(alertEvents, nil)),
		remove("entries of the audit log", audited, t.removeRows(auditEntries, &t.Result.AuditEntries)),
		remove("ended sessions", present, t.removeRows(endedSessions, nil)),
		remove("entries of the switches of apps", min(before, audited), t.removeRows(pastSwitches, &t.Result.AuditEntries)),
	}
	for _, rows := range endedRows {
		steps = append(steps, remove(rows.table, before, t.removeRows(rows, nil)))
	}
	steps = append(steps,
		// The last day before is dropped a day later, and may have many runs of the job.
		remove("triggers", before-db.DayMillis, t.removeTriggers),
		step{"remove deleted jobs", func() error { return t.repeat(ctx, t.size/jobShare, before, t.removeDeleted) }},
		remove("deleted alerts", before, t.removeRows(deletedAlerts, nil)),
		step{"delete completed jobs", func() error { return t.removeExpired(ctx, present) }},
	)
	for _, step := range steps {
		if ctx.Err() != nil {
			break
		}
		t.share = share{}
		if err := step.do(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
		}
		t.Result.More = t.Result.More || t.used
	}
	return errors.Join(errs...)
}

// retentions returns the retentions of all apps that may have history, longest first, and now.
func (t *Purge) retentions(ctx context.Context, now time.Time) (apps []keeping, present int64, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if now.IsZero() {
		if now, err = t.db.Now(ctx, t.db.Read); err != nil {
			return nil, 0, err
		}
	}
	const list = `SELECT a.id, a.retention, a.history_from, a.deleted_at IS NOT NULL, a.sweep_from, a.sweep_to, a.sweep_after FROM apps AS a
		WHERE a.deleted_at IS NULL OR EXISTS (SELECT 1 FROM jobs AS j WHERE j.app_id = a.id) ORDER BY a.retention DESC, a.id`
	apps, err = db.ReadRows(ctx, t.db.Read, func(r *keeping) []any {
		return []any{&r.app, &r.kept, &r.from, &r.deleted, &r.sweep.from, &r.sweep.to, &r.sweep.after}
	}, list)
	return apps, now.UnixMilli(), err
}

// longest returns the longest retention. A deleted app counts while it has history.
func (t *Purge) longest(ctx context.Context, apps []keeping) (int64, error) {
	// $1 app
	const history = `SELECT 1 FROM jobs AS j WHERE j.app_id = $1 AND (EXISTS (SELECT 1 FROM runs AS r WHERE r.job_id = j.id)
		OR EXISTS (SELECT 1 FROM live_runs AS r WHERE r.job_id = j.id)
		OR EXISTS (SELECT 1 FROM misfires AS m WHERE m.job_id = j.id)) LIMIT 1`
	for _, app := range apps {
		found := !app.deleted
		if app.deleted {
			var err error
			if _, found, err = db.First(ctx, t.db.Read, db.ScanInt, history, app.app); err != nil {
				return 0, fmt.Errorf("look for history of deleted apps: %w", err)
			}
		}
		if found {
			return app.kept, nil
		}
	}
	return input.DefaultRetention.Std().Milliseconds(), nil
}

// removal removes at most size rows from before an instant, and returns how many.
type removal func(ctx context.Context, tx *sql.Tx, before int64, size int) (removed int, err error)

// repeat calls batch, each time in its own transaction, until it removes fewer rows than it may, another transaction is
// in the way, or the step has had its share. A batch that fails because of stored data is halved until the row that
// cannot be removed is alone and set aside.
func (t *Purge) repeat(ctx context.Context, size int, before int64, batch removal) error {
	most := size
	for removed := size; removed >= size && !t.over(); {
		result := t.Result
		t.first = nil
		done, err := t.tryTransaction(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			removed, err = batch(ctx, tx, before, size)
			return err
		})
		if t.dispatch.OfStored(ctx, err) {
			if t.Result = result; size > 1 {
				size /= 2
			} else if left, wrong := t.leave(ctx, err); wrong != nil || !left {
				return errors.Join(err, wrong)
			} else {
				size = most
			}
			removed = size
			continue
		}
		if err != nil || !done {
			t.Result, t.stopped = result, true
			return err
		}
		if removed > 0 {
			t.batches++
			t.used = t.batches == purgeMost/t.size
		}
		// With a single writer a claim waits for a batch, followed by its record.
		if t.db.Single() && removed >= size && !t.used {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(singleRest):
			}
		}
	}
	return nil
}

// Store removes expired history.
type Store struct {
	dispatch    *dispatch.Store
	definitions *definitions.Store
	db          *db.DB
	auditKept   time.Duration // the retention of the audit log
}

// New returns a store over the database d, which keeps entries of the audit log for auditKept.
func New(dispatch *dispatch.Store, definitions *definitions.Store, d *db.DB, auditKept time.Duration) *Store {
	return &Store{dispatch: dispatch, definitions: definitions, db: d, auditKept: auditKept}
}
