package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// JudgedJob is the part of a job that its alerts use.
type JudgedJob struct {
	ID, AppID int64
	App, Name string

	guidance

	Salt      run.Salt // of the app
	Labels    input.Labels
	Deleted   bool
	follows   int  // jobs.follows
	Watched   bool // see alert.Facts
	objective bool // the job has an objective
	ChangedAt time.Time
	// DeclaredAt is when the job was declared; nil if the history of the app does not go back so far.
	DeclaredAt *time.Time
	LateAfter  *int64 // jobs.alert_late_after
	Alerts     []*storedAlert
}

// guidance is what the declaration of a job tells people who are paged. host is what its target calls.
type guidance struct{ description, runbookURL, host string }

// storedAlert is an alert with its keys, and the revision of its attached job.
type storedAlert struct {
	alert.Alert
	id, jobID, jobRevision int64
}

// Judgement changes states of alerts for some jobs in one transaction that locks the jobs. So each state has one
// writer, and each transition is notified once.
type Judgement struct {
	*dispatch.Tx
	Jobs    map[int64]*JudgedJob
	Alerts  map[int64]*storedAlert // of the apps of these jobs, by id
	Tracks  map[int64]alert.Track
	changed map[int64]bool // tracks to write or remove
	made    []madeTransition
}

// madeTransition is a transition of a track.
type madeTransition struct {
	alert.Made
	id    int64 // of the track
	alert *storedAlert
	job   *JudgedJob
	track alert.Track
	in    run.Key // of the run that delivers it
}

// key is that of a run that delivers the transition alone.
func (m madeTransition) key() run.Key {
	return run.Key{TriggerID: m.id, ScheduledAt: m.At, Kind: run.KindAlert}
}

// Judge locks jobs and returns a judgement of them.
func Judge(ctx context.Context, t *dispatch.Tx, ids []int64) (*Judgement, error) {
	j := &Judgement{Tx: t, Jobs: map[int64]*JudgedJob{}, Alerts: map[int64]*storedAlert{}, Tracks: map[int64]alert.Track{},
		changed: map[int64]bool{}}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if err := j.lockJobs(ctx, ids); err != nil {
		return nil, fmt.Errorf("lock jobs of alerts: %w", err)
	}
	if err := j.readAlerts(ctx); err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	// From $1 on: ids
	tracks := j.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + TrackColumns + ` FROM b JOIN alert_states AS s ON s.job_id = b.id`
	all, err := db.Collect(ctx, j, ScanTrack, tracks, j.Batch(ids)...)
	if err != nil {
		return nil, fmt.Errorf("read states of alerts: %w", err)
	}
	for _, one := range all {
		j.Tracks[one.ID] = one.Track
	}
	return j, nil
}

// lockJobs locks jobs in the order of their ids.
func (j *Judgement) lockJobs(ctx context.Context, ids []int64) error {
	// From $1 on: ids
	lock := j.Rows(0, 1, "", db.IDColumns...) + ` SELECT j.id FROM b JOIN jobs AS j ON j.id = b.id ORDER BY j.id` +
		db.LockOf(j.ForUpdate(), "j")
	if _, err := db.Collect(ctx, j, db.ScanInt, lock, j.Batch(ids)...); err != nil {
		return err
	}
	// $1 now, from $2 on: ids
	read := j.Rows(0, 2, "", db.IDColumns...) + ` SELECT j.id, j.app_id, a.name, a.salt, j.name, j.description, j.runbook_url, j.target_name,
			j.labels, j.deleted_at IS NOT NULL, j.follows, j.enabled AND a.enabled AND NOT j.paused AND NOT j.app_paused,
			CASE WHEN j.updated_at > a.updated_at THEN j.updated_at ELSE a.updated_at END,
			CASE WHEN j.created_at > $1 - a.retention AND j.created_at >= a.history_from THEN j.created_at END,
			j.alert_late_after, j.objective <> ''
		FROM b JOIN jobs AS j ON j.id = b.id JOIN apps AS a ON a.id = j.app_id`
	all, err := db.ReadRows(ctx, j, func(job *JudgedJob) []any {
		return []any{&job.ID, &job.AppID, &job.App, &job.Salt, &job.Name, &job.description, &job.runbookURL, &job.host,
			db.LabelsColumn(&job.Labels), &job.Deleted, &job.follows, &job.Watched,
			db.InstantColumn(&job.ChangedAt), db.OptionalColumn(&job.DeclaredAt), &job.LateAfter, &job.objective}
	}, read, append([]any{j.At.UnixMilli()}, j.Batch(ids)...)...)
	for i := range all {
		j.Jobs[all[i].ID] = &all[i]
	}
	return err
}

