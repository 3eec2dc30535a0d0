package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// The statements of Purge. Expired means: before $1, the start of a UTC day. A run is kept from its end on, so one
// that was scheduled long ago and has ended only now, as a catch-up, is as young as its end.

// expiredRuns selects those of a table.
func expiredRuns(table string) string {
	return `SELECT r.scheduled_at, r.trigger_id, r.kind FROM ` + table + ` AS r WHERE r.scheduled_at < $1 AND r.ended_at < $1`
}

// endedLate is the predicate of runs_late: runs that have ended a day or more after their instant.
const endedLate = `r.ended_at - r.scheduled_at >= 86400000`

const expiredMisfires = `SELECT m.from_at, m.trigger_id FROM misfires AS m WHERE m.from_at < $1 AND m.to_at < $1 AND m.decided_at < $1`

// $2 limit
const oldestRuns = ` ORDER BY r.scheduled_at, r.trigger_id, r.kind LIMIT $2`

const oldestMisfires = ` ORDER BY m.from_at, m.trigger_id LIMIT $2`

const deleteMisfires = `DELETE FROM misfires WHERE (from_at, trigger_id) IN (`

// A run of the batch may have been retried meanwhile, and is then no longer there.
const deleteRuns = ` DELETE FROM runs AS r` + ofExpired + ` RETURNING scheduled_at, trigger_id, kind`

const deleteAttempts = ` DELETE FROM attempts AS r` + ofExpired

const deleteResponses = ` DELETE FROM responses AS r` + ofExpired

const deleteInputs = ` DELETE FROM run_inputs AS r` + ofExpired

const deleteBroadcasts = ` DELETE FROM broadcasts AS r` + ofExpired

// ofExpired are the rows of the batch's runs, in their days.
// $1 first day, $2 end of the last
const ofExpired = ` WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT scheduled_at, trigger_id, kind FROM b)
	AND r.scheduled_at >= $1 AND r.scheduled_at < $2`

// removeOldest removes what is older than every retention, of whatever app, where no partition is dropped with it.
func (t *purge) removeOldest(ctx context.Context, tx *sql.Tx, before int64, size int) (int, error) {
	keys, err := t.removable(ctx, tx, size, expiredRuns(t.Unpartitioned())+oldestRuns, func(most int) []any { return []any{before, most} })
	if err != nil {
		return 0, err
	}
	if err := t.removeRuns(ctx, tx, keys); err != nil {
		return 0, err
	}
	misfires, err := t.removeMisfires(ctx, tx, expiredMisfires+oldestMisfires, before, size)
	return max(len(keys), misfires), err
}

// expiredKey is the key of a run that is to go.
type expiredKey struct {
	at, trigger int64
	kind        int32
}

func scanKey(row db.Scanner) (k expiredKey, err error) {
	err = row.Scan(&k.at, &k.trigger, &k.kind)
	return k, err
}

// item names a run that is to go and cannot.
func (k expiredKey) item() string {
	key := run.Key{ScheduledAt: db.Instant(k.at), TriggerID: k.trigger}
	key.SetCode(int(k.kind))
	return "history of run " + key.String()
}

// removable returns the keys of at most size runs that a query selects, without those that are set aside. args are its parameters,
// with a limit.
func (t *purge) removable(ctx context.Context, tx *sql.Tx, size int, query string, args func(most int) []any) ([]expiredKey, error) {
	keys, err := db.Collect(ctx, tx, scanKey, query, args(size+t.asides.count(dispatcher.WorkPurge))...)
	keys = withoutAsides(t.Store, dispatcher.WorkPurge, keys, expiredKey.item, t.present())
	t.looked = keys[:min(len(keys), size)]
	return t.looked, err
}

// present is now, as rows that are set aside are looked at by.
func (t *purge) present() time.Time {
	if t.now.IsZero() {
		return db.WallClock()
	}
	return t.now
}

