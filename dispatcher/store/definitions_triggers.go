package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// triggerFields are the columns of triggers AS t: what was declared of a trigger.
var triggerFields = fields[triggerRow]{
	{name: "id", typ: bigint, ref: func(t *triggerRow) any { return &t.id }, use: neverSet},
	{name: "job_id", typ: bigint, ref: func(t *triggerRow) any { return &t.jobID }, use: neverSet},
	{name: "app_id", typ: bigint, ref: func(t *triggerRow) any { return &t.appID }, use: neverSet},
	{name: "revision", typ: bigint, ref: func(t *triggerRow) any { return &t.revision }},
	{name: "name", typ: text, ref: func(t *triggerRow) any { return &t.name }},
	{name: "origin", typ: text, ref: func(t *triggerRow) any { return &t.Origin }},
	{name: "expression", typ: text, ref: func(t *triggerRow) any { return &t.Expression }},
	{name: "dialect", typ: text, ref: func(t *triggerRow) any { return &t.Dialect }},
	{name: "timezone", typ: text, ref: func(t *triggerRow) any { return &t.Timezone }},
	{name: "start_at", typ: bigint, ref: func(t *triggerRow) any { return optionalColumn(&t.StartAt) }},
	{name: "end_at", typ: bigint, ref: func(t *triggerRow) any { return optionalColumn(&t.EndAt) }},
	{name: "repeat_count", typ: integer, ref: func(t *triggerRow) any { return &t.RepeatCount }},
	{name: "gap", typ: text, ref: func(t *triggerRow) any { return &t.Gap }},
	{name: "overlap", typ: text, ref: func(t *triggerRow) any { return &t.Overlap }},
	{name: "misfire_after", typ: bigint, ref: func(t *triggerRow) any { return durationColumn(&t.MisfireAfter) }},
	{name: "enabled", typ: boolean, ref: func(t *triggerRow) any { return &t.Enabled }},
	{name: "paused", typ: boolean, ref: func(t *triggerRow) any { return &t.Paused }},
	{name: "pause", typ: text, ref: func(t *triggerRow) any { return pauseColumn(&t.Pause) }},
	{name: "paused_at", typ: bigint, ref: func(t *triggerRow) any { return optionalColumn(&t.PausedAt) }, use: onlyWritten},
	{name: "pause_until", typ: bigint, ref: func(t *triggerRow) any { return optionalColumn(&t.PausedUntil) }, use: onlyWritten},
	{name: "job_paused", typ: boolean, ref: func(t *triggerRow) any { return &t.jobPaused }},
	{name: "error", typ: text, ref: func(t *triggerRow) any { return &t.Error }},
	{name: "anchor_at", typ: bigint, ref: func(t *triggerRow) any { return instantColumn(&t.AnchorAt) }},
	{name: "jitter", typ: bigint, ref: func(t *triggerRow) any { return durationColumn(&t.Jitter) }},
	{name: "fired", typ: integer, ref: func(t *triggerRow) any { return &t.Fired }},
	{name: "counted_from", typ: bigint, ref: func(t *triggerRow) any { return optionalColumn(&t.CountedFrom) }},
	{name: "drift_hour", typ: boolean, ref: func(t *triggerRow) any { return &t.DriftHour }},
	{name: "calendar", typ: text, ref: func(t *triggerRow) any { return &t.Calendar }},
	{name: "on_excluded", typ: text, ref: func(t *triggerRow) any { return &t.OnExcluded }},
	{name: "node_labels", typ: text, ref: func(t *triggerRow) any { return &t.nodeLabels }},
	{name: "misfire_policy", typ: text, ref: func(t *triggerRow) any { return policyColumn(&t.MisfirePolicy) }},
	{name: "catch_up_window", typ: bigint, ref: func(t *triggerRow) any { return windowColumn(&t.CatchUpWindow) }},
	{name: "attempt_timeout", typ: bigint, ref: func(t *triggerRow) any { return timeoutColumn(&t.timeout) }},
	{name: "delayed", typ: boolean, ref: func(t *triggerRow) any { return new(t.IsDelay()) }, use: onlyWritten},
}

// clockFields are the columns of trigger_clock AS c: what each fire rewrites, and copies of what a poll or a
// claim compares. off is written by writeClocks, which knows what an update of it leaves alone; ended_at is for
// the end of a run to write.
var clockFields = fields[triggerRow]{
	{name: "id", typ: bigint, ref: func(t *triggerRow) any { return &t.id }, use: onlyNew},
	{name: "app_id", typ: bigint, ref: func(t *triggerRow) any { return &t.appID }, use: onlyNew},
	{name: "revision", typ: bigint, ref: func(t *triggerRow) any { return &t.revision }, use: onlyWritten},
	{name: "calendar_revision", typ: bigint, ref: func(t *triggerRow) any { return &t.calendars }},
	{name: "next_fire_time", typ: bigint, ref: func(t *triggerRow) any { return optionalColumn(&t.NextFireTime) }},
	{name: "due_at", typ: bigint, ref: func(t *triggerRow) any { return optionalColumn(&t.DueAt) }},
	{name: "prev_fire_time", typ: bigint, ref: func(t *triggerRow) any { return optionalColumn(&t.PrevFireTime) }},
	{name: "misfire_after", typ: bigint, ref: func(t *triggerRow) any { return durationColumn(&t.MisfireAfter) }, use: onlyWritten},
	{name: "attempt_timeout", typ: bigint, ref: func(t *triggerRow) any { return timeoutColumn(&t.timeout) }, use: onlyWritten},
	{name: "off", typ: integer, ref: func(t *triggerRow) any { return &t.off }, use: onlyNew},
	// A fixed delay that is disabled waits for no end of a run: it starts again once it is enabled.
	{name: "delayed", typ: boolean, ref: func(t *triggerRow) any { return new(t.IsDelay() && t.fires) }, use: onlyWritten},
	{name: "state", typ: text, ref: func(t *triggerRow) any { return &t.State }},
	{name: "node_labels", typ: text, ref: func(t *triggerRow) any { return &t.nodeLabels }, use: onlyWritten},
}

