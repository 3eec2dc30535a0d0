package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// notJustEnded tells that a run, by the columns that name it, did not end after $2. Then nodes may be about to free what it has.
func notJustEnded(of, kind string) string {
	return ` NOT EXISTS (SELECT 1 FROM runs AS h WHERE h.scheduled_at = ` + of + `.scheduled_at AND h.trigger_id = ` + of + `.trigger_id
		AND h.kind = ` + kind + ` AND h.ended_at > $2 LIMIT 1 OFFSET 0)`
}

// leaks finds what runs of an app have left, or what keeps them. It is for verify, which is not asked often, and looks at all that
// is held now, but not at the history.
// $1 app, $2 until when a run must have ended, a probe have been due, $3 limit
var leaks = `SELECT l.kind_of_leak, l.job, l.scheduled_at, l.trigger_id, l.kind, l.held, l.node, l.since FROM (
	SELECT 'slot' AS kind_of_leak, j.name AS job, s.scheduled_at, s.trigger_id, s.kind, s.endpoint AS held, s.node, s.since
	FROM jobs AS j JOIN slots AS s ON s.job_id = j.id JOIN nodes AS o ON o.id = s.node AND o.state <> 'dead'
	WHERE j.app_id = $1 AND NOT EXISTS (SELECT 1 FROM live_runs AS r
			WHERE r.scheduled_at = s.scheduled_at AND r.trigger_id = s.trigger_id AND r.kind = s.kind LIMIT 1 OFFSET 0)
		AND` + notJustEnded("s", "s.kind") + `
	UNION ALL SELECT 'host_wait', j.name, 0, 0, 0, w.host, 0, 0
	FROM host_waits AS w` + probed + ` AND w.app_id = $1 AND w.probe_at <= $2
		AND NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE r.waits_for = w.id AND r.waits_for <> 0 LIMIT 1 OFFSET 0)
	UNION ALL SELECT 'waiting', j.name, r.scheduled_at, r.trigger_id, r.kind, '', 0, 0
	FROM jobs AS j JOIN live_runs AS r ON r.job_id = j.id
	WHERE j.app_id = $1 AND r.waits_for <> 0 AND NOT EXISTS (SELECT 1 FROM host_waits AS w WHERE w.id = r.waits_for LIMIT 1 OFFSET 0)
	UNION ALL SELECT 'callback', j.name, r.scheduled_at, r.trigger_id, r.kind, '', 0, 0
	FROM jobs AS j JOIN live_runs AS r ON r.job_id = j.id
	WHERE j.app_id = $1 AND r.state = 'waiting_callback' AND r.next_attempt_at IS NULL
	UNION ALL SELECT 'shard', j.name, r.scheduled_at, r.trigger_id, r.kind, '', 0, 0
	FROM jobs AS j JOIN live_runs AS r ON r.job_id = j.id
	WHERE j.app_id = $1 AND r.kind >= 16 AND NOT EXISTS (SELECT 1 FROM live_runs AS p
			WHERE p.scheduled_at = r.scheduled_at AND p.trigger_id = r.trigger_id AND p.kind = r.kind % 16 LIMIT 1 OFFSET 0)
		AND` + notJustEnded("r", "r.kind % 16") + `
	UNION ALL SELECT 'following', j.name, e.scheduled_at, e.trigger_id, e.kind, '', 0, e.ended_at
	FROM jobs AS j JOIN pending_ends AS e ON e.job_id = j.id
	WHERE j.app_id = $1 AND e.ended_at <= $2 AND e.try_at = 0 AND ` + noRollback + `
	) AS l ORDER BY l.job, l.kind_of_leak, l.scheduled_at, l.trigger_id, l.kind, l.held LIMIT $3`

// Leaks returns what is held for runs of an app that have ended, or keeps runs of it from going on.
func (s *Store) Leaks(ctx context.Context, app string, before time.Time, limit int) ([]dispatcher.Leak, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	found, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (leak dispatcher.Leak, err error) {
		var key run.Key
		var node run.NodeID
		var since int64
		err = row.Scan(&leak.Kind, &leak.Job, db.InstantColumn(&key.ScheduledAt), &key.TriggerID, db.KindColumn(&key), &leak.Of, &node, &since)
		if key.TriggerID != 0 {
			leak.Run = key.String()
		}
		if node != 0 {
			leak.Node = &node
		}
		if since != 0 {
			at := db.Instant(since)
			leak.Since = &at
		}
		return leak, err
	}, leaks, run.AppID(app), before.UnixMilli(), limit)
	if err != nil {
		return nil, fmt.Errorf("look for leaks of app %s: %w", app, err)
	}
	return found, nil
}
