package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

// The statements of Purge. Expired means: before $1, the start of a UTC day. A run is kept from its end on, so one
// that was scheduled long ago and has ended only now, as a catch-up, is as young as its end.

// expiredRuns selects those of a table.
func expiredRuns(table string) string {
	return `SELECT r.scheduled_at, r.trigger_id, r.kind FROM ` + table + ` AS r WHERE r.scheduled_at < $1 AND r.ended_at < $1`
}

// endedLate is the predicate of runs_late: runs that have ended a day or more after their instant.
const endedLate = `r.ended_at - r.scheduled_at >= 86400000`

// expiredLate are those that ended late since a span was swept, of an app. In that span they are found by their jobs.
// $2 limit, $3 app, $4 start of the span
const expiredLate = `SELECT r.scheduled_at, r.trigger_id, r.kind FROM runs AS r JOIN jobs AS j ON j.id = r.job_id
	WHERE ` + endedLate + ` AND r.ended_at >= $4 AND r.ended_at < $1 AND r.scheduled_at < $4 AND j.app_id = $3
	ORDER BY r.ended_at LIMIT $2`

const expiredMisfires = `SELECT m.from_at, m.trigger_id FROM misfires AS m WHERE m.from_at < $1 AND m.to_at < $1 AND m.decided_at < $1`

// $2 limit
const oldestRuns = ` ORDER BY r.scheduled_at, r.trigger_id, r.kind LIMIT $2`

const oldestMisfires = ` ORDER BY m.from_at, m.trigger_id LIMIT $2`

const deleteMisfires = `DELETE FROM misfires WHERE (from_at, trigger_id) IN (`

// agedJobs are those of the batch that have history before $1, runs since $2. The lowest of a job is one look
// into an index, in whatever way the planner could go wrong, and days outside of the span are none of it.
const agedJobs = ` SELECT b.id FROM b WHERE (SELECT min(r.scheduled_at) FROM runs AS r WHERE r.job_id = b.id
	AND r.scheduled_at >= $2 AND r.scheduled_at < $1) IS NOT NULL
	OR (SELECT min(m.from_at) FROM misfires AS m WHERE m.job_id = b.id) < $1`

// A run of the batch may have been retried meanwhile, and is then no longer there.
const deleteRuns = ` DELETE FROM runs AS r` + ofExpired + ` RETURNING scheduled_at, trigger_id, kind`

const deleteAttempts = ` DELETE FROM attempts AS r` + ofExpired

const deleteResponses = ` DELETE FROM responses AS r` + ofExpired

// ofExpired are the rows of the batch's runs, in their days.
// $1 first day, $2 end of the last
const ofExpired = ` WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT scheduled_at, trigger_id, kind FROM b)
	AND r.scheduled_at >= $1 AND r.scheduled_at < $2`

// removeOldest removes what is older than every retention, of whatever app, where no partition is dropped with it.
func (t *purge) removeOldest(ctx context.Context, tx *sql.Tx, before int64, size int) (int, error) {
	keys, err := collect(ctx, tx, scanKey, expiredRuns(t.unpartitioned())+oldestRuns, before, size)
	if err != nil {
		return 0, err
	}
	if err := t.removeRuns(ctx, tx, keys); err != nil {
		return 0, err
	}
	misfires, err := t.removeMisfires(ctx, tx, expiredMisfires+oldestMisfires, before, size)
	return max(len(keys), misfires), err
}

// sweepOverlap is how far each sweep of an app goes back behind the one before. Sweeps go by days and may be late; a
// longer retention is noted to the millisecond.
const sweepOverlap = 2 * dayMillis

// sweepApps removes the expired history of apps that keep less than others. A call begins where the one before
// ended, so that no app waits for another that has much to remove, and one that fails stops no other.
func (t *purge) sweepApps(ctx context.Context, apps []retention, longest, present int64) error {
	aged := slices.DeleteFunc(slices.Clone(apps), func(a retention) bool {
		return a.kept >= longest || a.from >= day(present-a.kept)
	})
	if len(aged) == 0 {
		return nil
	}
	last, err := cursor(ctx, t.read, dispatcher.LockHistory)
	if err != nil {
		return err
	}
	slices.SortFunc(aged, func(a, b retention) int { return cmp.Compare(a.app, b.app) })
	next := slices.IndexFunc(aged, func(a retention) bool { return a.app > last })
	aged = append(aged[max(next, 0):], aged[:max(next, 0)]...)
	var errs []error
	reached := last
	for i, app := range aged {
		// What is older than every retention is removed elsewhere.
		app.from = max(app.from, present-longest)
		if err := t.sweep(ctx, app, day(present-app.kept)); err != nil {
			errs = append(errs, fmt.Errorf("app %d: %w", app.app, err))
		}
		reached = app.app
		if t.used {
			break
		}
		// Somebody was in the way of this one.
		t.stopped = false
		if ctx.Err() != nil || i+1 == len(aged) {
			break
		}
	}
	return errors.Join(append(errs, moveCursor(ctx, t.write, dispatcher.LockHistory, last, reached))...)
}

