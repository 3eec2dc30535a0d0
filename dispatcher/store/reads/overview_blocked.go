package reads

import (
	"context"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// blockedJobs are the jobs j whose later fires only wait or are skipped, because a run has had a slot s of the job for
// unusually long: longer than view.BlockedAfter, and than view.BlockedTimes the longest of its latest runs. Slots are as
// few as runs in flight. A job with several slots goes on as long as one of its later fires begins.
// $1 now, $2 since when a slot must be taken
var blockedJobs = `slots AS s JOIN jobs AS j ON j.id = s.job_id LEFT JOIN live_runs AS r
		ON r.scheduled_at = s.scheduled_at AND r.trigger_id = s.trigger_id AND r.kind = s.kind
	WHERE s.endpoint = '' AND s.node >= 0 AND s.since <= $2 AND j.deleted_at IS NULL
	AND $1 - s.since > ` + strconv.Itoa(view.BlockedTimes) + ` * coalesce((SELECT max(h.started_ms) FROM (SELECT h.started_ms FROM runs AS h
		WHERE h.job_id = s.job_id AND h.scheduled_at < s.scheduled_at AND h.started_ms IS NOT NULL
		ORDER BY h.scheduled_at DESC LIMIT ` + strconv.Itoa(view.BlockedRuns) + `) AS h), 0)
	AND (` + waitsSince + ` <= $2 OR ` + skippedAfter + ` >= ` + strconv.Itoa(view.BlockedSkips) + `)
	AND NOT EXISTS (SELECT 1 FROM runs AS h WHERE h.job_id = s.job_id AND h.scheduled_at > s.scheduled_at AND h.started_ms IS NOT NULL LIMIT 1)
	AND NOT EXISTS (SELECT 1 FROM live_runs AS l WHERE l.job_id = s.job_id AND l.scheduled_at > s.scheduled_at AND l.attempt > 0 LIMIT 1)`

const (
	// waitsSince is when the first run of the job that waits for the slot was scheduled; NULL: none waits.
	waitsSince = `(SELECT min(l.scheduled_at) FROM live_runs AS l WHERE l.job_id = s.job_id AND l.state = 'queued' AND l.node = -1)`
	// skippedAfter counts the later fires that were skipped.
	skippedAfter = `(SELECT count(*) FROM (SELECT 1 FROM runs AS h WHERE h.job_id = s.job_id AND h.scheduled_at > s.scheduled_at
		AND h.state = 'skipped' LIMIT 1000) AS h)`
)

// blocked finds jobs that a slot blocks, the longest first.
func (l *looker) blocked(ctx context.Context) (err error) {
	args := definitions.StatementArgs{l.at.UnixMilli(), l.at.Add(-view.BlockedAfter).UnixMilli()}
	l.found.Blocked, err = foundFirst(ctx, l, func(row db.Scanner) (b view.Blockage, err error) {
		var key run.Key
		var node run.NodeID
		err = row.Scan(&b.App, &b.Job, db.InstantColumn(&key.ScheduledAt), &key.TriggerID, db.KindColumn(&key), &node,
			db.InstantColumn(&b.Since), &b.Ended, db.OptionalColumn(&b.WaitsSince), &b.Skipped)
		if b.Run = key.String(); node > 0 {
			b.Node = &node
		}
		return b, err
	}, `SELECT j.app, j.name, s.scheduled_at, s.trigger_id, s.kind, s.node, s.since, r.job_id IS NULL, `+waitsSince+`, `+skippedAfter+`
		FROM `+blockedJobs+l.ofApps(`j.app_id`, &args)+` ORDER BY s.since, j.app, j.name`, args...)
	return err
}
