package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

// waitingNode is the node of runs that wait for a slot. No node adopts them, and they are found by
// job in runs_live. Once they may ask again, their node is 0.
const waitingNode = -1

// holders are the values of node that a live run can have: nobody, waiting for a slot, and the nodes in
// the table, dead ones too.
const holders = `SELECT 0 AS id UNION ALL SELECT -1 UNION ALL SELECT id FROM nodes`

// The statements of slots. Anyone who changes the slots of a job has locked the job's row, so that
// of any number of nodes one at a time decides. From $1 on: ids of jobs, unless they say otherwise.
const lockBounds = ` SELECT j.id, j.concurrency_policy, j.max_concurrency, j.queue_limit FROM b JOIN jobs AS j ON j.id = b.id ORDER BY j.id`

// heldSlots are the slots, and what has become of their runs and nodes.
const heldSlots = ` SELECT s.job_id, s.scheduled_at, s.trigger_id, s.kind, s.node, s.token, coalesce(r.token, 0), coalesce(o.state, 'dead')
	FROM b JOIN slots AS s ON s.job_id = b.id
		LEFT JOIN runs AS r ON r.scheduled_at = s.scheduled_at AND r.trigger_id = s.trigger_id AND r.kind = s.kind
		LEFT JOIN nodes AS o ON o.id = s.node`

const liveRuns = ` SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.node, r.token, r.attempt
	FROM (` + holders + `) AS g
		CROSS JOIN b JOIN runs AS r ON r.node = g.id AND r.job_id = b.id AND r.live`

// From $1 on: slotColumns
const grantSlots = ` INSERT INTO slots (job_id, scheduled_at, trigger_id, kind, node, token, since)
	SELECT b.job_id, b.scheduled_at, b.trigger_id, b.kind, b.node, b.token, b.now FROM b WHERE 1 = 1
	ON CONFLICT (job_id, scheduled_at, trigger_id, kind) DO UPDATE SET node = excluded.node, token = excluded.token`

// From here on: $1 and $2 those of within, from $3 on keyColumns, with error where it is named.
const freeSlots = ` DELETE FROM slots AS r WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT scheduled_at, trigger_id,
	kind FROM b)` + within

// An attempt that is over leaves the slot to its run, which may have others.
const leaveSlots = ` UPDATE slots AS r SET node = 0, token = 0 FROM b WHERE` + sameRun + ` AND r.token = b.token`

const waitRuns = ` UPDATE runs AS r SET state = 'queued', node = -1, token = 0, claimed_at = NULL, attempt = r.attempt - 1
	FROM b WHERE` + fence

const wakeRuns = ` UPDATE runs AS r SET node = 0 FROM b WHERE` + sameRun + ` AND r.node = -1 AND r.live = b.yes`

// A run that is skipped has made no attempt.
const skipRuns = ` UPDATE runs AS r SET live = FALSE, state = 'skipped', token = 0, ended_at = b.now, error = b.error,
		attempt = CASE WHEN r.node = -1 THEN r.attempt ELSE r.attempt - 1 END, node = CASE WHEN r.node = -1 THEN 0 ELSE r.node END
	FROM b WHERE` + fence