// leave sets aside the only run that a batch was about, and that cannot be removed. It reports whether there was one.
func (t *purge) leave(ctx context.Context, why error) (bool, error) {
	if len(t.looked) != 1 {
		return false, nil
	}
	k := t.looked[0]
	// $1 scheduled instant, $2 trigger, $3 kind
	const of = `SELECT job_id FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
	job, _, err := db.First(ctx, t.Read, db.ScanInt, of, k.at, k.trigger, k.kind)
	if err != nil {
		return false, err
	}
	return true, t.setAside(ctx, asideRow{work: dispatcher.WorkPurge, item: k.item(), job: job}, why, t.now)
}

// removeRuns deletes runs with their attempts, responses, inputs and the endpoints of their shards.
func (t *purge) removeRuns(ctx context.Context, tx *sql.Tx, keys []expiredKey) error {
	if len(keys) == 0 {
		return nil
	}
	removed, err := db.Collect(ctx, tx, scanKey, t.Rows(0, 3, "", db.KeyColumns[:3]...)+deleteRuns, t.expired(keys)...)
	if err != nil || len(removed) == 0 {
		return err
	}
	t.result.Runs += len(removed)
	for _, statement := range []string{deleteAttempts, deleteResponses, deleteBroadcasts, deleteInputs} {
		if _, err := tx.ExecContext(ctx, t.Rows(0, 3, "", db.KeyColumns[:3]...)+statement, t.expired(removed)...); err != nil {
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
	return append([]any{db.Day(at[0]), db.Day(at[len(at)-1]) + db.DayMillis}, t.Batch(at, trigger, kind)...)
}

// removeMisfires deletes the misfires that a query of their keys returns.
func (t *purge) removeMisfires(ctx context.Context, tx *sql.Tx, query string, args ...any) (int, error) {
	n, err := db.Affect(ctx, tx, deleteMisfires+query+`)`, args...)
	t.result.Misfires += int(n)
	return int(n), err
}

// Purge also removes revisions, once they are older than all of the ledger that is kept, and the audit log, which has a
// retention of its own.

// removeRevisions removes the revisions, backfills and bulk actions that ended before all that is kept. They are few, so the longest
// retention counts for all.
func (t *purge) removeRevisions(ctx context.Context, tx *sql.Tx, before int64, size int) (removed int, err error) {
	// $1 before, $2 limit
	for _, statement := range []string{
		`DELETE FROM trigger_revisions WHERE (job_id, id, revision, calendar_revision, from_at, cause) IN (
			SELECT job_id, id, revision, calendar_revision, from_at, cause FROM trigger_revisions WHERE to_at < $1 ORDER BY to_at LIMIT $2)`,
		`DELETE FROM calendar_revisions WHERE (app_id, name, calendar_revision) IN (
			SELECT app_id, name, calendar_revision FROM calendar_revisions WHERE to_at < $1 ORDER BY to_at LIMIT $2)`,
		`DELETE FROM backfills WHERE id IN (SELECT id FROM backfills WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)`,
		`DELETE FROM bulk_actions WHERE id IN (SELECT id FROM bulk_actions WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)`,
		`DELETE FROM app_pauses WHERE (app_id, id) IN (
			SELECT app_id, id FROM app_pauses WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)`,
	} {
		n, err := db.Affect(ctx, tx, statement, before, size)
		if err != nil {
			return 0, err
		}
		removed = max(removed, int(n))
	}
	return removed, nil
}

// switches are the entries a that say since when an app is enabled or disabled.
const switches = `a.action IN ('enable', 'disable') AND a.subject = 'app ' || a.app`

// purgeAuditLog removes the entries of the audit log before an instant, except switches, which explain needs.
func (t *purge) purgeAuditLog(ctx context.Context, tx *sql.Tx, before int64, size int) (removed int, err error) {
	// $1 before, $2 limit
	const remove = `DELETE FROM audit_log WHERE (at, id) IN (SELECT a.at, a.id FROM audit_log AS a WHERE a.at < $1
		AND NOT (` + switches + `) ORDER BY a.at, a.id LIMIT $2)`
	return t.removeEntries(ctx, tx, remove, before, size)
}

// purgeAlertEvents removes the transitions of alerts that are older than the history of their apps.
func (t *purge) purgeAlertEvents(ctx context.Context, tx *sql.Tx, present int64, size int) (removed int, err error) {
	// $1 now, $2 limit
	const remove = `DELETE FROM alert_events WHERE (app_id, at, id) IN (SELECT e.app_id, e.at, e.id FROM apps AS a
		JOIN alert_events AS e ON e.app_id = a.id AND e.at < $1 - a.retention LIMIT $2)`
	n, err := db.Affect(ctx, tx, remove, present, size)
	return int(n), err
}

// purgeSwitches removes switches that are older than all history, but for the latest of each app: it says what the app
// is now.
func (t *purge) purgeSwitches(ctx context.Context, tx *sql.Tx, before int64, size int) (removed int, err error) {
	// $1 before, $2 limit
	const remove = `DELETE FROM audit_log WHERE (at, id) IN (SELECT a.at, a.id FROM audit_log AS a WHERE a.at < $1
		AND ` + switches + ` AND EXISTS (SELECT 1 FROM audit_log AS b
			WHERE b.app = a.app AND b.at > a.at AND b.at < $1 AND b.subject = a.subject AND b.action IN ('enable', 'disable'))
		ORDER BY a.at, a.id LIMIT $2)`
	return t.removeEntries(ctx, tx, remove, before, size)
}

func (t *purge) removeEntries(ctx context.Context, tx *sql.Tx, remove string, before int64, size int) (int, error) {
	n, err := db.Affect(ctx, tx, remove, before, size)
	t.result.AuditEntries += int(n)
	return int(n), err
}
