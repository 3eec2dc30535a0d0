package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
)

// The statements of Purge. Expired means: before $1, the start of a UTC day.
// awaited are the runs whose ends fixed delays have yet to be counted from.
const awaitedRuns = `SELECT t.prev_fire_time AS at, t.id FROM triggers AS t WHERE t.delayed AND t.next_fire_time IS NULL
	AND t.state = 'waiting' AND t.enabled AND t.deleted_at IS NULL AND t.prev_fire_time IS NOT NULL`

// What was scheduled long ago and has ended only now, as a catch-up, is kept from its end on.
const expiredRuns = `SELECT r.scheduled_at, r.trigger_id, r.kind FROM runs AS r WHERE NOT r.live AND r.scheduled_at < $1
	AND coalesce(r.ended_at, r.scheduled_at) < $1 AND (r.scheduled_at, r.trigger_id) NOT IN (` + awaitedRuns + `)`

const expiredMisfires = `SELECT m.from_at, m.trigger_id FROM misfires AS m WHERE m.from_at < $1 AND m.to_at < $1 AND m.decided_at < $1`

// $2 limit
const oldestRuns = ` ORDER BY r.scheduled_at, r.trigger_id, r.kind LIMIT $2`

const oldestMisfires = ` ORDER BY m.from_at, m.trigger_id LIMIT $2`

const deleteMisfires = `DELETE FROM misfires WHERE (from_at, trigger_id) IN (`

// agedJobs are those of the batch that have history before $1. The lowest of a job is one look
// into an index, in whatever way the planner could go wrong, and days from $1 on are none of it.
const agedJobs = ` SELECT b.id FROM b WHERE (SELECT min(r.scheduled_at) FROM runs AS r WHERE r.job_id = b.id AND NOT r.live
	AND r.scheduled_at < $1) IS NOT NULL
	OR (SELECT min(m.from_at) FROM misfires AS m WHERE m.job_id = b.id) < $1`

// A run of the batch may have been retried meanwhile.
const deleteRuns = ` DELETE FROM runs AS r WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT scheduled_at, trigger_id, kind FROM b)
	AND NOT r.live` + within + ` RETURNING scheduled_at, trigger_id, kind`

const deleteAttempts = ` DELETE FROM attempts AS r` + ofRuns

const deleteResponses = ` DELETE FROM responses AS r` + ofRuns

const ofRuns = ` WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT scheduled_at, trigger_id, kind FROM b)` + within

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
		ids, err := collect(ctx, t.read, func(row scanner) (id int64, err error) {
			err = row.Scan(&id, &last)
			return id, err
		}, jobs, app, last, purgeJobs)
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
	done, err := t.tryTransaction(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
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
	n, err := affect(ctx, tx, deleteMisfires+query+`)`, args...)
	t.result.Misfires += int(n)
	return int(n), err
}

// Purge removes these, besides the ledger, once they are older than all of the ledger that is kept.

// removeRevisions removes the definitions that ceased to be before all that is kept. Of no
// retention in particular: there are few of them.
func (t *purge) removeRevisions(ctx context.Context, tx *sql.Tx, before int64) (removed int, err error) {
	// $1 before, $2 limit
	for _, statement := range []string{
		`DELETE FROM trigger_revisions WHERE (job_id, id, revision, calendar_revision, from_at, cause) IN (
			SELECT job_id, id, revision, calendar_revision, from_at, cause FROM trigger_revisions WHERE to_at < $1 ORDER BY to_at LIMIT $2)`,
		`DELETE FROM calendar_revisions WHERE (app_id, name, calendar_revision) IN (
			SELECT app_id, name, calendar_revision FROM calendar_revisions WHERE to_at < $1 ORDER BY to_at LIMIT $2)`,
	} {
		n, err := affect(ctx, tx, statement, before, t.size)
		if err != nil {
			return 0, err
		}
		removed = max(removed, int(n))
	}
	return removed, nil
}

// purgeAuditLog removes the audit before an instant, but for what says since when an app is enabled or
// disabled: explain needs it for as long as that is so.
func (t *purge) purgeAuditLog(ctx context.Context, tx *sql.Tx, before int64) (removed int, err error) {
	// $1 before, $2 limit
	const remove = `DELETE FROM audit_log WHERE (at, id) IN (SELECT a.at, a.id FROM audit_log AS a WHERE a.at < $1
		AND (a.action NOT IN ('enable', 'disable') OR a.subject <> 'app ' || a.app OR EXISTS (SELECT 1 FROM audit_log AS b
			WHERE b.app = a.app AND b.at > a.at AND b.at < $1 AND b.subject = a.subject AND b.action IN ('enable', 'disable')))
		ORDER BY a.at, a.id LIMIT $2)`
	n, err := affect(ctx, tx, remove, before, t.size)
	t.result.AuditEntries += int(n)
	return int(n), err
}

// removeDeleted removes the rows of jobs that were deleted before an instant and have no history left.
func (t *purge) removeDeleted(ctx context.Context, tx *sql.Tx, before int64) (removed int, err error) {
	// $1 before, $2 limit
	const forgotten = `SELECT j.id FROM jobs AS j WHERE j.deleted_at < $1
		AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.job_id = j.id AND NOT r.live)
		AND NOT EXISTS (SELECT 1 FROM (` + holders + `) AS n JOIN runs AS r ON r.node = n.id WHERE r.live AND r.job_id = j.id)
		AND NOT EXISTS (SELECT 1 FROM misfires AS m WHERE m.job_id = j.id) ORDER BY j.deleted_at LIMIT $2`
	jobs, err := collect(ctx, tx, scanInt, forgotten, before, t.size)
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	// $1 before, from $2 on: ids. The triggers of a job that was deleted were so with it or before.
	for _, statement := range []string{
		` DELETE FROM triggers WHERE deleted_at < $1 AND job_id IN (SELECT id FROM b)`,
		` DELETE FROM jobs WHERE deleted_at < $1 AND id IN (SELECT id FROM b)`,
	} {
		if _, err := tx.ExecContext(ctx, t.rows(0, 2, "", idColumns...)+statement, append([]any{before}, t.batch(jobs)...)...); err != nil {
			return 0, err
		}
	}
	return len(jobs), nil
}
