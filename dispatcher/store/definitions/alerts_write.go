package definitions

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

var (
	trackWritten = []db.Column{db.Col("id", db.Bigint), db.Col("alert_id", db.Bigint), db.Col("job_id", db.Bigint),
		db.Col("of_condition", db.Text),
		db.Col("firing", db.Integer),
		db.Col("armed", db.Integer), db.Col("kept_back", db.Integer), db.Col("check_at", db.Bigint), db.Col("track", db.Text)}
	eventWritten = []db.Column{db.Col("app_id", db.Bigint), db.Col("at", db.Bigint), db.Col("id", db.Bigint), db.Col("alert", db.Text),
		db.Col("job", db.Text),
		db.Col("event", db.Text)}
)

// flag is a boolean as a column of a batch.
func flag(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// writeTracks writes the changed tracks and deletes the removed ones.
func (j *Judgement) writeTracks(ctx context.Context) error {
	var gone, ids, alerts, jobs []int64
	var firing, armed, kept []int32
	var check []*int64
	var conditions, texts []string
	for _, id := range slices.Sorted(maps.Keys(j.changed)) {
		track, there := j.Tracks[id]
		if !there {
			gone = append(gone, id)
			continue
		}
		encoded, err := json.Marshal(track)
		if err != nil {
			return err
		}
		rule := alert.Rule{}
		if alert := j.Alerts[track.AlertID]; alert != nil {
			rule, _ = alert.RuleOf(track.Condition, j.At)
		}
		ids, alerts, jobs = append(ids, id), append(alerts, track.AlertID), append(jobs, track.JobID)
		firing, armed, kept = append(firing, flag(track.Firing)), append(armed, flag(track.Armed())), append(kept, flag(track.KeptBack()))
		check = append(check, db.OrNull(track.CheckAt(rule)))
		conditions, texts = append(conditions, string(track.Condition)), append(texts, dispatch.Storable(string(encoded)))
	}
	if len(gone) > 0 {
		// From $1 on: ids
		remove := `DELETE FROM alert_states WHERE id` + j.In(1)
		if err := j.Exec(ctx, remove, dispatch.List(j.Tx, gone)); err != nil {
			return err
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// From $1 on: trackWritten
	put := j.Rows(0, 1, "", trackWritten...) + ` INSERT INTO alert_states
			(id, alert_id, job_id, condition, firing, armed, kept_back, check_at, track)
		SELECT b.id, b.alert_id, b.job_id, b.of_condition, b.firing = 1, b.armed = 1, b.kept_back = 1, b.check_at, b.track FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET firing = excluded.firing, armed = excluded.armed, kept_back = excluded.kept_back,
			check_at = excluded.check_at, track = excluded.track`
	return j.Exec(ctx, put, j.Batch(ids, alerts, jobs, conditions, firing, armed, kept, check, texts)...)
}

// writeEvents adds the transitions to the history.
func (j *Judgement) writeEvents(ctx context.Context) error {
	if len(j.made) == 0 {
		return nil
	}
	var apps, at, ids []int64
	var alerts, jobs, events []string
	for _, m := range j.made {
		seen := m.Observation
		encoded, err := json.Marshal(alert.Event{Condition: m.track.Condition, Transition: m.Transition, Sequence: m.Sequence,
			Count: m.Count, EventRun: alert.EventRun{Run: seen.Run, Class: seen.Class, Error: seen.Error}, Kept: m.Kept, By: m.By,
			Reason: m.Reason})
		if err != nil {
			return err
		}
		apps, at, ids = append(apps, m.job.AppID), append(at, m.At.UnixMilli()), append(ids, m.id)
		alerts, jobs, events = append(alerts, m.alert.Name), append(jobs, m.job.Name), append(events, dispatch.Storable(string(encoded)))
	}
	// From $1 on: eventWritten
	put := j.Rows(0, 1, "", eventWritten...) + ` INSERT INTO alert_events (app_id, at, id, alert, job, event)
		SELECT b.app_id, b.at, b.id, b.alert, b.job, b.event FROM b WHERE 1 = 1 ON CONFLICT DO NOTHING`
	return j.Exec(ctx, put, j.Batch(apps, at, ids, alerts, jobs, events)...)
}

// delivery returns the run that delivers the notification of a transition.
func (m madeTransition) delivery(d details) (dispatch.QueuedRun, error) {
	seen := m.Observation
	n := target.AlertNotification{
		App: m.job.App, Alert: m.alert.Name, Job: m.job.Name, Condition: m.track.Condition, Transition: m.Transition, At: m.At, Since: m.Since,
		Count: m.Count, Run: m.track.Run, Class: m.track.Class, Error: m.track.Error, LateBy: input.Duration(seen.LateBy),
		Response: d.responses[seen.Run], LastSuccess: optional(d.successes[m.job.ID].At), DeclaredAt: optional(d.successes[m.job.ID].DeclaredAt),
		Description: m.alert.Description, JobDescription: m.job.description, RunbookURL: m.job.runbookURL, Labels: m.job.Labels,
		Sequence: m.Sequence, By: m.By, Reason: m.Reason,
	}
	if m.Transition == target.AlertResolved {
		n.Run, n.Class, n.Error, n.LastSuccess, n.DeclaredAt = seen.Run, seen.Class, seen.Error, nil, nil
	}
	if key, err := run.ParseKey(n.Run); err == nil {
		n.ScheduledAt, n.Trigger = &key.ScheduledAt, d.triggers[n.Run]
	} else if !seen.ScheduledAt.IsZero() {
		n.ScheduledAt = &seen.ScheduledAt
	}
	payload, err := json.Marshal(n)
	return dispatch.QueuedRun{
		Key:   run.Key{TriggerID: m.id, ScheduledAt: m.At, Kind: run.KindAlert},
		JobID: m.alert.jobID, Revision: m.alert.jobRevision,
		Input: &run.Input{Payload: payload, After: m.After, Cause: &run.Cause{Run: n.Run, Alert: m.alert.Name}},
	}, err
}

// optional returns nil for a zero time.
func optional(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}
