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

// Which alerts apply to a job follows from its name and labels, and from all alerts of its app. What follows from that is kept
// with the job: whether ends of its runs are judged, how late a fire is late, and the states of conditions of time. A change of
// a job writes it in the same transaction. A change of an alert does so for the first jobs of the app; the handler goes on.

// sweptAtOnce is how many jobs follow a change of an alert in the transaction of the change.
const sweptAtOnce = 500

// followAlertsOf lets the jobs of an app, which is locked, follow a change of its alerts.
func followAlertsOf(ctx context.Context, t *dispatch.Tx, app string) error {
	// $1 app
	const begin = `UPDATE apps SET alerts_swept_to = '' WHERE id = $1`
	if err := t.Exec(ctx, begin, run.AppID(app)); err != nil {
		return err
	}
	_, err := SweepAlerts(ctx, t, run.AppID(app), sweptAtOnce)
	return err
}

// Swept is what a portion of a sweep did.
type Swept struct {
	Jobs, Notified int
	more           bool
}

// SweepAlerts lets the next jobs of an app follow its alerts. The app is locked first, so that neither its alerts nor its jobs
// change meanwhile.
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

// followAlertsOfJob lets a job follow the alerts of its app after a change of the job. What no longer applies to it ends a while
// later: a job that is renamed is selected again once the alert is changed, too.
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

// followAlerts lets jobs follow the alerts that apply to them, and returns how many notifications it queued. With later, what no
// longer applies ends later.
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

// keep looks whether a track still applies to its job. If it does, mutes that have ended let go of what they kept back.
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

// Applies returns the rule of a track, or why it applies to its job no longer.
func (j *Judgement) Applies(track alert.Track) (rule alert.Rule, reason string) {
	job, alert := j.Jobs[track.JobID], j.Alerts[track.AlertID]
	if alert == nil {
		return rule, "the alert was deleted"
	}
	rule, has := alert.RuleOf(track.Condition, j.At)
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

// End ends a track that applies to nothing any more, and removes it. People who were told that its condition holds are told that
// it is over.
func (j *Judgement) End(id int64, track alert.Track, reason string) {
	job, a := j.Jobs[track.JobID], j.Alerts[track.AlertID]
	if a != nil && job != nil {
		rule, _ := a.RuleOf(track.Condition, j.At)
		ended, made := track.Observe(rule, alert.Observation{At: j.At, Reason: reason}, j.At)
		j.Set(id, a, job, ended, made)
	}
	j.Remove(id)
}

// writeFollows writes what the judged jobs keep of their alerts.
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

// endAlertsOf ends what is known of a job that was deleted.
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

// unselectedAfter is how long a state stays of which the alert no longer applies to the job, because the job was changed.
const unselectedAfter = time.Minute
