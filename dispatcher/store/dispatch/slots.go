package dispatch

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// waitingNode is the node of runs that wait for a slot. No node adopts them, and they are found by job in
// live_runs_node. Once they may ask again, their node is 0. The slot of an endpoint also has this node while a run
// waits for it, until the run has asked again.
const waitingNode = -1

// The statements of slots. A change of the slots of a job requires the lock of the job's row, so only one node at a
// time decides. Jobs locked by others are left out: the caller comes back to them, and other jobs do not wait for them.
const lockBounds = ` SELECT j.id, j.concurrency_policy, j.max_concurrency, j.queue_limit, j.endpoint_concurrency
	FROM b JOIN jobs AS j ON j.id = b.id ORDER BY j.id`

// heldSlots are the slots with the state of their runs and nodes. The token of an ended run is 0. A retried run chooses
// its endpoint again, so it has no slot of an endpoint until then.
func heldSlots(f db.Flavor) string {
	return ` SELECT s.job_id, s.scheduled_at, s.trigger_id, s.kind, coalesce(r.node, 0), coalesce(r.token, 0), coalesce(r.attempt, 0),
		r.job_id IS NOT NULL AND (s.endpoint = '' OR r.state <> 'retrying'), s.node, s.token, coalesce(o.state, 'dead'),
		CASE WHEN r.state = 'waiting_shards' THEN CASE WHEN EXISTS (` + shardsInFlight + `) THEN 1 ELSE 0 END ELSE 0 END, s.endpoint
	FROM b JOIN slots AS s ON s.job_id = b.id
		LEFT JOIN live_runs AS r ON` + f.SameRun("r", "s.scheduled_at", "s.trigger_id", "s.kind") + `
		LEFT JOIN nodes AS o ON o.id = s.node`
}

// From $1 on: db.SlotColumns
const grantSlots = ` INSERT INTO slots (job_id, scheduled_at, trigger_id, kind, endpoint, node, token, since)
	SELECT b.job_id, b.scheduled_at, b.trigger_id, b.kind, b.endpoint, b.node, b.token, b.now FROM b WHERE 1 = 1
	ON CONFLICT (job_id, scheduled_at, trigger_id, kind, endpoint) DO UPDATE SET node = excluded.node, token = excluded.token,
		since = CASE WHEN slots.node = -1 THEN excluded.since ELSE slots.since END`

// From here on: from $1 on db.SlotColumns
const freeSlots = ` DELETE FROM slots
	WHERE (job_id, scheduled_at, trigger_id, kind, endpoint) IN (SELECT job_id, scheduled_at, trigger_id, kind, endpoint FROM b)`

// An ended attempt leaves the slot to its run, which may have others.
const backSlots = ` UPDATE slots AS s SET node = 0, token = 0 FROM b WHERE s.job_id = b.job_id AND s.scheduled_at = b.scheduled_at
	AND s.trigger_id = b.trigger_id AND s.kind = b.kind AND s.token = b.token`

const waitRuns = ` UPDATE live_runs AS r SET state = 'queued', node = -1, token = 0, claimed_at = NULL, attempt = r.attempt - 1,
		waited = CASE WHEN r.attempt = 1 THEN 'slot' ELSE r.waited END
	FROM b WHERE`

const wakeRuns = ` UPDATE live_runs AS r SET node = 0 FROM b WHERE`

// chooseSkipped chooses skipped runs, which have made no attempt.
func chooseSkipped(f db.Flavor) string {
	return `SELECT` + ChosenEnd(End{
		at: `b.now`, attempt: `CASE WHEN r.node = -1 THEN r.attempt ELSE r.attempt - 1 END`, status: `0`, State: `'skipped'`,
		Class: `''`, Message: `b.error`,
	}) + ` FROM b JOIN live_runs AS r ON` + db.Fence(f)
}

// chooseCancelled chooses cancelled runs. They were attempted if a node has them.
func chooseCancelled(f db.Flavor) string {
	return `SELECT` + ChosenEnd(End{at: `b.now`, State: `'cancelled'`, Class: `'cancelled'`, Message: `b.error`}) + `,
		CASE WHEN r.node > 0 AND r.claimed_at IS NOT NULL AND r.state <> 'retrying' THEN 1 ELSE 0 END AS attempted
	FROM b JOIN live_runs AS r ON` + db.Fence(f)
}

// When an attempt began whose node has not recorded that: as claimed, but a fire is claimed ahead of its time.
const (
	begunAt   = `coalesce(c.of_started, CASE WHEN c.of_claimed > c.of_at THEN c.of_claimed ELSE c.of_at END)`
	claimedAt = `CASE WHEN r.claimed_at > r.scheduled_at THEN r.claimed_at ELSE r.scheduled_at END`
)

