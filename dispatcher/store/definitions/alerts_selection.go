package definitions

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The name and labels of a job, and all alerts of its app, decide which alerts apply to it. Its rows contain the
// result: whether ends of its runs are evaluated, when a fire is late, and the states of conditions of time. A change
// of a job updates them in its transaction, a change of an alert those of the app's first jobs; the handler continues.

// sweptAtOnce is how many jobs a change of an alert updates in its own transaction.
const sweptAtOnce = 500

// followAlertsOf starts to apply a change of alerts to the jobs of a locked app.
func followAlertsOf(ctx context.Context, t *dispatch.Tx, app string) error {
	// $1 app
	const begin = `UPDATE apps SET alerts_swept_to = '' WHERE id = $1`
	if err := t.Exec(ctx, begin, run.AppID(app)); err != nil {
		return err
	}
	_, err := SweepAlerts(ctx, t, run.AppID(app), sweptAtOnce)
	return err
}

// Swept is the result of a portion of a sweep.
type Swept struct {
	Jobs, Notified int
	more           bool
}

// SweepAlerts applies the alerts of an app to its next jobs. The app is locked first, so that its alerts and jobs do
// not change meanwhile.
func SweepAlerts(ctx context.Context, t *dispatch.Tx, app int64, limit int) (done Swept, err error) {
	// $1 id
	const pending = `SELECT name, alerts_swept_to FROM apps WHERE id = $1 AND alerts_swept_to IS NOT NULL`
	var name, from string
	found, err := db.ReadRow(ctx, t, []any{&name, &from}, pending+t.ForUpdate(), app)
	if err != nil || !found {
		return done, err
	}
	// $1 app, $2 last name of the portion before, $3 limit
	const next = `SELECT id, name FROM jobs WHERE app_id = $1 AND name > $2 AND part_of = 0 AND deleted_at IS NULL ORDER BY name LIMIT $3`
	var ids []int64
	last := from
	err = db.EachRow(ctx, t, func(row db.Scanner) error {
		var id int64
		err := row.Scan(&id, &last)
		ids = append(ids, id)
		return err
	}, next, app, from, limit)
	if err != nil {
		return done, err
	}
	if done.Notified, err = followAlerts(ctx, t, ids, false); err != nil {
		return done, err
	}
	done.Jobs, done.more = len(ids), len(ids) == limit
	var cursor *string
	if done.more {
		cursor = &last
	}
	// $1 app, $2 cursor
	if err := t.Exec(ctx, `UPDATE apps SET alerts_swept_to = $2 WHERE id = $1`, app, cursor); err != nil {
		return done, err
	}
	t.Notify(dispatcher.Notification{App: name})
	return done, nil
}

// followAlertsOfJob applies the alerts of its app to a changed job. States that no longer apply end only after
// unselectedAfter: a renamed job may be selected again soon by a change of the alert.
func followAlertsOfJob(ctx context.Context, t *dispatch.Tx, app string, job int64) error {
	// $1 app, $2 job
	const concerned = `SELECT 1 FROM alerts WHERE app_id = $1 AND deleted_at IS NULL
		UNION ALL SELECT 1 FROM alert_states WHERE job_id = $2 LIMIT 1`
	_, some, err := db.First(ctx, t, db.ScanInt, concerned, run.AppID(app), job)
	if err == nil && some {
		_, err = followAlerts(ctx, t, []int64{job}, true)
	}
	return err
}

// followAlerts updates jobs for the alerts that apply to them, and returns how many notifications it queued. With
// later, states that no longer apply end later.
func followAlerts(ctx context.Context, t *dispatch.Tx, jobs []int64, later bool) (int, error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	j, err := Judge(ctx, t, jobs)
	if err != nil {
		return 0, err
	}
	for _, job := range j.Jobs {
		j.begin(job)
	}
	for id, track := range j.Tracks {
		j.keep(id, track, later)
	}
	notified, err := j.Finish(ctx)
	if err != nil {
		return 0, err
	}
	return notified, j.writeFollows(ctx)
}

// begin begins the tracks of conditions of time that apply to a job.
func (j *Judgement) begin(job *JudgedJob) {
	for _, alert := range job.Alerts {
		for _, condition := range []target.AlertCondition{target.AlertNoSuccess, target.AlertOverrun, target.AlertObjective} {
			if _, has := alert.RuleOf(condition, j.At); !has || condition == target.AlertObjective && !job.objective {
				continue
			}
			if id, track := j.TrackOf(alert, job, condition); track.MeasuredFrom.IsZero() {
				j.Set(id, alert, job, track.Begins(alert.Alert, j.At), nil)
			}
		}
	}
}