// readAlerts reads the alerts of the apps of the jobs, and which of them apply to each job.
func (j *Judgement) readAlerts(ctx context.Context) error {
	ofApp := map[int64][]*storedAlert{}
	for _, job := range j.Jobs {
		all, known := ofApp[job.AppID]
		if !known {
			var err error
			if all, err = j.alertsOf(ctx, job.AppID, job.App); err != nil {
				return err
			}
			ofApp[job.AppID] = all
		}
		if job.Deleted {
			continue
		}
		plain := make([]alert.Alert, len(all))
		for i, alert := range all {
			plain[i] = alert.Alert
		}
		for _, applies := range alert.Of(plain, job.Name, job.Labels) {
			i := slices.IndexFunc(all, func(a *storedAlert) bool { return a.Name == applies.Name })
			job.Alerts = append(job.Alerts, all[i])
		}
	}
	return nil
}

func (j *Judgement) alertsOf(ctx context.Context, appID int64, app string) ([]*storedAlert, error) {
	// $1 app
	const list = `SELECT ` + AlertColumns + `, a.id, a.job_id, COALESCE(d.revision, 0) FROM alerts AS a LEFT JOIN jobs AS d ON d.id = a.job_id
		WHERE a.app_id = $1 AND a.deleted_at IS NULL ORDER BY a.name`
	all, err := db.Collect(ctx, j, func(row db.Scanner) (*storedAlert, error) {
		one := &storedAlert{}
		var err error
		one.Alert, err = ScanAlert(app)(db.WiderRow{Scanner: row, After: []any{&one.id, &one.jobID, &one.jobRevision}})
		return one, err
	}, list, appID)
	for _, alert := range all {
		j.Alerts[alert.id] = alert
	}
	return all, err
}

// TrackColumns are the columns of the state of an alert.
const TrackColumns = `s.id, s.alert_id, s.job_id, s.condition, s.firing, s.track`

// KeyedTrack is a track with its key.
type KeyedTrack struct {
	ID int64
	alert.Track
}

// ScanTrack reads TrackColumns.
func ScanTrack(row db.Scanner) (k KeyedTrack, err error) {
	var text string
	if err = row.Scan(&k.ID, &k.AlertID, &k.JobID, &k.Condition, &k.Firing, &text); err != nil {
		return k, err
	}
	key, firing := k.Track, k.Firing
	if err := json.Unmarshal([]byte(text), &k.Track); err != nil {
		return k, db.AsUnreadable(fmt.Errorf("state %d of an alert: %w", k.ID, err))
	}
	k.AlertID, k.JobID, k.Condition, k.Firing = key.AlertID, key.JobID, key.Condition, firing
	return k, nil
}

// TrackOf returns the state of a condition of an alert for a job; it is empty before the first observation.
func (j *Judgement) TrackOf(a *storedAlert, job *JudgedJob, condition target.AlertCondition) (int64, alert.Track) {
	id := dispatcher.AlertStateID(job.Salt, a.id, job.ID, condition)
	track, known := j.Tracks[id]
	if !known {
		track = alert.Track{AlertID: a.id, JobID: job.ID, Condition: condition}
	}
	return id, track
}

// RuleOf returns the rule of a condition of an alert for a job, and whether the alert has the condition.
func (j *Judgement) RuleOf(a *storedAlert, job *JudgedJob, condition target.AlertCondition) (rule alert.Rule, has bool) {
	rule, has = a.RuleOf(condition, j.At)
	if job != nil && (condition == target.AlertLate || condition == target.AlertNoSuccess) {
		_, failure := j.TrackOf(a, job, target.AlertFailure)
		if rule.Failing = failure.Firing && failure.Open; !failure.Firing {
			rule.FailedTo = failure.Since
		}
	}
	return rule, has
}

