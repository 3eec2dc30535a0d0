package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// triggerColumns belong to a query over triggers AS t.
const triggerColumns = `t.id, t.job_id, t.revision, t.name, t.expression, t.dialect, t.timezone, t.start_at, t.end_at,
	t.repeat_count, t.gap, t.overlap, t.misfire_after, t.enabled, t.paused, t.job_paused, t.state, t.error,
	t.prev_fire_time, t.next_fire_time, t.due_at, t.anchor_at, t.jitter, t.fired, t.drift_hour, t.calendar, t.on_excluded,
	t.calendar_revision, t.app_id, t.node_labels, coalesce(t.misfire_policy, 'fire_once'), t.catch_up_window`

// triggerRow is a trigger with its keys.
type triggerRow struct {
	dispatcher.Trigger
	id, jobID, appID, revision, calendars int64
	name, nodeLabels                      string
}

func scanTrigger(row scanner) (triggerRow, error) {
	var t triggerRow
	var start, end, prev, next, due, window *int64
	var misfireAfter, anchor, jitter int64
	var jobPaused bool
	err := row.Scan(&t.id, &t.jobID, &t.revision, &t.name, &t.Expression, &t.Dialect, &t.Timezone, &start, &end,
		&t.RepeatCount, &t.Gap, &t.Overlap, &misfireAfter, &t.Enabled, &t.Paused, &jobPaused, &t.State, &t.Error,
		&prev, &next, &due, &anchor, &jitter, &t.Fired, &t.DriftHour, &t.Calendar, &t.OnExcluded, &t.calendars, &t.appID, &t.nodeLabels,
		&t.MisfirePolicy, &window)
	t.StartAt, t.EndAt, t.PrevFireTime, t.NextFireTime = optional(start), optional(end), optional(prev), optional(next)
	t.DueAt, t.Jitter = optional(due), dispatcher.Duration(time.Duration(jitter)*time.Millisecond)
	t.MisfireAfter, t.CatchUpWindow = dispatcher.Duration(time.Duration(misfireAfter)*time.Millisecond), dispatcher.MaxCatchUpWindow
	if window != nil {
		t.CatchUpWindow = dispatcher.Duration(time.Duration(*window) * time.Millisecond)
	}
	t.AnchorAt = instant(anchor)
	if t.State == dispatcher.TriggerWaiting && (t.Paused || jobPaused) {
		t.State = dispatcher.TriggerPaused
	}
	return t, err
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
		` SELECT ` + triggerColumns + ` FROM b JOIN triggers AS t ON t.id = b.id ORDER BY t.id`
	if lock != "" {
		query += lock + ` OF t`
	}
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

// triggerNames returns the names of a job's triggers as its row keeps them.
func triggerNames(job dispatcher.Job) (string, error) {
	names, err := json.Marshal(sortedKeys(job.Triggers))
	return string(names), err
}

// writtenColumns are a trigger as a change of its definition writes it.
var writtenColumns = []column{
	{"id", bigint}, {"name", text}, {"next", bigint}, {"prev", bigint}, {"misfire_after", bigint}, {"anchor_at", bigint},
	{"start_at", bigint}, {"end_at", bigint}, {"repeat_count", integer}, {"enabled", boolean}, {"paused", boolean},
	{"state", text}, {"expression", text}, {"dialect", text}, {"timezone", text}, {"gap", text}, {"overlap", text}, {"error", text},
	{"due", bigint}, {"jitter", bigint}, {"fired", integer}, {"is_delay", boolean}, {"drift_hour", boolean}, {"calendar", text},
	{"on_excluded", text}, {"misfire_policy", text}, {"catch_up_window", bigint},
}

// putTriggers writes the triggers of a job.
// $1 job, $2 app, $3 revision, $4 whether the job is paused, $5 revision of the app's
// calendars, $6 node labels, from $7 on: writtenColumns
const putTriggers = ` INSERT INTO triggers (id, job_id, app_id, revision, job_paused, name, next_fire_time, due_at, prev_fire_time,
		misfire_after, anchor_at, start_at, end_at, jitter, repeat_count, fired, enabled, paused, delayed, drift_hour, state,
		expression, dialect, timezone, gap, overlap, calendar, on_excluded, error, calendar_revision, node_labels,
		misfire_policy, catch_up_window)
	SELECT b.id, $1, $2, $3, $4, b.name, b.next, b.due, b.prev, b.misfire_after, b.anchor_at, b.start_at, b.end_at, b.jitter,
		b.repeat_count, b.fired, b.enabled, b.paused, b.is_delay, b.drift_hour, b.state, b.expression, b.dialect, b.timezone,
		b.gap, b.overlap, b.calendar, b.on_excluded, b.error, CASE WHEN b.calendar = '' THEN 0 ELSE $5 END, $6,
		nullif(b.misfire_policy, 'fire_once'), b.catch_up_window FROM b WHERE 1 = 1
	ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, job_paused = excluded.job_paused,
		next_fire_time = excluded.next_fire_time, due_at = excluded.due_at, prev_fire_time = excluded.prev_fire_time,
		misfire_after = excluded.misfire_after, anchor_at = excluded.anchor_at, start_at = excluded.start_at,
		end_at = excluded.end_at, jitter = excluded.jitter, repeat_count = excluded.repeat_count, fired = excluded.fired,
		enabled = excluded.enabled, paused = excluded.paused, delayed = excluded.delayed, drift_hour = excluded.drift_hour,
		state = excluded.state, expression = excluded.expression, dialect = excluded.dialect, timezone = excluded.timezone,
		gap = excluded.gap, overlap = excluded.overlap, calendar = excluded.calendar, on_excluded = excluded.on_excluded,
		error = excluded.error, calendar_revision = excluded.calendar_revision,
		node_labels = excluded.node_labels, misfire_policy = excluded.misfire_policy, catch_up_window = excluded.catch_up_window,
		deleted_at = NULL`

// writeTriggers writes the triggers of a job as Revise made them with the app's calendars of
// that revision.
func (t *tx) writeTriggers(ctx context.Context, job dispatcher.Job, calendars int64) error {
	if len(job.Triggers) == 0 {
		return nil
	}
	var id, misfireAfter, anchor, jitter []int64
	var next, due, prev, start, end, window []*int64
	var repeat, fired []int32
	var enabled, paused, delayed, drift []bool
	var names, state, expression, dialect, zone, gap, overlap, calendar, excluded, policy, problems []string
	for name, one := range job.Triggers {
		id, names = append(id, dispatcher.TriggerID(job.App, job.Name, name)), append(names, name)
		next, prev = append(next, orNullAt(one.NextFireTime)), append(prev, orNullAt(one.PrevFireTime))
		misfireAfter, anchor = append(misfireAfter, one.MisfireAfter.Std().Milliseconds()), append(anchor, one.AnchorAt.UnixMilli())
		start, end = append(start, orNullAt(one.StartAt)), append(end, orNullAt(one.EndAt))
		repeat = append(repeat, int32(one.RepeatCount))
		enabled, paused = append(enabled, one.Enabled), append(paused, one.Paused)
		state, problems = append(state, string(one.State)), append(problems, one.Error)
		expression, dialect = append(expression, one.Expression), append(dialect, string(one.Dialect))
		zone, gap, overlap = append(zone, one.Timezone), append(gap, string(one.Gap)), append(overlap, string(one.Overlap))
		due, jitter = append(due, orNullAt(one.DueAt)), append(jitter, one.Jitter.Std().Milliseconds())
		fired, delayed, drift = append(fired, int32(one.Fired)), append(delayed, one.IsDelay()), append(drift, one.DriftHour)
		calendar, excluded = append(calendar, one.Calendar), append(excluded, string(one.OnExcluded))
		policy, window = append(policy, string(one.MisfirePolicy)), append(window, windowOrNull(one.CatchUpWindow))
	}
	args := []any{dispatcher.JobID(job.App, job.Name), dispatcher.AppID(job.App), job.Revision, job.Paused, calendars, job.NodeLabels.String()}
	_, err := t.ExecContext(ctx, t.rows(0, 7, "", writtenColumns...)+putTriggers, append(args, t.batch(
		id, names, next, prev, misfireAfter, anchor, start, end, repeat, enabled, paused, state, expression, dialect, zone, gap,
		overlap, problems, due, jitter, fired, delayed, drift, calendar, excluded, policy, window)...)...)
	return err
}

// windowOrNull returns a catch-up window as its column holds it: NULL for the default, which
// takes no room in a row that every fire rewrites.
func windowOrNull(window dispatcher.Duration) *int64 {
	if window == dispatcher.MaxCatchUpWindow {
		return nil
	}
	ms := window.Std().Milliseconds()
	return &ms
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
