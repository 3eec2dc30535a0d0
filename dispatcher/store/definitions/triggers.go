package definitions

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// loadTriggers adds the triggers to jobs. An unreadable job gets none.
func (s *Store) loadTriggers(ctx context.Context, q db.Querier, lock string, jobs []JobRow) ([]dispatcher.JobVersion, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	byID := make(map[int64]*dispatcher.JobVersion, len(jobs))
	all := make([]dispatcher.JobVersion, len(jobs))
	var ids []int64
	for i, row := range jobs {
		all[i] = row.JobVersion
		all[i].Triggers = make(map[string]dispatcher.Trigger, len(row.TriggerNames))
		byID[row.ID] = &all[i]
		for _, name := range row.TriggerNames {
			ids = append(ids, row.TriggerKey(name))
		}
	}
	slices.Sort(ids)
	// From $1 on: the ids. Ids lock in order, as in a claim, so that the two cannot deadlock. The clock is
	// locked first: anyone who writes a row of triggers has the lock of its clock.
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + dispatch.TriggerColumns + dispatch.TheseTriggers + ` ORDER BY t.id` +
		db.LockOf(lock, "c, t")
	triggers, err := db.Collect(ctx, q, dispatch.ScanTrigger, query, s.db.Batch(ids)...)
	if err != nil {
		return nil, err
	}
	for _, t := range triggers {
		job := byID[t.JobID]
		t.State = dispatch.ShownState(t.State, job.AppPaused)
		job.Triggers[t.Name] = t.Trigger
	}
	return all, nil
}

func triggerIDs(job dispatcher.Job) []int64 {
	ids := make([]int64, 0, len(job.Triggers))
	for name := range job.Triggers {
		ids = append(ids, job.TriggerKey(name))
	}
	return ids
}

// writeTriggers writes the triggers of a job as Apply returned them, with their shared state.
func writeTriggers(ctx context.Context, t *dispatch.Tx, job dispatcher.Job, shared shared) error {
	if len(job.Triggers) == 0 {
		return nil
	}
	rows := make([]dispatch.TriggerRow, 0, len(job.Triggers))
	for name, one := range job.Triggers {
		row := dispatch.TriggerRow{
			Trigger: one, ID: job.TriggerKey(name), JobID: job.Key(),
			AppID: run.AppID(job.App), Name: name, NodeLabels: job.NodeLabels.String(), Revision: job.Revision, JobPaused: job.Paused,
			Timeout: input.Duration(job.Target.Timeout()), Fires: job.Enabled && one.Enabled,
		}
		row.Off = shared.set | ownOff(one.State, one.Paused, job.Paused)
		if one.Calendar != "" {
			row.Calendars = shared.calendars
		}
		rows = append(rows, row)
	}
	rows = db.ByTrigger(rows, func(row dispatch.TriggerRow) int64 { return row.ID })
	columns, values := dispatch.TriggerFields.Batch(rows)
	written := dispatch.TriggerFields.Written()
	// From $1 on: the fields of a trigger
	put := t.Rows(0, 1, "", columns...) + ` INSERT INTO triggers (` + written.Names("") + `) SELECT ` + written.Names("b.") + `
		FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET ` + dispatch.TriggerFields.Update() + `, deleted_at = NULL`
	if err := t.Exec(ctx, put, t.Batch(values...)...); err != nil {
		return err
	}
	columns, values = dispatch.ClockFields.Batch(rows)
	written = dispatch.ClockFields.Written()
	// $1 bits of off that stay as they are, from $2 on: the fields of a clock
	put = t.Rows(0, 2, "", columns...) + ` INSERT INTO trigger_clock AS c (` + written.Names("") + `) SELECT ` + written.Names("b.") + `
		FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET ` + dispatch.ClockFields.Update() + `, off = (c.off & $1) | excluded.off`
	return t.Exec(ctx, put, append([]any{shared.keep}, t.Batch(values...)...)...)
}

// retireTriggers ends triggers of a job; the ledger keeps their names, and their clocks keep their last fire.
func retireTriggers(ctx context.Context, t *dispatch.Tx, job dispatcher.Job, triggers map[string]dispatcher.Trigger) error {
	// $1 revision, from $2 on: ids
	stop := t.Rows(0, 2, "", db.IDColumns...) + ` UPDATE trigger_clock AS c SET next_fire_time = NULL, due_at = NULL,
		state = 'complete', off = c.off & ~16, revision = $1 FROM b WHERE c.id = b.id`
	// $1 revision, $2 now, from $3 on: ids
	retire := t.Rows(0, 3, "", db.IDColumns...) + ` UPDATE triggers AS t SET deleted_at = $2, revision = $1 FROM b WHERE t.id = b.id`
	job.Triggers = triggers
	ids := triggerIDs(job)
	if err := t.Exec(ctx, stop, append([]any{job.Revision}, t.Batch(ids)...)...); err != nil {
		return err
	}
	if err := t.Exec(ctx, retire, append([]any{job.Revision, t.At.UnixMilli()}, t.Batch(ids)...)...); err != nil {
		return err
	}
	return remember(ctx, t, dispatcher.CauseDelete, ids)
}

// TriggersByID returns the declarations of triggers that were not deleted.
func (s *Store) TriggersByID(ctx context.Context, ids []int64) ([]dispatcher.TriggerVersion, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	args := s.db.Batch(slices.Compact(slices.Sorted(slices.Values(ids))))
	all := make([]dispatcher.TriggerVersion, 0, len(ids))
	_, err := s.db.Execute(ctx, s.dispatch.Hot.Triggers, args, func(row db.Scanner) error {
		var t dispatch.TriggerRow
		err := row.Scan(dispatch.TriggerRead.Refs(&t)...)
		all = append(all, t.Version())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %d triggers: %w", len(ids), err)
	}
	return all, nil
}
