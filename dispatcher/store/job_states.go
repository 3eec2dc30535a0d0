package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// writeState writes the state that a change of the definition makes. Whether a run is live is for
// the next roll-up to see.
func writeState(ctx context.Context, t *tx, job dispatcher.Job) error {
	// $1 id, $2 state, $3 when it became COMPLETE
	const write = `UPDATE jobs SET state = $2, completed_at = $3 WHERE id = $1`
	var completed *int64
	if job.State == dispatcher.JobComplete {
		completed = db.OrNull(t.now)
	}
	_, err := t.ExecContext(ctx, write, job.Key(), job.State, completed)
	return err
}

// stateRow is a job as its state is worked out from.
type stateRow struct {
	jobRow
	ids []int64 // of the triggers; nil: their names cannot be read
}

// RollUp works out the states of the next page of jobs, and writes those that changed.
func (s *Store) RollUp(ctx context.Context, limit int) (rolled dispatcher.RolledUp, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	after, err := cursor(ctx, s.db.Read, dispatcher.LockStates)
	if err != nil {
		return rolled, err
	}
	// $1 last id of the page before, $2 limit
	const page = `SELECT j.id, a.name, j.name, j.origin, j.enabled, j.paused, j.app_paused, j.trigger_names, j.trigger_origins,
			j.revision, j.state
		FROM jobs AS j
		JOIN apps AS a ON a.id = j.app_id WHERE j.id > $1 AND j.deleted_at IS NULL AND j.part_of = 0 ORDER BY j.id LIMIT $2`
	jobs, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (j stateRow, err error) {
		err = row.Scan(&j.ID, &j.App, &j.Name, &j.Origin, &j.Enabled, &j.Paused, &j.AppPaused, &j.triggers, &j.origins, &j.Revision, &j.State)
		return j, err
	}, page, after, limit)
	if err != nil {
		return rolled, err
	}
	of := func(j stateRow) string { return jobItem(j.ID) }
	err = inParts(ctx, s.ofStored, withoutAsides(s.asides, dispatcher.WorkStates, jobs, of, db.WallClock()), func(part []stateRow) error {
		changed, err := s.rollUpPage(ctx, part)
		rolled.Changed += changed
		return err
	}, func(j stateRow, why error) error {
		return s.setJobAside(ctx, dispatcher.WorkStates, j.ID, why, time.Time{})
	})
	if err != nil {
		return rolled, err
	}
	next := int64(0)
	if rolled.More = len(jobs) == limit; rolled.More {
		next = jobs[limit-1].ID
	}
	return rolled, moveCursor(ctx, s.db.Write, dispatcher.LockStates, after, next)
}

// rollUpPage works out the states of some jobs, and returns how many changed.
func (s *Store) rollUpPage(ctx context.Context, jobs []stateRow) (int, error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	triggers, err := s.triggerStates(ctx, jobs)
	if err != nil {
		return 0, fmt.Errorf("read states of triggers: %w", err)
	}
	var undecided []int64 // where it matters whether a run is live, which is dear to ask
	for i := range jobs {
		j := &jobs[i]
		j.Triggers = make(map[string]dispatcher.Trigger, len(j.ids))
		for _, id := range j.ids {
			if t, found := triggers[id]; found {
				j.Triggers[t.name] = t.Trigger
			}
		}
		if j.ids != nil && j.RollUp(false) != j.RollUp(true) {
			undecided = append(undecided, j.ID)
		}
	}
	busy, err := s.busyJobs(ctx, undecided)
	if err != nil {
		return 0, fmt.Errorf("read live runs: %w", err)
	}
	var ids, revisions []int64
	var from, to []string
	for _, j := range jobs {
		state := dispatcher.JobError // of names that cannot be read
		if j.ids != nil {
			state = j.RollUp(busy[j.ID])
		}
		if state != j.State {
			ids, revisions = append(ids, j.ID), append(revisions, j.Revision)
			from, to = append(from, string(j.State)), append(to, string(state))
		}
	}
	return s.writeStates(ctx, ids, revisions, from, to)
}

// triggerStates returns the triggers of jobs by id, with what a state is worked out from.
func (s *Store) triggerStates(ctx context.Context, jobs []stateRow) (map[int64]triggerRow, error) {
	var ids []int64
	for i := range jobs {
		j := &jobs[i]
		if err := j.decodeTriggers(); err != nil {
			continue // the job is in error
		}
		j.ids = make([]int64, 0, len(j.TriggerNames))
		for _, name := range j.TriggerNames {
			j.ids = append(j.ids, j.TriggerKey(name))
		}
		ids = append(ids, j.ids...)
	}
	slices.Sort(ids)
	states := make(map[int64]triggerRow, len(ids))
	// From $1 on: ids
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT t.id, t.name, t.enabled, t.paused, c.state
		FROM b JOIN triggers AS t ON t.id = b.id JOIN trigger_clock AS c ON c.id = t.id`
	for some := range slices.Chunk(ids, movesAtOnce) {
		_, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (struct{}, error) {
			var t triggerRow
			err := row.Scan(&t.id, &t.name, &t.Enabled, &t.Paused, &t.State)
			states[t.id] = t
			return struct{}{}, err
		}, query, s.db.Batch(some)...)
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

// busyJobs returns those of some jobs that have runs which are not over. A run that is over, and whose claim holds
// others that are not, counts until the claim goes, which is soon: to look for it in the history is not worth it.
func (s *Store) busyJobs(ctx context.Context, ids []int64) (map[int64]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	// From $1 on: ids
	live := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT b.id FROM b WHERE EXISTS (SELECT 1 FROM live_runs AS r WHERE r.job_id = b.id)
		UNION SELECT f.job_id FROM (` + s.db.ClaimedFires() + `) AS f`
	found, err := db.Collect(ctx, s.db.Read, db.ScanInt, live, s.db.Batch(ids)...)
	busy := make(map[int64]bool, len(found))
	for _, id := range found {
		busy[id] = true
	}
	return busy, err
}

// writeStates writes those states that are not out of date, and returns how many.
func (s *Store) writeStates(ctx context.Context, ids, revisions []int64, from, to []string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	// $1 now, from $2 on: the columns
	write := s.db.Rows(1, 2, "", db.Col("id", db.Bigint), db.Col("revision", db.Bigint), db.Col("before", db.Text), db.Col("after", db.Text)) +
		` UPDATE jobs AS j SET state = b.after, completed_at = CASE WHEN b.after = 'COMPLETE' THEN b.now END FROM b
			WHERE j.id = b.id AND j.revision = b.revision AND j.state = b.before`
	var changed int64
	err := s.change(ctx, input.Change{}, func(ctx context.Context, t *tx) error {
		var err error
		changed, err = t.execute(ctx, write, append([]any{t.now.UnixMilli()}, s.db.Batch(ids, revisions, from, to)...)...)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write states of %d jobs: %w", len(ids), err)
	}
	return int(changed), nil
}
