package store

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// What ends of a job that something follows leaves a row among the pending ends, in the statement that puts it into the
// history. So neither can be there without the other, however a node dies. Jobs that nothing follows are not in the index
// jobs_followed, and the records of their runs go by statements that do not look there.

// alertWantsSuccess tells that alerts have to know that a run c of the job j succeeded: an end before it is still to be judged,
// a condition of the job holds or is counted towards, or the run began late.
const alertWantsSuccess = `(EXISTS (SELECT 1 FROM pending_ends AS e WHERE e.job_id = j.id)
			OR EXISTS (SELECT 1 FROM alert_states AS s WHERE s.job_id = j.id AND s.armed)
			OR c.of_kind = 1 AND c.of_started - c.of_at > j.alert_late_after)`

// wantedEnd tells the ends c that something may follow, of jobs j. Nobody follows shards, nor what was cancelled or skipped.
const wantedEnd = `c.of_kind < 16 AND CASE coalesce(c.of_state, 'succeeded')
		WHEN 'succeeded' THEN (j.follows & 1) <> 0 OR (j.follows & 8) <> 0 AND ` + alertWantsSuccess + `
		WHEN 'failed' THEN (j.follows & 10) <> 0 WHEN 'timed_out' THEN (j.follows & 10) <> 0 WHEN 'lost' THEN (j.follows & 10) <> 0
		ELSE FALSE END`

// insertPending makes pending ends of the runs c that meet a condition.
func insertPending(condition string) string {
	return ` INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt, started_at, http_status, state,
		class, error)
	SELECT c.of_end, c.of_trigger, c.of_at, c.of_kind, c.of_job, j.app_id, c.over, c.of_started, c.of_status,
		coalesce(c.of_state, 'succeeded'), coalesce(c.of_class, ''), coalesce(c.of_error, '')
	FROM c JOIN jobs AS j ON j.id = c.of_job AND j.follows <> 0 WHERE ` + condition + ` AND ` + wantedEnd + ` ON CONFLICT DO NOTHING`
}

// notRecorded tells the runs c that are not in the history: what is recorded again is not followed again.
func notRecorded(f db.Flavor) string {
	return `NOT EXISTS (SELECT 1 FROM runs AS r WHERE` + db.OfChosen(f) + `)`
}

// insertPendingMisfires makes pending ends of the decisions c about missed fires.
const insertPendingMisfires = ` INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt, http_status,
		state, class, error)
	SELECT c.now, c.id, c.next, 0, c.job_id, j.app_id, 0, 0, '', '', '' FROM c JOIN jobs AS j ON j.id = c.job_id AND j.follows <> 0
	WHERE c.decision <> 'fire_all' AND (j.follows & 12) <> 0 ON CONFLICT DO NOTHING`

// notifyEnds notifies the nodes if there are pending ends, which this transaction may have left.
func notifyEnds(ctx context.Context, t *tx) error {
	_, found, err := db.First(ctx, t, db.ScanInt, anyPending)
	if found {
		t.notify(dispatcher.Notification{Ends: true})
	}
	return err
}

const anyPending = `SELECT 1 FROM pending_ends LIMIT 1`