// sweepLooks is how many looks into the days of jobs a sweep takes in one call. A look takes some microseconds, and the
// first sweep of an app, or the one after its retention was shortened, takes one for each job and day.
const sweepLooks = 100_000

// sweep removes the expired history of one app, some of its jobs at a time. What one call does not get through, the
// next goes on with.
func (t *purge) sweep(ctx context.Context, app retention, before int64) error {
	if app.sweepTo == 0 || app.sweepTo > before { // none was under way, or the retention is longer now
		app.sweepTo, app.sweepAfter = before, ""
	}
	from := max(day(app.from)-sweepOverlap, 0)
	last, err := t.sweepJobs(ctx, app, from)
	if last != app.sweepAfter {
		err = errors.Join(err, t.noteSweep(ctx, app, last))
	}
	if err != nil || t.over() {
		return err
	}
	err = t.repeat(ctx, t.size, app.sweepTo, func(ctx context.Context, tx *sql.Tx, before int64, size int) (int, error) {
		keys, err := collect(ctx, tx, scanKey, expiredLate, before, size, app.app, from)
		if err != nil {
			return 0, err
		}
		return len(keys), t.removeRuns(ctx, tx, keys)
	})
	if err != nil || t.over() {
		return err
	}
	return t.swept(ctx, app)
}

// sweepJobs removes the expired history of an app's jobs since an instant, page by page, and returns the name of the
// last job of which nothing is left.
func (t *purge) sweepJobs(ctx context.Context, app retention, from int64) (last string, err error) {
	last = app.sweepAfter
	days, looks := int(max(app.sweepTo-from, dayMillis)/dayMillis), 0
	for page := purgeJobs; page == purgeJobs; {
		if looks >= sweepLooks {
			t.used = true
			break
		}
		name := last
		// $1 app, $2 last name of the page before, $3 limit
		const jobs = `SELECT id, name FROM jobs WHERE app_id = $1 AND name > $2 ORDER BY name LIMIT $3`
		ids, err := collect(ctx, t.read, func(row scanner) (id int64, err error) {
			err = row.Scan(&id, &name)
			return id, err
		}, jobs, app.app, last, purgeJobs)
		if err != nil {
			return last, err
		}
		page = len(ids)
		looks += page * days
		aged, err := t.aged(ctx, ids, from, app.sweepTo)
		if err == nil {
			err = t.repeat(ctx, t.size, app.sweepTo, func(ctx context.Context, tx *sql.Tx, before int64, size int) (removed int, err error) {
				removed, aged, err = t.removeOf(ctx, tx, aged, from, before, size)
				return removed, err
			})
		}
		if err != nil || t.over() {
			return last, err
		}
		last = name
	}
	return last, nil
}

// noteSweep notes how far the sweep of an app has come.
func (t *purge) noteSweep(ctx context.Context, app retention, last string) error {
	done, err := t.tryTransaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
		// $1 app, $2 the instant before which history goes, $3 name of the last job that is done
		_, err := tx.ExecContext(ctx, `UPDATE apps SET sweep_to = $2, sweep_after = $3 WHERE id = $1`, app.app, app.sweepTo, last)
		return err
	})
	t.stopped = t.stopped || !done
	return err
}

// swept notes that nothing of an app is left from before its sweep, so that the next sweep begins there.
func (t *purge) swept(ctx context.Context, app retention) error {
	done, err := t.tryTransaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
		// $1 app, $2 before
		_, err := tx.ExecContext(ctx, `UPDATE apps SET history_from = CASE WHEN history_from < $2 THEN $2 ELSE history_from END,
			sweep_to = 0, sweep_after = '' WHERE id = $1`, app.app, app.sweepTo)
		return err
	})
	t.stopped = t.stopped || !done
	return err
}

// aged returns those of some jobs that have history between two instants. It looks into as many
// indexes as there are jobs and days, so it is asked once and not by each batch.
func (t *purge) aged(ctx context.Context, jobs []int64, from, before int64) (aged []int64, err error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	done, err := t.tryTransaction(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		// $1 before, $2 from; from $3 on: idColumns
		aged, err = collect(ctx, tx, scanInt, t.rows(0, 3, "", idColumns...)+agedJobs, append([]any{before, from}, t.batch(jobs)...)...)
		return err
	})
	t.stopped = t.stopped || !done
	return aged, err
}

