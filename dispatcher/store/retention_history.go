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

// $2 limit
const oldestRuns = ` ORDER BY r.scheduled_at, r.trigger_id, r.kind LIMIT $2`

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

// removeOldest removes runs that are older than every retention, of whatever app, where no partition is dropped with them.
func (t *purge) removeOldest(ctx context.Context, tx *sql.Tx, before int64, size int) (int, error) {
	keys, err := t.removable(ctx, tx, size, expiredRuns(t.Unpartitioned())+oldestRuns, func(most int) []any { return []any{before, most} })
	if err != nil {
		return 0, err
	}
	return len(keys), t.removeRuns(ctx, tx, keys)
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
	keys = keys[:min(len(keys), size)]
	t.first = func(ctx context.Context) (row asideRow, found bool, err error) {
		if len(keys) != 1 {
			return row, false, nil
		}
		// $1 scheduled instant, $2 trigger, $3 kind
		const of = `SELECT job_id FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
		row.item = keys[0].item()
		row.job, _, err = db.First(ctx, t.Read, db.ScanInt, of, keys[0].at, keys[0].trigger, keys[0].kind)
		return row, true, err
	}
	return keys, err
}

// present is now, as rows that are set aside are looked at by.
func (t *purge) present() time.Time {
	if t.now.IsZero() {
		return db.WallClock()
	}
	return t.now
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
