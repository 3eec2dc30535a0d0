package store

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
)

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
