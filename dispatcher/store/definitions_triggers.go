package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// triggerFields are the columns of triggers AS t: what was declared of a trigger.
var triggerFields = db.Fields[triggerRow]{
	{Name: "id", Type: db.Bigint, Ref: func(t *triggerRow) any { return &t.id }, Use: db.NeverSet},
	{Name: "job_id", Type: db.Bigint, Ref: func(t *triggerRow) any { return &t.jobID }, Use: db.NeverSet},
	{Name: "app_id", Type: db.Bigint, Ref: func(t *triggerRow) any { return &t.appID }, Use: db.NeverSet},
	{Name: "revision", Type: db.Bigint, Ref: func(t *triggerRow) any { return &t.revision }},
	{Name: "name", Type: db.Text, Ref: func(t *triggerRow) any { return &t.name }},
	{Name: "origin", Type: db.Text, Ref: func(t *triggerRow) any { return &t.Origin }},
	{Name: "expression", Type: db.Text, Ref: func(t *triggerRow) any { return &t.Expression }},
	{Name: "dialect", Type: db.Text, Ref: func(t *triggerRow) any { return &t.Dialect }},
	{Name: "timezone", Type: db.Text, Ref: func(t *triggerRow) any { return &t.Timezone }},
	{Name: "start_at", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.OptionalColumn(&t.StartAt) }},
	{Name: "end_at", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.OptionalColumn(&t.EndAt) }},
	{Name: "repeat_count", Type: db.Integer, Ref: func(t *triggerRow) any { return &t.RepeatCount }},
	{Name: "gap", Type: db.Text, Ref: func(t *triggerRow) any { return &t.Gap }},
	{Name: "overlap", Type: db.Text, Ref: func(t *triggerRow) any { return &t.Overlap }},
	{Name: "misfire_after", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.DurationColumn(&t.MisfireAfter) }},
	{Name: "enabled", Type: db.Boolean, Ref: func(t *triggerRow) any { return &t.Enabled }},
	{Name: "paused", Type: db.Boolean, Ref: func(t *triggerRow) any { return &t.Paused }},
	{Name: "pause", Type: db.Text, Ref: func(t *triggerRow) any { return pauseColumn(&t.Pause) }},
	{Name: "paused_at", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.OptionalColumn(&t.PausedAt) }, Use: db.OnlyWritten},
	{Name: "pause_until", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.OptionalColumn(&t.PausedUntil) }, Use: db.OnlyWritten},
	{Name: "job_paused", Type: db.Boolean, Ref: func(t *triggerRow) any { return &t.jobPaused }},
	{Name: "error", Type: db.Text, Ref: func(t *triggerRow) any { return &t.Error }},
	{Name: "anchor_at", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.InstantColumn(&t.AnchorAt) }},
	{Name: "jitter", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.DurationColumn(&t.Jitter) }},
	{Name: "fired", Type: db.Integer, Ref: func(t *triggerRow) any { return &t.Fired }},
	{Name: "counted_from", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.OptionalColumn(&t.CountedFrom) }},
	{Name: "drift_hour", Type: db.Boolean, Ref: func(t *triggerRow) any { return &t.DriftHour }},
	{Name: "calendar", Type: db.Text, Ref: func(t *triggerRow) any { return &t.Calendar }},
	{Name: "on_excluded", Type: db.Text, Ref: func(t *triggerRow) any { return &t.OnExcluded }},
	{Name: "node_labels", Type: db.Text, Ref: func(t *triggerRow) any { return &t.nodeLabels }},
	{Name: "misfire_policy", Type: db.Text, Ref: func(t *triggerRow) any { return policyColumn(&t.MisfirePolicy) }},
	{Name: "catch_up_window", Type: db.Bigint, Ref: func(t *triggerRow) any { return windowColumn(&t.CatchUpWindow) }},
	{Name: "attempt_timeout", Type: db.Bigint, Ref: func(t *triggerRow) any { return timeoutColumn(&t.timeout) }},
	{Name: "delayed", Type: db.Boolean, Ref: func(t *triggerRow) any { return new(t.IsDelay()) }, Use: db.OnlyWritten},
}