// Set replaces a track with the result of an observation.
func (j *Judgement) Set(id int64, alert *storedAlert, job *JudgedJob, track alert.Track, made []alert.Made) {
	for _, m := range made {
		j.made = append(j.made, madeTransition{Made: m, id: id, alert: alert, job: job, track: track})
	}
	j.Tracks[id], j.changed[id] = track, true
}

// Remove removes a track.
func (j *Judgement) Remove(id int64) {
	delete(j.Tracks, id)
	j.changed[id] = true
}

// After applies the end of a run of a job to all alerts that apply to it.
func (j *Judgement) After(job *JudgedJob, end alert.End) {
	for _, alert := range job.Alerts {
		for _, condition := range target.AlertConditions {
			rule, has := j.RuleOf(alert, job, condition)
			if !has {
				continue
			}
			id, before := j.TrackOf(alert, job, condition)
			if track, made := before.After(alert.Alert, rule, end, j.At); track != before {
				j.Set(id, alert, job, track, made)
			}
		}
	}
}

// Finish writes the changes of the judgement and queues the notifications. It returns their number.
func (j *Judgement) Finish(ctx context.Context) (int, error) {
	j.group()
	if err := j.writeTracks(ctx); err != nil {
		return 0, fmt.Errorf("write states of alerts: %w", err)
	}
	if err := j.writeEvents(ctx); err != nil {
		return 0, fmt.Errorf("write events of alerts: %w", err)
	}
	failpoint.Hit(failpoint.InAlert)
	// The key of a run follows from its transition, so each is queued once.
	known, err := j.detailsOf(ctx)
	if err != nil {
		return 0, fmt.Errorf("queue notifications of alerts: %w", err)
	}
	runs, err := j.deliveries(known)
	if err != nil {
		return 0, fmt.Errorf("queue notifications of alerts: %w", err)
	}
	queued, err := dispatch.QueueRuns(ctx, j.Tx, runs)
	if err != nil {
		return 0, fmt.Errorf("queue notifications of alerts: %w", err)
	}
	return len(queued), nil
}

// group lets one run deliver the same transition for several jobs with the same host and class of error, at most
// mostGrouped, so that one host that is down does not send a message for each of them.
func (j *Judgement) group() {
	type same struct {
		alert      *storedAlert
		condition  target.AlertCondition
		transition target.AlertTransition
		host       string
		class      run.Class
	}
	type members struct {
		in    run.Key
		count int
	}
	groups := map[same]members{}
	for i := range j.made {
		m := &j.made[i]
		m.in = m.key()
		if m.Kept != "" || m.Transition == target.AlertAcknowledged || !m.alert.Destination.Groups() {
			continue
		}
		of := same{m.alert, m.track.Condition, m.Transition, m.job.host, m.Observation.Class}
		g := groups[of]
		if g.count == 0 || g.count == mostGrouped {
			g = members{in: m.in}
		} else {
			m.in = g.in
			if track := j.Tracks[m.id]; track.ToldAt.Equal(m.At) {
				track.ToldIn = g.in.String()
				j.Tracks[m.id] = track
			}
		}
		g.count++
		groups[of] = g
	}
}

// mostGrouped keeps an input within its bound.
const mostGrouped = 200

// deliveries returns the runs that deliver the notifications.
func (j *Judgement) deliveries(known details) (runs []dispatch.QueuedRun, err error) {
	told, first := map[run.Key]target.AlertNotification{}, []madeTransition(nil)
	for _, m := range j.made {
		switch n := m.notification(known); {
		case m.Kept != "":
		case m.in == m.key():
			told[m.in], first = n, append(first, m)
		default:
			n.ID = m.key().String()
			told[m.in] = told[m.in].With(n)
		}
	}
	for _, m := range first {
		payload, err := json.Marshal(told[m.in])
		if err != nil {
			return nil, err
		}
		runs = append(runs, dispatch.QueuedRun{
			Key: m.in, JobID: m.alert.jobID, Revision: m.alert.jobRevision,
			Input: &run.Input{Payload: payload, After: m.After, Cause: &run.Cause{Run: told[m.in].Run, Alert: m.alert.Name}},
		})
	}
	return runs, nil
}
