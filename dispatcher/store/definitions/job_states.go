package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// writeState writes the state that follows from a change of the definition. The next roll-up considers whether a run is
// live.
func writeState(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	// $1 id, $2 state, $3 when it became complete
	const write = `UPDATE jobs SET state = $2, completed_at = $3 WHERE id = $1`
	var completed *int64
	if job.State == dispatcher.JobComplete {
		completed = db.OrNull(t.At)
	}
	return t.Exec(ctx, write, job.Key(), job.State, completed)
}

// stateRow is the data of a job that decides its state.
type stateRow struct {
	JobRow
	ids []int64 // of the triggers; nil: their names are unreadable
}

// RollUp computes the states of the next page of jobs, and writes the changed ones.
func (s *Store) RollUp(ctx context.Context, limit int) (rolled dispatcher.RolledUp, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	after, err := dispatch.Cursor(ctx, s.db.Read, dispatcher.LockStates)
	if err != nil {
		return rolled, err
	}
	// $1 last id of the page before, $2 limit
	const page = `SELECT j.id, a.name, j.name, j.origin, j.enabled, j.paused, j.app_paused, j.trigger_names, j.trigger_origins,
			j.revision, j.state
		FROM jobs AS j
		JOIN apps AS a ON a.id = j.app_id WHERE j.id > $1 AND j.deleted_at IS NULL AND j.part_of = 0 ORDER BY j.id LIMIT $2`
	jobs, err := db.ReadRows(ctx, s.db.Read, func(j *stateRow) []any {
		return []any{&j.ID, &j.App, &j.Name, &j.Origin, &j.Enabled, &j.Paused, &j.AppPaused, &j.triggers, &j.origins, &j.Revision, &j.State}
	}, page, after, limit)
	if err != nil {
		return rolled, err
	}
	of := func(j stateRow) string { return dispatch.JobItem(j.ID) }
	whole := dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkStates, jobs, of, db.WallClock())
	err = dispatch.InParts(ctx, s.dispatch.OfStored, whole,
		func(part []stateRow) error {
			changed, err := s.rollUpPage(ctx, part)
			rolled.Changed += changed
			return err
		}, func(j stateRow, why error) error {
			return s.dispatch.SetJobAside(ctx, dispatcher.WorkStates, j.ID, why, time.Time{})
		})
	if err != nil {
		return rolled, err
	}
	next := int64(0)
	if rolled.More = len(jobs) == limit; rolled.More {
		next = jobs[limit-1].ID
	}
	return rolled, dispatch.MoveCursor(ctx, s.db.Write, dispatcher.LockStates, after, next)
}

// rollUpPage computes the states of some jobs, and returns how many changed.
func (s *Store) rollUpPage(ctx context.Context, jobs []stateRow) (int, error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	triggers, err := s.triggerStates(ctx, jobs)
	if err != nil {
		return 0, fmt.Errorf("read states of triggers: %w", err)
	}
	var undecided []int64 // here live runs matter, which are expensive to query
	for i := range jobs {
		j := &jobs[i]
		j.Triggers = make(map[string]dispatcher.Trigger, len(j.ids))
		for _, id := range j.ids {
			if t, found := triggers[id]; found {
				j.Triggers[t.Name] = t.Trigger
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
		state := dispatcher.JobError // for unreadable names
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

// triggerStates returns the triggers of jobs by id, with the data that decides a state.
func (s *Store) triggerStates(ctx context.Context, jobs []stateRow) (map[int64]dispatch.TriggerRow, error) {
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
	states := make(map[int64]dispatch.TriggerRow, len(ids))
	// From $1 on: ids
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT t.id, t.name, t.enabled, t.paused, c.state
		FROM b JOIN triggers AS t ON t.id = b.id JOIN trigger_clock AS c ON c.id = t.id`
	for some := range slices.Chunk(ids, movesAtOnce) {
		err := db.EachRow(ctx, s.db.Read, func(row db.Scanner) error {
			var t dispatch.TriggerRow
			err := row.Scan(&t.ID, &t.Name, &t.Enabled, &t.Paused, &t.State)
			states[t.ID] = t
			return err
		}, query, s.db.Batch(some)...)
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

// busyJobs returns the jobs that have unfinished runs. A finished run counts until its claim is deleted, if the claim
// holds unfinished ones. That happens soon; searching the history for it is not worth it.
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

// writeStates writes the states that are not out of date, and returns how many.
func (s *Store) writeStates(ctx context.Context, ids, revisions []int64, from, to []string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	// $1 now, from $2 on: the columns
	write := s.db.Rows(1, 2, "", db.Col("id", db.Bigint), db.Col("revision", db.Bigint), db.Col("before", db.Text), db.Col("after", db.Text)) +
		` UPDATE jobs AS j SET state = b.after, completed_at = CASE WHEN b.after = 'complete' THEN b.now END FROM b
			WHERE j.id = b.id AND j.revision = b.revision AND j.state = b.before`
	var changed int64
	err := s.dispatch.Change(ctx, input.Change{}, func(ctx context.Context, t *dispatch.Tx) error {
		var err error
		changed, err = t.Affect(ctx, write, append([]any{t.At.UnixMilli()}, s.db.Batch(ids, revisions, from, to)...)...)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write states of %d jobs: %w", len(ids), err)
	}
	return int(changed), nil
}

// ObjectiveHour is the span of a count of an objective, in milliseconds.
const ObjectiveHour = 60 * 60 * 1000

// ObjectiveColumn stores an objective; empty text: none.
func ObjectiveColumn(o **dispatcher.Objective) any {
	return db.ConvertedColumn(o, func(text string) *dispatcher.Objective {
		var objective dispatcher.Objective
		if text == "" || json.Unmarshal([]byte(text), &objective) != nil {
			return nil
		}
		return &objective
	}, func(o *dispatcher.Objective) string {
		if o == nil {
			return ""
		}
		text, err := json.Marshal(o)
		if err != nil {
			panic(err) // a duration and a text always marshal
		}
		return string(text)
	})
}

// writeObjective starts the counts of fires for a job with an objective. After a change of its bound they are counted
// again, as far back as the ledger and the window reach. The counts of a job that lost its objective are removed when
// they are next updated.
func writeObjective(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	if job.Objective == nil {
		return nil
	}
	from := max(t.At.Add(-dispatcher.ObjectiveWindow).UnixMilli(), job.CreatedAt.UnixMilli())
	// $1 job, $2 within, $3 beginning
	const put = `INSERT INTO objectives (job_id, within, counted_from, checked_to) VALUES ($1, $2, $3, $3)
		ON CONFLICT (job_id) DO UPDATE SET within = excluded.within, counted_from = excluded.counted_from,
			checked_to = excluded.checked_to, pending_after = 0 WHERE objectives.within <> excluded.within`
	changed, err := t.Affect(ctx, put, job.Key(), db.ToMillis(job.Objective.Within), from-from%ObjectiveHour)
	if err == nil && changed > 0 {
		err = ForgetCounts(ctx, t, job.Key())
	}
	if err != nil {
		return fmt.Errorf("objective of job %s/%s: %w", job.App, job.Name, err)
	}
	return nil
}

// ForgetCounts removes the counts of a job and its cursors.
func ForgetCounts(ctx context.Context, t *dispatch.Tx, job int64) error {
	for _, table := range []string{"objective_triggers", "objective_pending", "objective_counts"} {
		if err := t.Exec(ctx, `DELETE FROM `+table+` WHERE job_id = $1`, job); err != nil {
			return err
		}
	}
	return nil
}