// clockFields are the columns of trigger_clock AS c: what each fire rewrites, and copies of what a poll or a
// claim compares. off is written by writeClocks, which knows what an update of it leaves alone; ended_at is for
// the end of a run to write.
var clockFields = db.Fields[triggerRow]{
	{Name: "id", Type: db.Bigint, Ref: func(t *triggerRow) any { return &t.id }, Use: db.OnlyNew},
	{Name: "app_id", Type: db.Bigint, Ref: func(t *triggerRow) any { return &t.appID }, Use: db.OnlyNew},
	{Name: "revision", Type: db.Bigint, Ref: func(t *triggerRow) any { return &t.revision }, Use: db.OnlyWritten},
	{Name: "calendar_revision", Type: db.Bigint, Ref: func(t *triggerRow) any { return &t.calendars }},
	{Name: "next_fire_time", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.OptionalColumn(&t.NextFireTime) }},
	{Name: "due_at", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.OptionalColumn(&t.DueAt) }},
	{Name: "prev_fire_time", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.OptionalColumn(&t.PrevFireTime) }},
	{Name: "misfire_after", Type: db.Bigint, Ref: func(t *triggerRow) any { return db.DurationColumn(&t.MisfireAfter) }, Use: db.OnlyWritten},
	{Name: "attempt_timeout", Type: db.Bigint, Ref: func(t *triggerRow) any { return timeoutColumn(&t.timeout) }, Use: db.OnlyWritten},
	{Name: "off", Type: db.Integer, Ref: func(t *triggerRow) any { return &t.off }, Use: db.OnlyNew},
	// A fixed delay that is disabled waits for no end of a run: it starts again once it is enabled.
	{Name: "delayed", Type: db.Boolean, Ref: func(t *triggerRow) any { return new(t.IsDelay() && t.fires) }, Use: db.OnlyWritten},
	{Name: "state", Type: db.Text, Ref: func(t *triggerRow) any { return &t.State }},
	{Name: "node_labels", Type: db.Text, Ref: func(t *triggerRow) any { return &t.nodeLabels }, Use: db.OnlyWritten},
}

// triggerRead and clockRead are those that make a trigger, and triggerColumns selects them from withClock.
var (
	triggerRead    = triggerFields.Read()
	clockRead      = clockFields.Read()
	triggerColumns = triggerRead.Selected("t.") + ", " + clockRead.Selected("c.")
)

// withClock joins to triggers AS t what moves of them.
const withClock = ` JOIN trigger_clock AS c ON c.id = t.id`

// theseTriggers are those of a batch of ids. The join by the batch's ids, twice, leaves the planner no other
// way to begin than with the batch.
const theseTriggers = ` FROM b JOIN triggers AS t ON t.id = b.id JOIN trigger_clock AS c ON c.id = b.id`

// triggerRow is a trigger with its keys.
type triggerRow struct {
	dispatcher.Trigger
	id, jobID, appID, revision, calendars int64
	name, nodeLabels                      string
	jobPaused                             bool
	timeout                               input.Duration // of an attempt of the job
	off                                   int            // when it is written
	fires                                 bool           // the same: it and its job are enabled
}

// scanTrigger reads the row of a trigger.
func scanTrigger(row db.Scanner) (triggerRow, error) {
	var t triggerRow
	err := row.Scan(append(triggerRead.Refs(&t), clockRead.Refs(&t)...)...)
	t.State = shownState(t.State, t.Paused || t.jobPaused)
	return t, err
}

// shownState is the state of a trigger as people see it. A pause is not stored as a state.
func shownState(stored dispatcher.TriggerState, paused bool) dispatcher.TriggerState {
	if stored == dispatcher.TriggerWaiting && paused {
		return dispatcher.TriggerPaused
	}
	return stored
}

// policyColumn, windowColumn and timeoutColumn are NULL for the default, which takes no room in a row.
func policyColumn(p *dispatcher.MisfirePolicy) any {
	return orDefault(p, dispatcher.FireOnce, func(text string) dispatcher.MisfirePolicy { return dispatcher.MisfirePolicy(text) },
		func(policy dispatcher.MisfirePolicy) string { return string(policy) })
}

func windowColumn(d *input.Duration) any {
	return orDefault(d, dispatcher.MaxCatchUpWindow, db.Millis, db.ToMillis)
}

func timeoutColumn(d *input.Duration) any {
	return orDefault(d, target.DefaultTimeout, db.Millis, db.ToMillis)
}

// orDefault is a value whose column is NULL for the usual one.
func orDefault[T comparable, V any](at *T, usual T, from func(V) T, to func(T) V) any {
	return db.ConvertedColumn(at, func(v *V) T {
		if v == nil {
			return usual
		}
		return from(*v)
	}, func(t T) *V {
		if t == usual {
			return nil
		}
		return new(to(t))
	})
}

// loadTriggers adds the triggers to jobs. A job that cannot be read gets none.
func (s *Store) loadTriggers(ctx context.Context, q db.Querier, lock string, jobs []jobRow) ([]dispatcher.JobVersion, error) {
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
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + triggerColumns + theseTriggers + ` ORDER BY t.id` + db.LockOf(lock, "c, t")
	triggers, err := db.Collect(ctx, q, scanTrigger, query, s.db.Batch(ids)...)
	if err != nil {
		return nil, err
	}
	for _, t := range triggers {
		job := byID[t.jobID]
		t.State = shownState(t.State, job.AppPaused)
		job.Triggers[t.name] = t.Trigger
	}
	return all, nil
}

// triggerIDs returns the ids of a job's triggers.
func triggerIDs(job dispatcher.Job) []int64 {
	ids := make([]int64, 0, len(job.Triggers))
	for name := range job.Triggers {
		ids = append(ids, job.TriggerKey(name))
	}
	return ids
}

