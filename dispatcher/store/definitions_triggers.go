package store

import (
	"context"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

// triggerFields are the columns of triggers AS t.
var triggerFields = fields[triggerRow]{
	{"id", bigint, func(t *triggerRow) any { return &t.id }, neverSet, ""},
	{"job_id", bigint, func(t *triggerRow) any { return &t.jobID }, neverSet, ""},
	{"revision", bigint, func(t *triggerRow) any { return &t.revision }, always, ""},
	{"name", text, func(t *triggerRow) any { return &t.name }, neverSet, ""},
	{"expression", text, func(t *triggerRow) any { return &t.Expression }, always, ""},
	{"dialect", text, func(t *triggerRow) any { return &t.Dialect }, always, ""},
	{"timezone", text, func(t *triggerRow) any { return &t.Timezone }, always, ""},
	{"start_at", bigint, func(t *triggerRow) any { return optionalColumn(&t.StartAt) }, always, ""},
	{"end_at", bigint, func(t *triggerRow) any { return optionalColumn(&t.EndAt) }, always, ""},
	{"repeat_count", integer, func(t *triggerRow) any { return &t.RepeatCount }, always, ""},
	{"gap", text, func(t *triggerRow) any { return &t.Gap }, always, ""},
	{"overlap", text, func(t *triggerRow) any { return &t.Overlap }, always, ""},
	{"misfire_after", bigint, func(t *triggerRow) any { return durationColumn(&t.MisfireAfter) }, always, ""},
	{"enabled", boolean, func(t *triggerRow) any { return &t.Enabled }, always, ""},
	{"paused", boolean, func(t *triggerRow) any { return &t.Paused }, always, ""},
	{"job_paused", boolean, func(t *triggerRow) any { return &t.jobPaused }, always, ""},
	{"state", text, func(t *triggerRow) any { return &t.State }, always, ""},
	{"error", text, func(t *triggerRow) any { return &t.Error }, always, ""},
	{"prev_fire_time", bigint, func(t *triggerRow) any { return optionalColumn(&t.PrevFireTime) }, always, ""},
	{"next_fire_time", bigint, func(t *triggerRow) any { return optionalColumn(&t.NextFireTime) }, always, ""},
	{"due_at", bigint, func(t *triggerRow) any { return optionalColumn(&t.DueAt) }, always, ""},
	{"anchor_at", bigint, func(t *triggerRow) any { return instantColumn(&t.AnchorAt) }, always, ""},
	{"jitter", bigint, func(t *triggerRow) any { return durationColumn(&t.Jitter) }, always, ""},
	{"fired", integer, func(t *triggerRow) any { return &t.Fired }, always, ""},
	{"drift_hour", boolean, func(t *triggerRow) any { return &t.DriftHour }, always, ""},
	{"calendar", text, func(t *triggerRow) any { return &t.Calendar }, always, ""},
	{"on_excluded", text, func(t *triggerRow) any { return &t.OnExcluded }, always, ""},
	{"calendar_revision", bigint, func(t *triggerRow) any { return &t.calendars }, always, ""},
	{"app_id", bigint, func(t *triggerRow) any { return &t.appID }, neverSet, ""},
	{"node_labels", text, func(t *triggerRow) any { return &t.nodeLabels }, always, ""},
	{"misfire_policy", text, func(t *triggerRow) any { return policyColumn(&t.MisfirePolicy) }, always,
		"coalesce(t.misfire_policy, 'fire_once')"},
	{"catch_up_window", bigint, func(t *triggerRow) any { return windowColumn(&t.CatchUpWindow) }, always, ""},
	{"attempt_timeout", bigint, func(t *triggerRow) any { return timeoutColumn(&t.timeout) }, always, ""},
	{"delayed", boolean, func(t *triggerRow) any { return new(t.IsDelay()) }, onlyWritten, ""},
}

// triggerRead are those that make a trigger, and triggerColumns selects them.
var (
	triggerRead    = triggerFields.read()
	triggerColumns = triggerRead.selected("t.")
)

// triggerRow is a trigger with its keys.
type triggerRow struct {
	dispatcher.Trigger
	id, jobID, appID, revision, calendars int64
	name, nodeLabels                      string
	jobPaused                             bool
	timeout                               dispatcher.Duration // of an attempt of the job
}

// scanTrigger reads the row of a trigger.
func scanTrigger(row scanner) (triggerRow, error) {
	var t triggerRow
	err := row.Scan(triggerRead.refs(&t)...)
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

// policyColumn, windowColumn and timeoutColumn are NULL for the default, which takes no room in a row that every
// fire rewrites.
func policyColumn(p *dispatcher.MisfirePolicy) any {
	return orDefault(p, dispatcher.FireOnce, func(text string) dispatcher.MisfirePolicy { return dispatcher.MisfirePolicy(text) },
		func(policy dispatcher.MisfirePolicy) string { return string(policy) })
}

func windowColumn(d *dispatcher.Duration) any {
	return orDefault(d, dispatcher.MaxCatchUpWindow, millis, toMillis)
}

func timeoutColumn(d *dispatcher.Duration) any {
	return orDefault(d, dispatcher.DefaultTimeout, millis, toMillis)
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
func (s *store) loadTriggers(ctx context.Context, q querier, lock string, jobs []jobRow) ([]dispatcher.JobVersion, error) {
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
			ids = append(ids, dispatcher.TriggerID(row.App, row.Name, name))
		}
	}
	slices.Sort(ids)
	// From $1 on: the ids. Ids lock in order, as in a claim, so that the two cannot deadlock.
	query := s.rows(0, 1, "", column{"id", bigint}) +
		` SELECT ` + triggerColumns + ` FROM b JOIN triggers AS t ON t.id = b.id ORDER BY t.id` + lockOf(lock, "t")
	triggers, err := collect(ctx, q, scanTrigger, query, s.batch(ids)...)
	if err != nil {
		return nil, err
	}
	for _, t := range triggers {
		byID[t.jobID].Triggers[t.name] = t.Trigger
	}
	return all, nil
}

// triggerIDs returns the ids of a job's triggers.
func triggerIDs(job dispatcher.Job) []int64 {
	ids := make([]int64, 0, len(job.Triggers))
	for name := range job.Triggers {
		ids = append(ids, dispatcher.TriggerID(job.App, job.Name, name))
	}
	return ids
}

// writeTriggers writes the triggers of a job as Apply made them with the app's calendars of
// that revision.
func (t *tx) writeTriggers(ctx context.Context, job dispatcher.Job, calendars int64) error {
	if len(job.Triggers) == 0 {
		return nil
	}
	rows := make([]triggerRow, 0, len(job.Triggers))
	for name, one := range job.Triggers {
		row := triggerRow{
			Trigger: one, id: dispatcher.TriggerID(job.App, job.Name, name), jobID: dispatcher.JobID(job.App, job.Name),
			appID: dispatcher.AppID(job.App), name: name, nodeLabels: job.NodeLabels.String(), revision: job.Revision, jobPaused: job.Paused,
			timeout: dispatcher.Duration(job.Target.Timeout()),
		}
		if one.Calendar != "" {
			row.calendars = calendars
		}
		rows = append(rows, row)
	}
	columns, values := triggerFields.batch(rows)
	written := triggerFields.written()
	// From $1 on: the fields of a trigger
	put := t.rows(0, 1, "", columns...) + ` INSERT INTO triggers (` + written.names("") + `) SELECT ` + written.names("b.") + `
		FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET ` + triggerFields.update() + `, deleted_at = NULL`
	_, err := t.ExecContext(ctx, put, t.batch(values...)...)
	return err
}

// retireTriggers ends triggers of a job; the ledger keeps their names.
func (t *tx) retireTriggers(ctx context.Context, job dispatcher.Job, triggers map[string]dispatcher.Trigger) error {
	// $1 now, $2 revision, from $3 on: ids
	retire := t.rows(0, 3, "", column{"id", bigint}) + ` UPDATE triggers AS t SET next_fire_time = NULL, due_at = NULL,
		state = 'complete', deleted_at = $1, revision = $2 FROM b WHERE t.id = b.id`
	job.Triggers = triggers
	ids := triggerIDs(job)
	if _, err := t.ExecContext(ctx, retire, append([]any{t.now.UnixMilli(), job.Revision}, t.batch(ids)...)...); err != nil {
		return err
	}
	return t.remember(ctx, dispatcher.CauseDelete, ids)
}
