package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

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
	}, leaksToMend, limit+s.asides.count(dispatcher.WorkRetry))
	if err == nil && len(leaks) > 0 {
		if now, err = s.db.OrClock(ctx, now); err == nil {
			leaks = withoutAsides(s, dispatcher.WorkRetry, leaks, item, now)
		}
	}
	for _, leak := range leaks[:min(len(leaks), limit)] {
		if err != nil {
			break
		}
		err = s.orAside(ctx, func() error {
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
	n, err := db.Affect(ctx, s.db.Write, mend, append(keyArgs(leak.key), last, leak.job)...)
	return n > 0, err
}