// The row of a cancelled attempt can take a late result.
const insertCancelled = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
	http_status, state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.of_node, ` + begunAt + `, c.of_end, 0, 'cancelled',
	'cancelled', c.of_error
	FROM c WHERE c.attempted = 1 ON CONFLICT DO NOTHING`

// contendedJobs are the jobs with waiting runs, or with slots left by ended runs.
func contendedJobs(f db.Flavor) string {
	return `SELECT r.job_id FROM live_runs AS r WHERE r.node = -1 AND ` + db.NotParked + `
	UNION SELECT s.job_id FROM slots AS s LEFT JOIN live_runs AS r ON` + f.SameRun("r", "s.scheduled_at", "s.trigger_id", "s.kind") + `
	WHERE r.job_id IS NULL`
}

// slotStatements are the statements of slots, which one transaction runs in this order.
type slotStatements struct {
	contended, LockJobs, Leave, Held, Asking, Waiting, Edges string
	Left                                                     string // see LeftSlots
	Gone                                                     string // from $1 on: db.WaitedColumns
	Free, Wait, Wake, Grant                                  string
	slotEnds
}

// slotEnds end runs that wait for a slot. $1 now, from $2 on: db.EndColumns
type slotEnds struct{ Cancel, Skip, Complete db.Statement }

func slotStatementsOf(f db.Flavor) slotStatements {
	jobs, slots, keys := f.Rows(0, 1, "", db.IDColumns...), f.Rows(0, 1, "", db.SlotColumns...), f.Rows(0, 1, "", db.KeyColumns...)
	ends := f.Rows(1, 2, "", db.EndColumns...)
	return slotStatements{
		contended: contendedJobs(f), Left: leftSlots(f),
		LockJobs: jobs + lockBounds + db.LockOf(f.ForUpdate(), "j") + f.LockRows(db.SkipLockedRows),
		Held:     jobs + heldSlots(f),
		Asking:   keys + ` SELECT` + db.ContenderColumns + ` FROM b JOIN live_runs AS r ON` + db.Fence(f),
		Waiting: f.Rows(0, 1, "-1 AS waits", db.IDColumns...) + ` SELECT` + db.ContenderColumns +
			` FROM b` + f.RunsOf(`b.waits`, `r.job_id = b.id`, ` OFFSET 0`),
		Edges: f.Edges(),
		Gone:  f.Rows(0, 1, "", db.WaitedColumns...) + goneEndpoints,
		Free:  slots + freeSlots, Leave: slots + backSlots,
		Wait: keys + waitRuns + db.Fence(f), Wake: keys + wakeRuns + db.OfBatch(f) + ` AND r.node = -1`,
		Grant: slots + grantSlots,
		slotEnds: slotEnds{
			Skip:     f.Steps(1, ends, chooseSkipped(f), db.LockToDelete, 1, EndSteps(f, "")...),
			Cancel:   f.Steps(1, ends, chooseCancelled(f), db.LockToDelete, 1, append([]string{insertCancelled}, EndSteps(f, "")...)...),
			Complete: f.Steps(1, ends, chooseCompleted(f), db.LockToDelete, 1, append([]string{insertCompleted}, followedEndSteps(f)...)...),
		},
	}
}

// slotsAtOnce is how many runs one transaction decides about.
const slotsAtOnce = 100

// Acquire gives slots to runs that are about to begin, and returns those that may begin.
func (s *Store) Acquire(ctx context.Context, runs []run.HeldRun) (granted []run.HeldRun, err error) {
	for _, run := range runs {
		s.Rollbacks.handedBack(run.Key) // it may have to wait
	}
	if err := s.unfoldRuns(ctx, runs); err != nil {
		return nil, err
	}
	err = s.decideSlots(ctx, runs, func(ctx context.Context, t *Tx, jobs map[int64]lockedJob,
		some []run.HeldRun) (func(), error) {
		c, err := s.arbitrate(ctx, t, jobs, question{runs: some})
		return func() { granted = append(granted, runsOf(c.begin)...) }, err
	}, s.heldAside(ctx, dispatcher.WorkSlots))
	if err != nil {
		err = fmt.Errorf("acquire slots for %d runs: %w", len(runs), err)
	}
	return db.SortedBy(granted, db.HeldKey), err
}

// ReleaseSlots releases the slots of attempts, and grants free slots to waiting runs.
func (s *Store) ReleaseSlots(ctx context.Context, runs []run.HeldRun) error {
	err := s.decideSlots(ctx, runs, func(ctx context.Context, t *Tx, jobs map[int64]lockedJob,
		some []run.HeldRun) (func(), error) {
		slots := make([]*Contender, len(some))
		for i, run := range some {
			slots[i] = &Contender{Held: run}
		}
		if err := t.Exec(ctx, t.Hot.Slots.Leave, slotArgs(t, slots)...); err != nil {
			return nil, err
		}
		_, err := s.arbitrate(ctx, t, jobs, question{})
		return func() {}, err
	}, func(run run.HeldRun, why error) error {
		return s.SetJobAside(ctx, dispatcher.WorkSlots, run.JobID, why, time.Time{})
	})
	if err != nil {
		return fmt.Errorf("release slots of %d runs: %w", len(runs), err)
	}
	return nil
}

// decide decides about the slots of some locked jobs for some of their runs. Its result is called after the commit.
type decide func(ctx context.Context, t *Tx, jobs map[int64]lockedJob, runs []run.HeldRun) (done func(), err error)

// slotRounds is how often a locked job is tried, and slotPause the longest time between tries. Another node's decision
// about the same job takes less.
const (
	slotRounds = 5
	slotPause  = 20 * time.Millisecond
)

// decideSlots decides about the jobs of runs in portions. Runs that fail alone are passed to alone. Runs of jobs that
// stay locked are in its error, a dispatcher.UndecidedError.
func (s *Store) decideSlots(ctx context.Context, runs []run.HeldRun, do decide, alone func(run.HeldRun, error) error) error {
	left := db.SortedBy(runs, db.HeldKey)
	for round := 1; len(left) > 0; round++ {
		var locked []run.HeldRun
		for part := range slices.Chunk(left, slotsAtOnce) {
			err := InParts(ctx, s.OfStored, part, func(some []run.HeldRun) error {
				skipped, err := s.decidePart(ctx, some, do)
				locked = append(locked, skipped...)
				return err
			}, alone)
			if err != nil {
				return err
			}
		}
		if left = locked; len(left) == 0 {
			return nil
		}
		if round == slotRounds {
			return &dispatcher.UndecidedError{Runs: left}
		}
		backoff.Sleep(ctx, rand.N(slotPause))
	}
	return nil
}

// decidePart decides about one portion, and returns the runs of jobs locked by others.
func (s *Store) decidePart(ctx context.Context, part []run.HeldRun, do decide) (locked []run.HeldRun, err error) {
	var done func()
	err = s.Change(ctx, input.Change{}, func(ctx context.Context, t *Tx) error {
		jobs, err := lockJobs(ctx, t, jobsOf(part))
		if err != nil {
			return err
		}
		var some []run.HeldRun
		locked, done = nil, func() {}
		for _, run := range part {
			if _, ours := jobs[run.JobID]; ours {
				some = append(some, run)
			} else {
				locked = append(locked, run)
			}
		}
		if len(some) == 0 {
			return nil
		}
		done, err = do(ctx, t, jobs, some)
		return err
	})
	if err == nil {
		done()
	}
	return locked, err
}

// GrantWaiting grants free slots to waiting runs of all jobs. A job that is locked waits for the next round.
func (s *Store) GrantWaiting(ctx context.Context) error {
	contended, err := db.Collect(ctx, s.db.Read, db.ScanInt, s.Hot.Slots.contended)
	if err != nil {
		return fmt.Errorf("look for slots to grant: %w", err)
	}
	contended = WithoutAsides(s.Asides, dispatcher.WorkSlots, contended, JobItem, db.WallClock())
	for part := range slices.Chunk(contended, slotsAtOnce) {
		err := InParts(ctx, s.OfStored, part, func(some []int64) error {
			return s.Change(ctx, input.Change{}, func(ctx context.Context, t *Tx) error {
				jobs, err := lockJobs(ctx, t, some)
				if err != nil || len(jobs) == 0 {
					return err
				}
				_, err = s.arbitrate(ctx, t, jobs, question{gone: true})
				return err
			})
		}, func(job int64, why error) error {
			return s.SetJobAside(ctx, dispatcher.WorkSlots, job, why, time.Time{})
		})
		if err != nil {
			return fmt.Errorf("grant slots of %d jobs: %w", len(part), err)
		}
	}
	return nil
}

// jobsOf returns the distinct jobs of runs in locking order.
func jobsOf(runs []run.HeldRun) []int64 {
	ids := make([]int64, len(runs))
	for i, run := range runs {
		ids[i] = run.JobID
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// lockedJob has the bounds for the runs of a job, and for those at each endpoint.
type lockedJob struct {
	dispatcher.Job
	atEndpoint run.ConcurrencyPolicy
}

// lockJobs locks jobs and returns their bounds by id. It leaves out jobs locked by others.
func lockJobs(ctx context.Context, t *Tx, ids []int64) (map[int64]lockedJob, error) {
	jobs := make(map[int64]lockedJob, len(ids))
	err := db.EachRow(ctx, t, func(row db.Scanner) error {
		var id int64
		var j lockedJob
		err := row.Scan(&id, &j.ConcurrencyPolicy, &j.MaxConcurrency, &j.QueueLimit, &j.atEndpoint)
		jobs[id] = j
		return err
	}, t.Hot.Slots.LockJobs, t.Batch(ids)...)
	return jobs, err
}

// notJustEnded is the condition that a run, named by its columns, did not end after $2. Otherwise nodes may be about to
// free its slot.
func notJustEnded(of, kind string) string {
	return ` NOT EXISTS (SELECT 1 FROM runs AS h WHERE h.scheduled_at = ` + of + `.scheduled_at AND h.trigger_id = ` + of + `.trigger_id
		AND h.kind = ` + kind + ` AND h.ended_at > $2 LIMIT 1 OFFSET 0)`
}

// leaks finds leftovers of runs of an app, and runs that cannot continue. Only verify calls it, so it reads all
// that is held now, but not the history.
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

// Leaks returns leftovers of ended runs of an app, and runs that cannot continue.
func (s *Store) Leaks(ctx context.Context, app string, before time.Time, limit int) ([]dispatcher.Leak, error) {
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

// Nodes free their own slots, the next probe removes a host without runs, and any node queues the followers of ends.
// The leaks below are those that block a run permanently: only MendLeaks finds it again.

// leaksToMend are the runs that wait for a host without a probe, and those that wait for a callback without a deadline.
// The hosts are found through an index from one to the next, however many runs wait for each.
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

// leakToMend is a run that only MendLeaks lets continue.
type leakToMend struct {
	kind dispatcher.LeakKind
	key  run.Key
	job  int64
}

// MendLeaks lets blocked runs continue. A run that cannot be mended is set aside.
func (s *Store) MendLeaks(ctx context.Context, limit int, now time.Time) (mended []dispatcher.Leak, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	item := func(l leakToMend) string { return l.key.String() }
	leaks, err := db.ReadRows(ctx, s.db.Read, func(f *leakToMend) []any {
		return []any{&f.kind, db.InstantColumn(&f.key.ScheduledAt), &f.key.TriggerID, db.KindColumn(&f.key), &f.job}
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

// mendLeak mends a leak, unless it has been resolved. A run that waited for a host is retried, and waits again if the
// circuit is open. A callback without a deadline gets the longest possible one.
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

// AddFirstStarts adds the start of their first attempt to the runs of a page that were retried, or wait for a retry.
func AddFirstStarts(ctx context.Context, f db.Flavor, q db.Querier, runs []run.Run) error {
	of := make(map[run.Key]*run.Run, len(runs))
	for i := range runs {
		r := &runs[i]
		if r.Attempt < 1 || r.Attempt == 1 && r.State != run.Retrying {
			continue
		}
		key, err := run.ParseKey(r.ID)
		if err != nil {
			return err
		}
		of[key] = r
	}
	starts, err := FirstStarts(ctx, f, q, slices.Collect(maps.Keys(of)))
	for key, at := range starts {
		of[key].FirstStartedAt = &at
	}
	return err
}

// FirstStarts returns when the first attempts of runs began that were followed by another one.
func FirstStarts(ctx context.Context, f db.Flavor, q db.Querier, keys []run.Key) (map[run.Key]time.Time, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	k := db.NewKeys(len(keys))
	for _, key := range keys {
		k.Add(key, 0, 0)
	}
	// $1 first day, $2 end of the last, from $3 on: the keys
	query := f.Rows(0, 3, "", db.KeyColumns[:3]...) + ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.started_at
		FROM b JOIN attempts AS r ON r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind
			AND r.attempt = 1` + db.Within
	starts := make(map[run.Key]time.Time, len(keys))
	err := db.EachRow(ctx, q, func(row db.Scanner) error {
		var key run.Key
		var at time.Time
		err := row.Scan(db.KeyRefs(&key, db.InstantColumn(&at))...)
		starts[key] = at
		return err
	}, query, db.DatedIn(f, k.At, k.Trigger, k.Kind)...)
	if err != nil {
		return nil, fmt.Errorf("read the first attempts of %d runs: %w", len(keys), err)
	}
	return starts, nil
}