// expiredOfJob selects the expired runs of a job since an instant. PostgreSQL follows the index of jobs for the same
// reason as in endedOfEach.
// $3 job, $4 from
func (t *purge) expiredOfJob() string {
	const since = ` AND r.scheduled_at >= $4`
	if _, ok := t.flavor.(*postgres); ok {
		return expiredRuns("runs") + ` AND r.job_id >= $3 AND r.job_id <= $3` + since +
			` ORDER BY r.job_id, r.scheduled_at, r.trigger_id, r.kind LIMIT $2`
	}
	return expiredRuns("runs") + ` AND r.job_id = $3` + since + oldestRuns
}

// removeOf removes expired history of the first of some jobs, and returns those that may have more.
func (t *purge) removeOf(
	ctx context.Context, tx *sql.Tx, jobs []int64, from, before int64, size int,
) (removed int, left []int64, err error) {
	var keys []expiredKey
	misfires := 0
	for left = jobs; len(left) > 0; left = left[1:] {
		of, err := collect(ctx, tx, scanKey, t.expiredOfJob(), before, size-len(keys), left[0], from)
		if err != nil {
			return 0, left, err
		}
		keys = append(keys, of...)
		n, err := t.removeMisfires(ctx, tx, expiredMisfires+` AND m.job_id = $3`+oldestMisfires, before, size-misfires, left[0])
		if err != nil {
			return 0, left, err
		}
		misfires += n
		if len(keys) >= size || misfires >= size {
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

// removeRuns deletes runs with their attempts and responses.
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

// expired returns the batch of keys, which it puts in order, after the bounds of their days.
func (t *purge) expired(keys []expiredKey) []any {
	slices.SortFunc(keys, func(a, b expiredKey) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.trigger, b.trigger)) })
	var at, trigger []int64
	var kind []int32
	for _, k := range keys {
		at, trigger, kind = append(at, k.at), append(trigger, k.trigger), append(kind, k.kind)
	}
	return append([]any{day(at[0]), day(at[len(at)-1]) + dayMillis}, t.batch(at, trigger, kind)...)
}

// removeMisfires deletes the misfires that a query of their keys returns.
func (t *purge) removeMisfires(ctx context.Context, tx *sql.Tx, query string, args ...any) (int, error) {
	n, err := affect(ctx, tx, deleteMisfires+query+`)`, args...)
	t.result.Misfires += int(n)
	return int(n), err
}

// Purge also removes revisions and the audit log, once they are older than all of the ledger that is kept.

// removeRevisions removes the revisions that ended before all that is kept. They are few, so the longest
// retention counts for all.
func (t *purge) removeRevisions(ctx context.Context, tx *sql.Tx, before int64, size int) (removed int, err error) {
	// $1 before, $2 limit
	for _, statement := range []string{
		`DELETE FROM trigger_revisions WHERE (job_id, id, revision, calendar_revision, from_at, cause) IN (
			SELECT job_id, id, revision, calendar_revision, from_at, cause FROM trigger_revisions WHERE to_at < $1 ORDER BY to_at LIMIT $2)`,
		`DELETE FROM calendar_revisions WHERE (app_id, name, calendar_revision) IN (
			SELECT app_id, name, calendar_revision FROM calendar_revisions WHERE to_at < $1 ORDER BY to_at LIMIT $2)`,
	} {
		n, err := affect(ctx, tx, statement, before, size)
		if err != nil {
			return 0, err
		}
		removed = max(removed, int(n))
	}
	return removed, nil
}

// purgeAuditLog removes the entries of the audit log before an instant, except those that say since when an app
// is enabled or disabled: explain needs them for as long as that is so.
func (t *purge) purgeAuditLog(ctx context.Context, tx *sql.Tx, before int64, size int) (removed int, err error) {
	// $1 before, $2 limit
	const remove = `DELETE FROM audit_log WHERE (at, id) IN (SELECT a.at, a.id FROM audit_log AS a WHERE a.at < $1
		AND (a.action NOT IN ('enable', 'disable') OR a.subject <> 'app ' || a.app OR EXISTS (SELECT 1 FROM audit_log AS b
			WHERE b.app = a.app AND b.at > a.at AND b.at < $1 AND b.subject = a.subject AND b.action IN ('enable', 'disable')))
		ORDER BY a.at, a.id LIMIT $2)`
	n, err := affect(ctx, tx, remove, before, size)
	t.result.AuditEntries += int(n)
	return int(n), err
}
