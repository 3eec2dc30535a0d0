package retention

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// The statements of Purge. Expired means: before $1, the start of a UTC day. A run is kept from its end on, so one that
// was scheduled long ago and ended only now, as a catch-up, is as young as its end.

// $2 limit
const oldestRuns = ` ORDER BY r.scheduled_at, r.trigger_id, r.kind LIMIT $2`

// A run of the batch may have been retried meanwhile, and is then gone.
const deleteRuns = ` DELETE FROM runs AS r` + ofExpired + ` RETURNING scheduled_at, trigger_id, kind`

const deleteAttempts = ` DELETE FROM attempts AS r` + ofExpired

const deleteResponses = ` DELETE FROM responses AS r` + ofExpired

const deleteInputs = ` DELETE FROM run_inputs AS r` + ofExpired

const deleteBroadcasts = ` DELETE FROM broadcasts AS r` + ofExpired

// ofExpired are the rows of the batch's runs, in their days.
// $1 first day, $2 end of the last
const ofExpired = ` WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT scheduled_at, trigger_id, kind FROM b)
	AND r.scheduled_at >= $1 AND r.scheduled_at < $2`

// removeOldest removes runs of all apps that are older than every retention and in no partition to drop.
func (t *Purge) removeOldest(ctx context.Context, tx *sql.Tx, before int64, size int) (int, error) {
	expired := `SELECT r.scheduled_at, r.trigger_id, r.kind FROM ` + t.db.Unpartitioned() +
		` AS r WHERE r.scheduled_at < $1 AND r.ended_at < $1` + oldestRuns
	return t.removeSelected(ctx, tx, size, expired, func(most int) []any { return []any{before, most} })
}

// expiredKey is the key of a run to delete.
type expiredKey struct {
	at, trigger int64
	kind        int32
}

func scanKey(row db.Scanner) (k expiredKey, err error) {
	err = row.Scan(&k.at, &k.trigger, &k.kind)
	return k, err
}

// item names a run that cannot be deleted.
func (k expiredKey) item() string {
	key := run.Key{ScheduledAt: db.Instant(k.at), TriggerID: k.trigger}
	key.SetCode(int(k.kind))
	return "history of run " + key.String()
}