// triggerRead and clockRead are those that make a trigger, and triggerColumns selects them from withClock.
var (
	triggerRead    = triggerFields.read()
	clockRead      = clockFields.read()
	triggerColumns = triggerRead.selected("t.") + ", " + clockRead.selected("c.")
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
func scanTrigger(row scanner) (triggerRow, error) {
	var t triggerRow
	err := row.Scan(append(triggerRead.refs(&t), clockRead.refs(&t)...)...)
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
	return orDefault(d, dispatcher.MaxCatchUpWindow, millis, toMillis)
}

func timeoutColumn(d *input.Duration) any {
	return orDefault(d, target.DefaultTimeout, millis, toMillis)
}

// orDefault is a value whose column is NULL for the usual one.
func orDefault[T comparable, V any](at *T, usual T, from func(V) T, to func(T) V) any {
	return converted[T, *V]{at, func(v *V) T {
		if v == nil {
			return usual
		}
		return from(*v)
	}, func(t T) *V {
		if t == usual {
			return nil
		}
		return new(to(t))
	}}
}

// loadTriggers adds the triggers to jobs. A job that cannot be read gets none.
func (s *Store) loadTriggers(ctx context.Context, q querier, lock string, jobs []jobRow) ([]dispatcher.JobVersion, error) {
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
	query := s.rows(0, 1, "", idColumns...) + ` SELECT ` + triggerColumns + theseTriggers + ` ORDER BY t.id` + lockOf(lock, "c, t")
	triggers, err := collect(ctx, q, scanTrigger, query, s.batch(ids)...)
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
	rows = byTrigger(rows, func(row triggerRow) int64 { return row.id })
	columns, values := triggerFields.batch(rows)
	written := triggerFields.written()
	// From $1 on: the fields of a trigger
	put := t.rows(0, 1, "", columns...) + ` INSERT INTO triggers (` + written.names("") + `) SELECT ` + written.names("b.") + `
		FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET ` + triggerFields.update() + `, deleted_at = NULL`
	if _, err := t.ExecContext(ctx, put, t.batch(values...)...); err != nil {
		return err
	}
	return writeClocks(ctx, t, rows, shared.keep)
}

// writeClocks writes the clocks of triggers, in whose off the bits of keep stay as they are.
func writeClocks(ctx context.Context, t *tx, rows []triggerRow, keep int) error {
	columns, values := clockFields.batch(rows)
	written := clockFields.written()
	// $1 bits to keep, from $2 on: the fields of a clock
	put := t.rows(0, 2, "", columns...) + ` INSERT INTO trigger_clock AS c (` + written.names("") + `) SELECT ` + written.names("b.") + `
		FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET ` + clockFields.update() + `, off = (c.off & $1) | excluded.off`
	_, err := t.ExecContext(ctx, put, append([]any{keep}, t.batch(values...)...)...)
	return err
}

// retireTriggers ends triggers of a job; the ledger keeps their names, and their clocks keep when they fired last.
func retireTriggers(ctx context.Context, t *tx, job dispatcher.Job, triggers map[string]dispatcher.Trigger) error {
	// $1 revision, from $2 on: ids
	stop := t.rows(0, 2, "", idColumns...) + ` UPDATE trigger_clock AS c SET next_fire_time = NULL, due_at = NULL,
		state = 'complete', off = c.off & ~16, revision = $1 FROM b WHERE c.id = b.id`
	// $1 revision, $2 now, from $3 on: ids
	retire := t.rows(0, 3, "", idColumns...) + ` UPDATE triggers AS t SET deleted_at = $2, revision = $1 FROM b WHERE t.id = b.id`
	job.Triggers = triggers
	ids := triggerIDs(job)
	if _, err := t.ExecContext(ctx, stop, append([]any{job.Revision}, t.batch(ids)...)...); err != nil {
		return err
	}
	if _, err := t.ExecContext(ctx, retire, append([]any{job.Revision, t.now.UnixMilli()}, t.batch(ids)...)...); err != nil {
		return err
	}
	return remember(ctx, t, dispatcher.CauseDelete, ids)
}

// TriggersByID returns what was declared of triggers that were not deleted.
func (s *Store) TriggersByID(ctx context.Context, ids []int64) ([]dispatcher.TriggerVersion, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	args := s.batch(slices.Compact(slices.Sorted(slices.Values(ids))))
	all := make([]dispatcher.TriggerVersion, 0, len(ids))
	_, err := s.run(ctx, s.hot.triggers, args, func(row scanner) error {
		var t triggerRow
		err := row.Scan(triggerRead.refs(&t)...)
		all = append(all, t.version())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %d triggers: %w", len(ids), err)
	}
	return all, nil
}

// triggersByID reads the triggers of the batch.
var triggersByID = ` SELECT ` + triggerRead.selected("t.") + ` FROM b JOIN triggers AS t ON t.id = b.id
	WHERE (t.deleted_at IS NULL) = b.yes`

// version returns what was declared of a trigger, as the engine evaluates it.
func (t triggerRow) version() dispatcher.TriggerVersion {
	return dispatcher.TriggerVersion{
		ID: t.id, JobID: t.jobID, Revision: t.revision, Name: t.name, Spec: t.Spec("", t.AnchorAt), Calendar: t.Calendar,
		MisfirePolicy: t.MisfirePolicy, CatchUpWindow: t.CatchUpWindow.Std(),
	}
}