// writeTriggers writes the triggers of a job as Apply made them with the app's calendars of
// that revision.
func writeTriggers(ctx context.Context, t *tx, job dispatcher.Job, calendars int64, shared sharedOff) error {
	if len(job.Triggers) == 0 {
		return nil
	}
	rows := make([]triggerRow, 0, len(job.Triggers))
	for name, one := range job.Triggers {
		row := triggerRow{
			Trigger: one, id: job.TriggerKey(name), jobID: job.Key(),
			appID: run.AppID(job.App), name: name, nodeLabels: job.NodeLabels.String(), revision: job.Revision, jobPaused: job.Paused,
			timeout: input.Duration(job.Target.Timeout()), fires: job.Enabled && one.Enabled,
		}
		row.off = shared.set | ownOff(one.State, one.Paused, job.Paused)
		if one.Calendar != "" {
			row.calendars = calendars
		}
		rows = append(rows, row)
	}
	rows = db.ByTrigger(rows, func(row triggerRow) int64 { return row.id })
	columns, values := triggerFields.Batch(rows)
	written := triggerFields.Written()
	// From $1 on: the fields of a trigger
	put := t.Rows(0, 1, "", columns...) + ` INSERT INTO triggers (` + written.Names("") + `) SELECT ` + written.Names("b.") + `
		FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET ` + triggerFields.Update() + `, deleted_at = NULL`
	if _, err := t.ExecContext(ctx, put, t.Batch(values...)...); err != nil {
		return err
	}
	return writeClocks(ctx, t, rows, shared.keep)
}

// writeClocks writes the clocks of triggers, in whose off the bits of keep stay as they are.
func writeClocks(ctx context.Context, t *tx, rows []triggerRow, keep int) error {
	columns, values := clockFields.Batch(rows)
	written := clockFields.Written()
	// $1 bits to keep, from $2 on: the fields of a clock
	put := t.Rows(0, 2, "", columns...) + ` INSERT INTO trigger_clock AS c (` + written.Names("") + `) SELECT ` + written.Names("b.") + `
		FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET ` + clockFields.Update() + `, off = (c.off & $1) | excluded.off`
	_, err := t.ExecContext(ctx, put, append([]any{keep}, t.Batch(values...)...)...)
	return err
}

// retireTriggers ends triggers of a job; the ledger keeps their names, and their clocks keep when they fired last.
func retireTriggers(ctx context.Context, t *tx, job dispatcher.Job, triggers map[string]dispatcher.Trigger) error {
	// $1 revision, from $2 on: ids
	stop := t.Rows(0, 2, "", db.IDColumns...) + ` UPDATE trigger_clock AS c SET next_fire_time = NULL, due_at = NULL,
		state = 'complete', off = c.off & ~16, revision = $1 FROM b WHERE c.id = b.id`
	// $1 revision, $2 now, from $3 on: ids
	retire := t.Rows(0, 3, "", db.IDColumns...) + ` UPDATE triggers AS t SET deleted_at = $2, revision = $1 FROM b WHERE t.id = b.id`
	job.Triggers = triggers
	ids := triggerIDs(job)
	if _, err := t.ExecContext(ctx, stop, append([]any{job.Revision}, t.Batch(ids)...)...); err != nil {
		return err
	}
	if _, err := t.ExecContext(ctx, retire, append([]any{job.Revision, t.now.UnixMilli()}, t.Batch(ids)...)...); err != nil {
		return err
	}
	return remember(ctx, t, dispatcher.CauseDelete, ids)
}

// TriggersByID returns what was declared of triggers that were not deleted.
func (s *Store) TriggersByID(ctx context.Context, ids []int64) ([]dispatcher.TriggerVersion, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	args := s.db.Batch(slices.Compact(slices.Sorted(slices.Values(ids))))
	all := make([]dispatcher.TriggerVersion, 0, len(ids))
	_, err := s.db.Execute(ctx, s.hot.triggers, args, func(row db.Scanner) error {
		var t triggerRow
		err := row.Scan(triggerRead.Refs(&t)...)
		all = append(all, t.version())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %d triggers: %w", len(ids), err)
	}
	return all, nil
}

// triggersByID reads the triggers of the batch.
var triggersByID = ` SELECT ` + triggerRead.Selected("t.") + ` FROM b JOIN triggers AS t ON t.id = b.id
	WHERE (t.deleted_at IS NULL) = b.yes`

// version returns what was declared of a trigger, as the engine evaluates it.
func (t triggerRow) version() dispatcher.TriggerVersion {
	return dispatcher.TriggerVersion{
		ID: t.id, JobID: t.jobID, Revision: t.revision, Name: t.name, Spec: t.Spec("", t.AnchorAt), Calendar: t.Calendar,
		MisfirePolicy: t.MisfirePolicy, CatchUpWindow: t.CatchUpWindow.Std(),
	}
}
