package dispatch

import (
	"context"
	"fmt"
	"slices"
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
	WHERE j.app_id = $1 AND e.ended_at <= $2 AND e.try_at = 0 AND ` + NoRollback + `
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

// Slots are freed by the nodes that have them, a host without runs by its next probe, and ends are followed by any node. The leaks
// below are those that keep a run for good: nothing else looks at it again.

// leaksToMend are the runs that wait for a host that no probe asks for, and those that wait for a callback without a deadline. What is
// waited for is found by an index that leads from one to the next, however many runs wait for each.
// $1 limit
const leaksToMend = `SELECT '` + string(dispatcher.LeakWaiting) + `' AS kind_of_leak, r.scheduled_at, r.trigger_id, r.kind, r.job_id
	FROM (WITH RECURSIVE s (id) AS (
			SELECT min(waits_for) FROM live_runs WHERE waits_for <> 0
			UNION ALL SELECT (SELECT min(r.waits_for) FROM live_runs AS r WHERE r.waits_for <> 0 AND r.waits_for > s.id)
			FROM s WHERE s.id IS NOT NULL
		) SELECT s.id FROM s WHERE s.id IS NOT NULL) AS s JOIN live_runs AS r ON r.waits_for = s.id AND r.waits_for <> 0
	WHERE NOT EXISTS (SELECT 1 FROM host_waits AS w WHERE w.id = s.id) AND r.node <> -3
	UNION ALL SELECT '` + string(dispatcher.LeakCallback) + `', r.scheduled_at, r.trigger_id, r.kind, r.job_id FROM live_runs AS r
	WHERE r.next_attempt_at IS NULL AND r.state IN ('retrying', 'waiting_callback') AND r.waits_for = 0
		AND r.state = 'waiting_callback' AND r.node <> -3
	LIMIT $1`

// leakToMend is a run that nothing else would let go on.
type leakToMend struct {
	kind dispatcher.LeakKind
	key  run.Key
	job  int64
}

// MendLeaks lets runs go on that nothing else would let go. One that cannot be mended is set aside.
func (s *Store) MendLeaks(ctx context.Context, limit int, now time.Time) (mended []dispatcher.Leak, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	item := func(l leakToMend) string { return l.key.String() }
	leaks, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (f leakToMend, err error) {
		return f, row.Scan(&f.kind, db.InstantColumn(&f.key.ScheduledAt), &f.key.TriggerID, db.KindColumn(&f.key), &f.job)
	}, leaksToMend, limit+s.Asides.Count(dispatcher.WorkRetry))
	if err == nil && len(leaks) > 0 {
		if now, err = s.db.OrClock(ctx, now); err == nil {
			leaks = WithoutAsides(s.Asides, dispatcher.WorkRetry, leaks, item, now)
		}
	}
	for _, leak := range leaks[:min(len(leaks), limit)] {
		if err != nil {
			break
		}
		err = s.OrAside(ctx, func() error {
			done, err := s.mendLeak(ctx, leak, now)
			if done {
				mended = append(mended, dispatcher.Leak{Kind: leak.kind, Run: item(leak)})
			}
			return err
		}, func(why error) error {
			return s.setRunAside(ctx, failedRun{dispatcher.WorkRetry, leak.key, 0, why}, now)
		})
	}
	if err != nil {
		return mended, fmt.Errorf("mend leaks: %w", err)
	}
	return mended, nil
}

// mendLeak mends a leak, unless it is none any more. A run that waited for a host is attempted again, and waits again if the circuit is
// open. Without a deadline, the longest that any callback may take decides.
func (s *Store) mendLeak(ctx context.Context, leak leakToMend, now time.Time) (bool, error) {
	// $1 to $3 the key, $4 now or how long a callback may take, $5 job
	mend := `UPDATE live_runs SET waits_for = 0, next_attempt_at = $4 WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3
		AND job_id = $5 AND waits_for <> 0 AND NOT EXISTS (SELECT 1 FROM host_waits AS w WHERE w.id = live_runs.waits_for)`
	last := now.UnixMilli()
	if leak.kind == dispatcher.LeakCallback {
		mend = `UPDATE live_runs SET next_attempt_at = coalesce(started_at, claimed_at, scheduled_at) + $4
			WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $5 AND state = 'waiting_callback' AND next_attempt_at IS NULL`
		last = run.MostCallbackWait.Milliseconds()
	}
	n, err := db.Affect(ctx, s.db.Write, mend, append(KeyArgs(leak.key), last, leak.job)...)
	return n > 0, err
}

// firstAttempt is when the first attempt of a run began.
type firstAttempt struct {
	run string // its id
	at  time.Time
}

// AddFirstStarts adds to those runs of a page that were attempted again, or wait for that, when their first attempts began.
func AddFirstStarts(ctx context.Context, f db.Flavor, q db.Querier, runs []run.Run) error {
	of := make(map[string]*run.Run, len(runs))
	k := db.NewKeys(len(runs))
	for i := range runs {
		r := &runs[i]
		if r.Attempt < 1 || r.Attempt == 1 && r.State != run.Retrying {
			continue
		}
		key, err := run.ParseKey(r.ID)
		if err != nil {
			return err
		}
		k.Add(key, 0, 0)
		of[r.ID] = r
	}
	if len(of) == 0 {
		return nil
	}
	// $1 first day, $2 end of the last, from $3 on: the keys
	query := f.Rows(0, 3, "", db.KeyColumns[:3]...) + ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.started_at
		FROM b JOIN attempts AS r ON r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind
			AND r.attempt = 1` + db.Within
	bounds := []any{db.Day(slices.Min(k.At)), db.Day(slices.Max(k.At)) + db.DayMillis}
	found, err := db.Collect(ctx, q, scanFirstStart, query, append(bounds, f.Batch(k.At, k.Trigger, k.Kind)...)...)
	if err != nil {
		return fmt.Errorf("read the first attempts of %d runs: %w", len(of), err)
	}
	for _, one := range found {
		if run := of[one.run]; run != nil {
			run.FirstStartedAt = &one.at
		}
	}
	return nil
}

func scanFirstStart(row db.Scanner) (first firstAttempt, err error) {
	var key run.Key
	err = row.Scan(db.InstantColumn(&key.ScheduledAt), &key.TriggerID, db.KindColumn(&key), db.InstantColumn(&first.at))
	first.run = key.String()
	return first, err
}
