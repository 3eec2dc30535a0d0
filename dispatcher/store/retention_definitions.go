package store

import (
	"context"
	"database/sql"
)

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
		result, err := tx.ExecContext(ctx, statement, before, t.size)
		if err != nil {
			return 0, err
		}
		n, err := result.RowsAffected()
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
	result, err := tx.ExecContext(ctx, remove, before, t.size)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
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