// keep checks whether a track still applies. If so, it releases what was kept back by mutes that have ended.
func (j *Judgement) keep(id int64, track alert.Track, later bool) {
	job, alert := j.Jobs[track.JobID], j.Alerts[track.AlertID]
	rule, reason := j.Applies(track)
	switch {
	case reason != "" && later && !job.Deleted:
		track.LookAt = j.At.Add(unselectedAfter)
		j.Set(id, alert, job, track, nil)
	case reason != "":
		j.End(id, track, reason)
	default:
		if checked, made := track.Check(rule, j.At); checked != track || len(made) > 0 || track.KeptBack() {
			j.Set(id, alert, job, checked, made)
		}
	}
}

// Applies returns the rule of a track, or the reason why it no longer applies to its job.
func (j *Judgement) Applies(track alert.Track) (rule alert.Rule, reason string) {
	job, alert := j.Jobs[track.JobID], j.Alerts[track.AlertID]
	if alert == nil {
		return rule, "the alert was deleted"
	}
	rule, has := j.RuleOf(alert, job, track.Condition)
	switch {
	case job == nil || job.Deleted:
		return rule, "the job was deleted"
	case !has:
		return rule, "the alert no longer has the condition"
	case track.Condition == target.AlertObjective && !job.objective:
		return rule, "the job no longer has an objective"
	}
	for _, applies := range job.Alerts {
		if applies == alert {
			return rule, ""
		}
	}
	return rule, "the alert no longer applies to the job"
}

// End ends and removes a track that no longer applies. It notifies users who were notified that the condition holds.
func (j *Judgement) End(id int64, track alert.Track, reason string) {
	job, a := j.Jobs[track.JobID], j.Alerts[track.AlertID]
	if a != nil && job != nil {
		rule, _ := a.RuleOf(track.Condition, j.At)
		ended, made := track.Observe(rule, alert.Observation{At: j.At, Reason: reason}, j.At)
		j.Set(id, a, job, ended, made)
	}
	j.Remove(id)
}

// writeFollows writes the alert columns of the judged jobs.
func (j *Judgement) writeFollows(ctx context.Context) error {
	var ids []int64
	var bits []int32
	var late []*int64
	for id, job := range j.Jobs {
		bit, least := int32(0), (*int64)(nil)
		for _, alert := range job.Alerts {
			bit = int32(run.FollowsAlerts)
			if after := alert.LateAfter.Std().Milliseconds(); after > 0 && (least == nil || after < *least) {
				least = &after
			}
		}
		same := job.LateAfter == nil && least == nil || job.LateAfter != nil && least != nil && *job.LateAfter == *least
		if same && job.follows&int(run.FollowsAlerts) == int(bit) {
			continue
		}
		ids, bits, late = append(ids, id), append(bits, bit), append(late, least)
	}
	if len(ids) == 0 {
		return nil
	}
	// From $1 on: id, bit, late
	write := j.Rows(0, 1, "", db.Col("id", db.Bigint), db.Col("bit", db.Integer), db.Col("late", db.Bigint)) + ` UPDATE jobs AS j
		SET follows = (j.follows & ~8) | b.bit, alert_late_after = b.late FROM b WHERE j.id = b.id`
	if err := j.Exec(ctx, write, j.Batch(ids, bits, late)...); err != nil {
		return fmt.Errorf("let %d jobs follow alerts: %w", len(ids), err)
	}
	return nil
}

func endAlertsOf(ctx context.Context, t *dispatch.Tx, job int64) error {
	// $1 job
	_, some, err := db.First(ctx, t, db.ScanInt, `SELECT 1 FROM alert_states WHERE job_id = $1 LIMIT 1`, job)
	if err != nil || !some {
		return err
	}
	if _, err = followAlerts(ctx, t, []int64{job}, false); db.IsUnreadable(err) {
		// $1 job, $2 now. What watches alerts ends what is known, and sets aside what cannot be read.
		err = t.Exec(ctx, `UPDATE alert_states SET check_at = $2 WHERE job_id = $1`, job, t.At.UnixMilli())
	}
	return err
}

// unselectedAfter is how long a state is kept after a change of the job ended its selection by the alert.
const unselectedAfter = time.Minute
