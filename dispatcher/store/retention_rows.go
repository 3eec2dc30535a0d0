package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// expiring are rows a of a table that go by themselves. Each step of Purge that removes rows divides its batches until a row that cannot
// be removed is alone. It is set aside, and the batches that follow leave it out.
type expiring struct {
	table, key string // key has the names of its columns
	with       string // what from needs before its query
	from       string // empty: the table
	where      string // $1 before, $2 limit
	order      string
	app, job   string // of a row: their ids; empty: it is of none
}

// The rows that Purge removes besides runs, triggers and jobs.
var (
	expiredMisfires = expiring{table: "misfires", key: "from_at, trigger_id", job: "a.job_id",
		where: `a.from_at < $1 AND a.to_at < $1 AND a.decided_at < $1`, order: ` ORDER BY a.from_at, a.trigger_id`}

	// Revisions, backfills, bulk actions and pauses that ended before all of the ledger that is kept. They are few, so the longest
	// retention counts for all.
	endedRows = []expiring{
		{table: "trigger_revisions", key: "job_id, id, revision, calendar_revision, from_at, cause", job: "a.job_id", where: `a.to_at < $1`,
			order: ` ORDER BY a.to_at`},
		{table: "calendar_revisions", key: "app_id, name, calendar_revision", app: "a.app_id", where: `a.to_at < $1`, order: ` ORDER BY a.to_at`},
		{table: "backfills", key: "id", app: "a.app_id", job: "a.job_id", where: `a.ended_at < $1`, order: ` ORDER BY a.ended_at`},
		{table: "bulk_actions", key: "id", app: "a.app_id", where: `a.ended_at < $1`, order: ` ORDER BY a.ended_at`},
		{table: "app_pauses", key: "app_id, id", app: "a.app_id", where: `a.ended_at < $1`, order: ` ORDER BY a.ended_at`},
	}

	// Transitions of alerts that are older than the history of their apps.
	alertEvents = expiring{table: "alert_events", key: "app_id, at, id", app: "a.app_id",
		from: `apps AS o JOIN alert_events AS a ON a.app_id = o.id`, where: `a.at < $1 - o.retention`}

	// Alerts that were deleted before an instant and have no transition left, once the job that made their deliveries is gone.
	deletedAlerts = expiring{table: "alerts", key: "id", app: "a.app_id", where: `a.deleted_at < $1
		AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = a.job_id)
		AND NOT EXISTS (SELECT 1 FROM alert_events AS e WHERE e.app_id = a.app_id AND e.alert = a.name)`, order: ` ORDER BY a.deleted_at`}

	// Entries of the audit log, except switches, which explain needs.
	auditEntries = expiring{table: "audit_log", key: "at, id", app: appOfEntry, where: `a.at < $1 AND NOT (` + switches + `)`,
		order: ` ORDER BY a.at, a.id`}

	// Switches that are older than all history, but for the latest of each app: it says what the app is now.
	pastSwitches = expiring{table: "audit_log", key: "at, id", app: appOfEntry, where: `a.at < $1
		AND ` + switches + ` AND EXISTS (SELECT 1 FROM audit_log AS b
			WHERE b.app = a.app AND b.at > a.at AND b.at < $1 AND b.subject = a.subject AND b.action IN ('enable', 'disable'))`,
		order: ` ORDER BY a.at, a.id`}

	// Sessions that have not been used for longer than they may, or were to end by now.
	endedSessions = expiring{table: "sessions", key: "id", order: ` ORDER BY a.used_at`, where: `(a.ends_at <= $1 OR a.used_at <= $1 - ` +
		strconv.FormatInt(access.SessionIdle.Milliseconds(), 10) + `)`}
)

// switches are the entries a that say since when an app is enabled or disabled, and appOfEntry is the app of an entry a.
const (
	switches   = `a.action IN ('enable', 'disable') AND a.subject = 'app ' || a.app`
	appOfEntry = `coalesce((SELECT o.id FROM apps AS o WHERE o.name = a.app), 0)`
)

// ofJobs are those of the jobs of a batch b.
func (e expiring) ofJobs(with string) expiring {
	e.with, e.from = with, `b JOIN `+e.table+` AS a ON a.job_id = b.id`
	return e
}

// columns are those of the key.
func (e expiring) columns() []string { return strings.Split(e.key, ", ") }

// item names a row among those that are set aside.
func (e expiring) item() string {
	return `'` + e.table + ` ' || a.` + strings.Join(e.columns(), ` || '/' || a.`)
}

// query selects columns of at most $2 rows, of which a condition holds, which is empty or begins with AND.
func (e expiring) query(columns, and string) string {
	from := e.from
	if from == "" {
		from = e.table + ` AS a`
	}
	return e.with + ` SELECT ` + columns + ` FROM ` + from + ` WHERE ` + e.where + and + e.order + ` LIMIT $2`
}

// removeRows returns what removes rows. more are parameters behind before and the limit; removed counts the rows, if it is not nil.
func (t *purge) removeRows(e expiring, removed *int, more ...any) removal {
	return func(ctx context.Context, tx *sql.Tx, before int64, size int) (int, error) {
		args, others := append([]any{before, size}, more...), ""
		if t.asides.count(dispatcher.WorkPurge) > 0 {
			others = ` AND NOT EXISTS (SELECT 1 FROM set_aside AS x WHERE x.work = 'purge' AND x.item = ` + e.item() + ` AND x.try_at > ` +
				strconv.FormatInt(t.present().UnixMilli(), 10) + `)`
		}
		t.first = func(ctx context.Context) (row asideRow, found bool, err error) {
			of := func(id string) string { return `, ` + cmp.Or(id, `0`) }
			return db.First(ctx, t.Read, func(r db.Scanner) (row asideRow, err error) {
				return row, r.Scan(&row.item, &row.app, &row.job)
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

// removableIDs returns the ids of at most size rows that a query selects, without those that are set aside. args are its parameters, with a
// limit; kind names the rows, and job selects the job of the row with the id $1.
func (t *purge) removableIDs(ctx context.Context, tx *sql.Tx, size int, kind, job, query string, args func(most int) []any,
) ([]int64, error) {
	item := func(id int64) string { return kind + " " + strconv.FormatInt(id, 10) }
	ids, err := db.Collect(ctx, tx, db.ScanInt, query, args(size+t.asides.count(dispatcher.WorkPurge))...)
	ids = withoutAsides(t.Store, dispatcher.WorkPurge, ids, item, t.present())
	ids = ids[:min(len(ids), size)]
	t.first = func(ctx context.Context) (row asideRow, found bool, err error) {
		if len(ids) != 1 {
			return row, false, nil
		}
		row.item = item(ids[0])
		row.job, _, err = db.First(ctx, t.Read, db.ScanInt, job, ids[0])
		return row, true, err
	}
	return ids, err
}

// leave sets aside the only row that a batch was about, and that cannot be removed. It reports whether there was one.
func (t *purge) leave(ctx context.Context, why error) (bool, error) {
	if t.first == nil {
		return false, nil
	}
	row, found, err := t.first(ctx)
	if err != nil || !found || row.item == t.left { // it cannot even be set aside
		return false, err
	}
	row.work, t.left = dispatcher.WorkPurge, row.item
	if err := t.setAside(ctx, row, why, t.now); err != nil {
		return false, fmt.Errorf("set %s aside: %w", row.item, err)
	}
	return true, nil
}
