package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
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

// The statements of Purge. Expired means: before $1, the start of a UTC day.
// awaited are the runs whose ends fixed delays have yet to be counted from.
const awaited = `SELECT t.prev_fire_time AS at, t.id FROM triggers AS t WHERE t.delayed AND t.next_fire_time IS NULL
	AND t.state = 'waiting' AND t.enabled AND t.deleted_at IS NULL AND t.prev_fire_time IS NOT NULL`

// What was scheduled long ago and has ended only now, as a catch-up, is kept from its end on.
const expiredRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind FROM runs AS r WHERE NOT r.live AND r.scheduled_at < $1
	AND coalesce(r.ended_at, r.scheduled_at) < $1 AND (r.scheduled_at, r.trigger_id) NOT IN (` + awaited + `)`

const expiredMisfires = `SELECT m.from_at, m.trigger_id FROM misfires AS m WHERE m.from_at < $1 AND m.to_at < $1 AND m.decided_at < $1`

// $2 limit
const oldestRuns = ` ORDER BY r.scheduled_at, r.trigger_id, r.kind LIMIT $2`

const oldestMisfires = ` ORDER BY m.from_at, m.trigger_id LIMIT $2`

const deleteMisfires = `DELETE FROM misfires WHERE (from_at, trigger_id) IN (`

// agedJobs are those of the batch that have history before $1. The lowest of a job is one look
// into an index, in whatever way the planner could go wrong, and days from $1 on are none of it.
const agedJobs = ` SELECT b.id FROM b WHERE (SELECT min(r.scheduled_at) FROM runs AS r WHERE r.job_id = b.id AND NOT r.live AND r.scheduled_at < $1) IS NOT NULL
	OR (SELECT min(m.from_at) FROM misfires AS m WHERE m.job_id = b.id) < $1`

// A run of the batch may have been retried meanwhile.
const deleteRuns = ` DELETE FROM runs AS r WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT scheduled_at, trigger_id, kind FROM b)
	AND NOT r.live` + within + ` RETURNING scheduled_at, trigger_id, kind`

const deleteAttempts = ` DELETE FROM attempts AS r` + ofRuns

const deleteResponses = ` DELETE FROM responses AS r` + ofRuns

const ofRuns = ` WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT scheduled_at, trigger_id, kind FROM b)` + within

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

// aside runs do in a transaction that gives way to all others. done is false if it had to, or if
// the lock is lost, and nothing was changed.
func (c *cleaner) aside(ctx context.Context, do func(context.Context, *sql.Tx) error) (done bool, err error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	err = c.giveWay(ctx, tx)
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

func (s *store) Purge(ctx context.Context, node dispatcher.NodeID, now time.Time) (dispatcher.Purged, error) {
	c, err := s.cleaner(ctx, node, now)
	if err != nil {
		return dispatcher.Purged{}, fmt.Errorf("tidy history: %w", err)
	}
	if c == nil {
		return dispatcher.Purged{Busy: true}, nil
	}
	t := purge{cleaner: *c, size: purgeRows}
	if s.single() {
		t.size = singleRows
	}
	if err := errors.Join(t.run(ctx, now), c.end(ctx)); err != nil {
		return t.result, fmt.Errorf("tidy history: %w", err)
	}
	return t.result, nil
}

// tidying is one call of Purge.
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
	if t.result.Partitions, done, err = t.turnDays(ctx, t.cleaner, present, before); err != nil {
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

// retentions returns those of all apps, also of deleted ones, longest first, and the present.
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
		done, err := t.aside(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
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

// removeOldest removes what is older than every retention, of whatever app.
func (t *purge) removeOldest(ctx context.Context, tx *sql.Tx, before int64) (int, error) {
	keys, err := collect(ctx, tx, scanKey, expiredRuns+oldestRuns, before, t.size)
	if err != nil {
		return 0, err
	}
	if err := t.removeRuns(ctx, tx, keys); err != nil {
		return 0, err
	}
	misfires, err := t.removeMisfires(ctx, tx, expiredMisfires+oldestMisfires, before, t.size)
	return max(len(keys), misfires), err
}

// sweep removes the expired history of one app, some of its jobs at a time.
func (t *purge) sweep(ctx context.Context, app, before int64) error {
	for last, page := "", purgeJobs; page == purgeJobs && !t.stopped && !t.result.More; {
		// $1 app, $2 last name of the page before, $3 limit
		const jobs = `SELECT id, name FROM jobs WHERE app_id = $1 AND name > $2 ORDER BY name LIMIT $3`
		listing, cancel := bound(ctx, otherTimeout)
		ids, err := collect(listing, t.read, func(row scanner) (id int64, err error) {
			err = row.Scan(&id, &last)
			return id, err
		}, jobs, app, last, purgeJobs)
		cancel()
		if err != nil {
			return err
		}
		page = len(ids)
		aged, err := t.aged(ctx, ids, before)
		if err == nil {
			err = t.repeat(ctx, func(ctx context.Context, tx *sql.Tx) (removed int, err error) {
				removed, aged, err = t.removeOf(ctx, tx, aged, before)
				return removed, err
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// aged returns those of some jobs that have history before an instant. It looks into as many
// indexes as there are jobs and days, so it is asked once and not by each batch.
func (t *purge) aged(ctx context.Context, jobs []int64, before int64) (aged []int64, err error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	done, err := t.aside(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		// $1 before; from $2 on: idColumns
		aged, err = collect(ctx, tx, scanInt, t.rows(0, 2, "", idColumns...)+agedJobs, append([]any{before}, t.batch(jobs)...)...)
		return err
	})
	t.stopped = t.stopped || !done
	return aged, err
}

// removeOf removes expired history of the first of some jobs, and returns those that may have more.
func (t *purge) removeOf(ctx context.Context, tx *sql.Tx, jobs []int64, before int64) (removed int, left []int64, err error) {
	var keys []expiredKey
	misfires := 0
	for left = jobs; len(left) > 0; left = left[1:] {
		// $3 job
		of, err := collect(ctx, tx, scanKey, expiredRuns+` AND r.job_id = $3`+oldestRuns, before, t.size-len(keys), left[0])
		if err != nil {
			return 0, left, err
		}
		keys = append(keys, of...)
		n, err := t.removeMisfires(ctx, tx, expiredMisfires+` AND m.job_id = $3`+oldestMisfires, before, t.size-misfires, left[0])
		if err != nil {
			return 0, left, err
		}
		misfires += n
		if len(keys) >= t.size || misfires >= t.size {
			break
		}
	}
	return max(len(keys), misfires), left, t.removeRuns(ctx, tx, keys)
}

// expiredKey is the key of a run that is to go.
type expiredKey struct {
	at, trigger int64
	kind        int32
}

func scanKey(row scanner) (k expiredKey, err error) {
	err = row.Scan(&k.at, &k.trigger, &k.kind)
	return k, err
}

// removeRuns deletes runs that are not live, with their attempts and responses.
func (t *purge) removeRuns(ctx context.Context, tx *sql.Tx, keys []expiredKey) error {
	if len(keys) == 0 {
		return nil
	}
	removed, err := collect(ctx, tx, scanKey, t.rows(0, 3, "", keyColumns[:3]...)+deleteRuns, t.expired(keys)...)
	if err != nil || len(removed) == 0 {
		return err
	}
	t.result.Runs += len(removed)
	for _, statement := range []string{deleteAttempts, deleteResponses} {
		if _, err := tx.ExecContext(ctx, t.rows(0, 3, "", keyColumns[:3]...)+statement, t.expired(removed)...); err != nil {
			return err
		}
	}
	return err
}

// expired returns the batch of keys, which it puts in order.
func (t *purge) expired(keys []expiredKey) []any {
	slices.SortFunc(keys, func(a, b expiredKey) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.trigger, b.trigger)) })
	var at, trigger []int64
	var kind []int32
	for _, k := range keys {
		at, trigger, kind = append(at, k.at), append(trigger, k.trigger), append(kind, k.kind)
	}
	return t.dated(at, trigger, kind)
}

// removeMisfires deletes the misfires that a query of their keys returns.
func (t *purge) removeMisfires(ctx context.Context, tx *sql.Tx, query string, args ...any) (int, error) {
	result, err := tx.ExecContext(ctx, deleteMisfires+query+`)`, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	t.result.Misfires += int(n)
	return int(n), err
}