// removeSelected deletes at most size runs selected by a query, without those that are set aside, and returns how many.
// args are the parameters of the query, with a limit.
func (t *Purge) removeSelected(ctx context.Context, tx *sql.Tx, size int, query string, args func(most int) []any) (int, error) {
	keys, err := db.Collect(ctx, tx, scanKey, query, args(size+t.dispatch.Asides.Count(dispatcher.WorkPurge))...)
	keys = dispatch.WithoutAsides(t.dispatch.Asides, dispatcher.WorkPurge, keys, expiredKey.item, t.present())
	keys = keys[:min(len(keys), size)]
	t.first = func(ctx context.Context) (row dispatch.AsideRow, found bool, err error) {
		if len(keys) != 1 {
			return row, false, nil
		}
		// $1 scheduled instant, $2 trigger, $3 kind
		const of = `SELECT job_id FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
		row.Item = keys[0].item()
		row.Job, _, err = db.First(ctx, t.db.Read, db.ScanInt, of, keys[0].at, keys[0].trigger, keys[0].kind)
		return row, true, err
	}
	if err != nil {
		return 0, err
	}
	return len(keys), t.removeRuns(ctx, tx, keys)
}

// present is now, for rows that are set aside.
func (t *Purge) present() time.Time {
	if t.Now.IsZero() {
		return db.WallClock()
	}
	return t.Now
}

// removeRuns deletes runs with their attempts, responses, inputs and the endpoints of their shards.
func (t *Purge) removeRuns(ctx context.Context, tx *sql.Tx, keys []expiredKey) error {
	if len(keys) == 0 {
		return nil
	}
	removed, err := db.Collect(ctx, tx, scanKey, t.db.Rows(0, 3, "", db.KeyColumns[:3]...)+deleteRuns, t.expired(keys)...)
	if err != nil || len(removed) == 0 {
		return err
	}
	t.Result.Runs += len(removed)
	for _, statement := range []string{deleteAttempts, deleteResponses, deleteBroadcasts, deleteInputs} {
		if _, err := tx.ExecContext(ctx, t.db.Rows(0, 3, "", db.KeyColumns[:3]...)+statement, t.expired(removed)...); err != nil {
			return err
		}
	}
	return err
}

// expired returns the batch of keys in order, after the bounds of their days.
func (t *Purge) expired(keys []expiredKey) []any {
	slices.SortFunc(keys, func(a, b expiredKey) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.trigger, b.trigger)) })
	var at, trigger []int64
	var kind []int32
	for _, k := range keys {
		at, trigger, kind = append(at, k.at), append(trigger, k.trigger), append(kind, k.kind)
	}
	return t.db.Dated(at, trigger, kind)
}

// expiring are rows a of a table that are deleted alone. Each step of Purge that deletes rows divides its batches until
// a row that cannot be deleted is alone. That row is set aside, and later batches leave it out.
type expiring struct {
	table, key string // key has the names of its columns
	with       string // goes before the query that from needs
	from       string // empty: the table
	where      string // $1 before, $2 limit
	order      string
	app, job   string // ids of a row; empty: it belongs to none
}

// The rows that Purge deletes in addition to runs, triggers and jobs.
var (
	expiredMisfires = expiring{table: "misfires", key: "from_at, trigger_id", job: "a.job_id",
		where: `a.from_at < $1 AND a.to_at < $1 AND a.decided_at < $1`, order: ` ORDER BY a.from_at, a.trigger_id`}

	// Revisions, backfills, bulk actions and pauses that ended before the kept ledger. They are few, so the longest
	// retention applies to all.
	endedRows = []expiring{
		{table: "trigger_revisions", key: "job_id, id, revision, calendar_revision, from_at, cause", job: "a.job_id", where: `a.to_at < $1`,
			order: ` ORDER BY a.to_at`},
		{table: "calendar_revisions", key: "app_id, name, calendar_revision", app: "a.app_id", where: `a.to_at < $1`, order: ` ORDER BY a.to_at`},
		{table: "backfills", key: "id", app: "a.app_id", job: "a.job_id", where: `a.ended_at < $1`, order: ` ORDER BY a.ended_at`},
		{table: "bulk_actions", key: "id", app: "a.app_id", where: `a.ended_at < $1`, order: ` ORDER BY a.ended_at`},
		{table: "app_pauses", key: "app_id, id", app: "a.app_id", where: `a.ended_at < $1`, order: ` ORDER BY a.ended_at`},
	}

	// Transitions of alerts older than the history of their apps.
	alertEvents = expiring{table: "alert_events", key: "app_id, at, id", app: "a.app_id",
		from: `apps AS o JOIN alert_events AS a ON a.app_id = o.id`, where: `a.at < $1 - o.retention`}

	// Alerts deleted before an instant, without transitions, once the attached job with their deliveries is gone.
	deletedAlerts = expiring{table: "alerts", key: "id", app: "a.app_id", where: `a.deleted_at < $1
		AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = a.job_id)
		AND NOT EXISTS (SELECT 1 FROM alert_events AS e WHERE e.app_id = a.app_id AND e.alert = a.name)`, order: ` ORDER BY a.deleted_at`}

	// Entries of the audit log, except switches, which explain needs.
	auditEntries = expiring{table: "audit_log", key: "at, id", app: appOfEntry, where: `a.at < $1 AND NOT (` + switches + `)`,
		order: ` ORDER BY a.at, a.id`}

	// Switches older than all history, except the latest of each app, which is its current state.
	pastSwitches = expiring{table: "audit_log", key: "at, id", app: appOfEntry, where: `a.at < $1
		AND ` + switches + ` AND EXISTS (SELECT 1 FROM audit_log AS b
			WHERE b.app = a.app AND b.at > a.at AND b.at < $1 AND b.subject = a.subject AND b.action IN (` + dispatch.SwitchActions + `))`,
		order: ` ORDER BY a.at, a.id`}

	// Sessions that were idle for too long, or have ended.
	endedSessions = expiring{table: "sessions", key: "id", order: ` ORDER BY a.used_at`, where: `(a.ends_at <= $1 OR a.used_at <= $1 - ` +
		strconv.FormatInt(access.SessionIdle.Milliseconds(), 10) + `)`}
)

// switches are the entries a that enable, disable or delete an app, and appOfEntry is the app of an entry a.
const (
	switches   = `a.action IN (` + dispatch.SwitchActions + `) AND a.subject = 'app ' || a.app`
	appOfEntry = `coalesce((SELECT o.id FROM apps AS o WHERE o.name = a.app), 0)`
)

func (e expiring) columns() []string { return strings.Split(e.key, ", ") }

// item names a row among those that are set aside.
func (e expiring) item() string {
	return `'` + e.table + ` ' || a.` + strings.Join(e.columns(), ` || '/' || a.`)
}

// query selects columns of at most $2 rows that meet a condition, which is empty or begins with AND.
func (e expiring) query(columns, and string) string {
	from := e.from
	if from == "" {
		from = e.table + ` AS a`
	}
	return e.with + ` SELECT ` + columns + ` FROM ` + from + ` WHERE ` + e.where + and + e.order + ` LIMIT $2`
}

// removeRows removes rows. more are parameters after before and the limit; removed, unless nil, counts the rows.
func (t *Purge) removeRows(e expiring, removed *int, more ...any) removal {
	return func(ctx context.Context, tx *sql.Tx, before int64, size int) (int, error) {
		args, others := append([]any{before, size}, more...), ""
		if t.dispatch.Asides.Count(dispatcher.WorkPurge) > 0 {
			others = ` AND NOT EXISTS (SELECT 1 FROM set_aside AS x WHERE x.work = 'purge' AND x.item = ` + e.item() + ` AND x.try_at > ` +
				strconv.FormatInt(t.present().UnixMilli(), 10) + `)`
		}
		t.first = func(ctx context.Context) (row dispatch.AsideRow, found bool, err error) {
			of := func(id string) string { return `, ` + cmp.Or(id, `0`) }
			return db.First(ctx, t.db.Read, func(r db.Scanner) (row dispatch.AsideRow, err error) {
				return row, r.Scan(&row.Item, &row.App, &row.Job)
			}, e.query(e.item()+of(e.app)+of(e.job), others), args...)
		}
		n, err := db.Affect(ctx, tx, `DELETE FROM `+e.table+` WHERE (`+e.key+`) IN (`+
			e.query(`a.`+strings.Join(e.columns(), `, a.`), others)+`)`, args...)
		if err == nil && removed != nil {
			*removed += int(n)
		}
		return int(n), err
	}
}

// expiringIDs are rows that are deleted together with others, found by their ids.
type expiringIDs struct {
	kind  string // names the rows
	query string // of ids
	job   string // of the job of the row with the id $1
}

// removableIDs returns the ids of at most size rows not set aside. args are the query's parameters, with a limit.
func (t *Purge) removableIDs(ctx context.Context, tx *sql.Tx, size int, e expiringIDs, args func(most int) []any) ([]int64, error) {
	item := func(id int64) string { return e.kind + " " + strconv.FormatInt(id, 10) }
	ids, err := db.Collect(ctx, tx, db.ScanInt, e.query, args(size+t.dispatch.Asides.Count(dispatcher.WorkPurge))...)
	ids = dispatch.WithoutAsides(t.dispatch.Asides, dispatcher.WorkPurge, ids, item, t.present())
	ids = ids[:min(len(ids), size)]
	t.first = func(ctx context.Context) (row dispatch.AsideRow, found bool, err error) {
		if len(ids) != 1 {
			return row, false, nil
		}
		row.Item = item(ids[0])
		row.Job, _, err = db.First(ctx, t.db.Read, db.ScanInt, e.job, ids[0])
		return row, true, err
	}
	return ids, err
}

// leave sets aside the only row of a batch, which cannot be deleted. It reports whether there was one.
func (t *Purge) leave(ctx context.Context, why error) (bool, error) {
	if t.first == nil {
		return false, nil
	}
	row, found, err := t.first(ctx)
	if err != nil || !found || row.Item == t.left { // it cannot even be set aside
		return false, err
	}
	row.Work, t.left = dispatcher.WorkPurge, row.Item
	if err := t.dispatch.SetAside(ctx, row, why, t.Now); err != nil {
		return false, fmt.Errorf("set %s aside: %w", row.Item, err)
	}
	return true, nil
}