// The row of a cancelled attempt takes its late result.
const cancelAttempts = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
	http_status, state, class, error)
	SELECT r.scheduled_at, r.trigger_id, r.kind, r.attempt, r.node, coalesce(r.started_at, r.claimed_at), b.now, 0, 'cancelled',
	'cancelled', b.error
	FROM b JOIN runs AS r ON` + fence + ` WHERE r.node > 0 AND r.claimed_at IS NOT NULL AND r.state <> 'retrying' ON CONFLICT DO NOTHING`

const cancelRuns = ` UPDATE runs AS r SET live = FALSE, state = 'cancelled', token = 0, next_attempt_at = NULL,
	ended_at = b.now, class = 'cancelled', error = b.error
	FROM b WHERE` + fence

// contested are jobs of which runs wait, or slots are left of runs that have ended.
const contendedJobs = `SELECT r.job_id FROM runs AS r WHERE r.live AND r.node = -1
	UNION SELECT s.job_id FROM slots AS s
		LEFT JOIN runs AS r ON r.scheduled_at = s.scheduled_at AND r.trigger_id = s.trigger_id AND r.kind = s.kind
	WHERE coalesce(r.live, FALSE) = FALSE`

// slotStatements are the statements of slots, which one transaction runs in this order.
type slotStatements struct {
	lockJobs, leave, live, held, free, cancelAttempts, cancel, skip, wait, wake, grant string
}

// slotStatementsOf returns the statements of slots in a flavor.
func slotStatementsOf(f flavor) slotStatements {
	jobs, keys, ends := f.rows(0, 1, "", idColumns...), f.rows(0, 3, "", keyColumns...), f.rows(0, 3, "", endColumns...)
	return slotStatements{
		lockJobs: jobs + lockBounds + lockOf(f.lock(), "j"), live: jobs + liveRuns, held: jobs + heldSlots,
		free: keys + freeSlots, leave: keys + leaveSlots, wait: keys + waitRuns, wake: keys + wakeRuns,
		skip: ends + skipRuns, cancel: ends + cancelRuns, cancelAttempts: ends + cancelAttempts,
		grant: f.rows(0, 1, "", slotColumns...) + grantSlots,
	}
}

// slotsAtOnce is of how many jobs one transaction decides.
const slotsAtOnce = 100

// Acquire gives runs that are about to begin their slots, and returns those that may begin.
func (s *store) Acquire(ctx context.Context, runs []dispatcher.HeldRun) (granted []dispatcher.HeldRun, err error) {
	for _, run := range runs {
		s.rollbacks.handedBack(run.RunKey) // it may have to wait
	}
	for part := range slices.Chunk(sortedBy(runs, func(r dispatcher.HeldRun) dispatcher.RunKey { return r.RunKey }), slotsAtOnce) {
		var began []dispatcher.HeldRun
		err := s.change(ctx, dispatcher.Change{}, func(ctx context.Context, t *tx) error {
			var err error
			began, err = s.arbitrate(ctx, t, jobsOf(part), part)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("acquire slots for %d runs: %w", len(runs), err)
		}
		granted = append(granted, began...)
	}
	return granted, nil
}

// ReleaseSlots ends the hold of attempts on their slots, and grants free slots to waiting runs.
func (s *store) ReleaseSlots(ctx context.Context, runs []dispatcher.HeldRun) error {
	for part := range slices.Chunk(sortedBy(runs, func(r dispatcher.HeldRun) dispatcher.RunKey { return r.RunKey }), slotsAtOnce) {
		err := s.change(ctx, dispatcher.Change{}, func(ctx context.Context, t *tx) error {
			if _, err := t.lockJobs(ctx, jobsOf(part)); err != nil {
				return err
			}
			if _, err := t.ExecContext(ctx, t.hot.slots.leave, s.keysOf(part)...); err != nil {
				return err
			}
			_, err := s.arbitrate(ctx, t, jobsOf(part), nil)
			return err
		})
		if err != nil {
			return fmt.Errorf("release slots of %d runs: %w", len(runs), err)
		}
	}
	return nil
}

// GrantWaiting grants free slots to waiting runs of all jobs.
func (s *store) GrantWaiting(ctx context.Context) error {
	jobs, err := collect(ctx, s.read, scanInt, contendedJobs)
	if err != nil {
		return fmt.Errorf("look for slots to grant: %w", err)
	}
	for part := range slices.Chunk(jobs, slotsAtOnce) {
		err := s.change(ctx, dispatcher.Change{}, func(ctx context.Context, t *tx) error {
			_, err := s.arbitrate(ctx, t, part, nil)
			return err
		})
		if err != nil {
			return fmt.Errorf("grant slots of %d jobs: %w", len(part), err)
		}
	}
	return nil
}

// Slots returns the slots of a job that are taken.
func (s *store) Slots(ctx context.Context, app, job string) ([]dispatcher.Slot, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	if err := s.mustExist(ctx, app, job, ""); err != nil {
		return nil, err
	}
	// $1 job. A slot whose run has ended and whose node is dead is nobody's.
	const list = `SELECT s.scheduled_at, s.trigger_id, s.kind, coalesce(o.id, 0), s.since
		FROM slots AS s LEFT JOIN nodes AS o ON o.id = s.node AND o.state <> 'dead'
			LEFT JOIN runs AS r ON r.scheduled_at = s.scheduled_at AND r.trigger_id = s.trigger_id AND r.kind = s.kind
		WHERE s.job_id = $1 AND (coalesce(r.live, FALSE) OR o.id IS NOT NULL AND r.token <> s.token)
		ORDER BY s.scheduled_at, s.trigger_id, s.kind`
	return collect(ctx, s.read, func(row scanner) (slot dispatcher.Slot, err error) {
		var key dispatcher.RunKey
		var node dispatcher.NodeID
		err = row.Scan(instantColumn(&key.ScheduledAt), &key.TriggerID, kindColumn(&key.Kind), &node, instantColumn(&slot.Since))
		slot.Run = key.String()
		if node != 0 {
			slot.Node = &node
		}
		return slot, err
	}, list, dispatcher.JobID(app, job))
}

// jobsOf returns the jobs of runs, each once, in the order in which they are locked.
func jobsOf(runs []dispatcher.HeldRun) []int64 {
	ids := make([]int64, len(runs))
	for i, run := range runs {
		ids[i] = run.JobID
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// lockJobs locks jobs and returns what bounds their runs, by id.
func (t *tx) lockJobs(ctx context.Context, ids []int64) (map[int64]dispatcher.Job, error) {
	jobs := make(map[int64]dispatcher.Job, len(ids))
	_, err := collect(ctx, t, func(row scanner) (struct{}, error) {
		var id int64
		var j dispatcher.Job
		err := row.Scan(&id, &j.ConcurrencyPolicy, &j.MaxConcurrency, &j.QueueLimit)
		jobs[id] = j
		return struct{}{}, err
	}, t.hot.slots.lockJobs, t.batch(ids)...)
	return jobs, err
}
