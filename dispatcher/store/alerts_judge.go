package store

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
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// judgedJob is a job as its alerts see it.
type judgedJob struct {
	id, appID int64
	app, name string
	salt      run.Salt // of the app
	labels    input.Labels
	deleted   bool
	follows   int  // jobs.follows
	watched   bool // as alert.Facts has it
	objective bool // it has one
	changedAt time.Time
	lateAfter *int64 // jobs.alert_late_after
	alerts    []*storedAlert
}

// storedAlert is an alert with its keys, and the revision of its attached job.
type storedAlert struct {
	alert.Alert
	id, jobID, jobRevision int64
}

// judgement changes states of alerts for some jobs in one transaction, in which their rows are locked. So a state has one writer,
// and what is told of it is told once.
type judgement struct {
	*tx
	jobs    map[int64]*judgedJob
	alerts  map[int64]*storedAlert // of the apps of these jobs, by id
	tracks  map[int64]alert.Track
	changed map[int64]bool // tracks that are to be written, or removed
	made    []madeTransition
}

// madeTransition is a transition of a track.
type madeTransition struct {
	alert.Made
	id    int64 // of the track
	alert *storedAlert
	job   *judgedJob
	track alert.Track
}

// judge locks jobs and returns a judgement of them.
func judge(ctx context.Context, t *tx, ids []int64) (*judgement, error) {
	j := &judgement{tx: t, jobs: map[int64]*judgedJob{}, alerts: map[int64]*storedAlert{}, tracks: map[int64]alert.Track{},
		changed: map[int64]bool{}}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if err := j.lockJobs(ctx, ids); err != nil {
		return nil, fmt.Errorf("lock jobs of alerts: %w", err)
	}
	if err := j.readAlerts(ctx); err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	if err := j.readTracks(ctx, ids); err != nil {
		return nil, fmt.Errorf("read states of alerts: %w", err)
	}
	return j, nil
}

// lockJobs locks jobs in the order of their ids.
func (j *judgement) lockJobs(ctx context.Context, ids []int64) error {
	// From $1 on: ids
	lock := j.Rows(0, 1, "", db.IDColumns...) + ` SELECT j.id FROM b JOIN jobs AS j ON j.id = b.id ORDER BY j.id` +
		db.LockOf(j.ForUpdate(), "j")
	if _, err := db.Collect(ctx, j, db.ScanInt, lock, j.Batch(ids)...); err != nil {
		return err
	}
	// From $1 on: ids
	read := j.Rows(0, 1, "", db.IDColumns...) + ` SELECT j.id, j.app_id, a.name, a.salt, j.name, j.labels, j.deleted_at IS NOT NULL, j.follows,
			j.enabled AND a.enabled AND NOT j.paused AND NOT j.app_paused,
			CASE WHEN j.updated_at > a.updated_at THEN j.updated_at ELSE a.updated_at END,
			j.alert_late_after, j.objective <> ''
		FROM b JOIN jobs AS j ON j.id = b.id JOIN apps AS a ON a.id = j.app_id`
	all, err := db.Collect(ctx, j, func(row db.Scanner) (job judgedJob, err error) {
		err = row.Scan(&job.id, &job.appID, &job.app, &job.salt, &job.name, db.LabelsColumn(&job.labels), &job.deleted, &job.follows,
			&job.watched,
			db.InstantColumn(&job.changedAt), &job.lateAfter, &job.objective)
		return job, err
	}, read, j.Batch(ids)...)
	for i := range all {
		j.jobs[all[i].id] = &all[i]
	}
	return err
}

// readAlerts reads the alerts of the apps of the jobs, and which of them apply to each job.
func (j *judgement) readAlerts(ctx context.Context) error {
	ofApp := map[int64][]*storedAlert{}
	for _, job := range j.jobs {
		all, known := ofApp[job.appID]
		if !known {
			var err error
			if all, err = j.alertsOf(ctx, job.appID, job.app); err != nil {
				return err
			}
			ofApp[job.appID] = all
		}
		if job.deleted {
			continue
		}
		plain := make([]alert.Alert, len(all))
		for i, alert := range all {
			plain[i] = alert.Alert
		}
		for _, applies := range alert.Of(plain, job.name, job.labels) {
			i := slices.IndexFunc(all, func(a *storedAlert) bool { return a.Name == applies.Name })
			job.alerts = append(job.alerts, all[i])
		}
	}
	return nil
}

// alertsOf reads the alerts of an app.
func (j *judgement) alertsOf(ctx context.Context, appID int64, app string) ([]*storedAlert, error) {
	// $1 app
	const list = `SELECT ` + alertColumns + `, a.id, a.job_id, COALESCE(d.revision, 0) FROM alerts AS a LEFT JOIN jobs AS d ON d.id = a.job_id
		WHERE a.app_id = $1 AND a.deleted_at IS NULL ORDER BY a.name`
	all, err := db.Collect(ctx, j, func(row db.Scanner) (*storedAlert, error) {
		one := &storedAlert{}
		var err error
		one.Alert, err = scanAlert(app)(db.WiderRow{Scanner: row, After: []any{&one.id, &one.jobID, &one.jobRevision}})
		return one, err
	}, list, appID)
	for _, alert := range all {
		j.alerts[alert.id] = alert
	}
	return all, err
}

const trackColumns = `s.id, s.alert_id, s.job_id, s.condition, s.firing, s.track`

// keyedTrack is a track with its key.
type keyedTrack struct {
	id int64
	alert.Track
}

func scanTrack(row db.Scanner) (k keyedTrack, err error) {
	var text string
	if err = row.Scan(&k.id, &k.AlertID, &k.JobID, &k.Condition, &k.Firing, &text); err != nil {
		return k, err
	}
	key, firing := k.Track, k.Firing
	if err := json.Unmarshal([]byte(text), &k.Track); err != nil {
		return k, fmt.Errorf("state %d of an alert: %w", k.id, err)
	}
	k.AlertID, k.JobID, k.Condition, k.Firing = key.AlertID, key.JobID, key.Condition, firing
	return k, nil
}

// readTracks reads the states of the jobs.
func (j *judgement) readTracks(ctx context.Context, ids []int64) error {
	// From $1 on: ids
	read := j.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + trackColumns + ` FROM b JOIN alert_states AS s ON s.job_id = b.id`
	all, err := db.Collect(ctx, j, scanTrack, read, j.Batch(ids)...)
	for _, one := range all {
		j.tracks[one.id] = one.Track
	}
	return err
}

// trackOf returns the state of a condition of an alert for a job; there may be nothing to be known of it yet.
func (j *judgement) trackOf(a *storedAlert, job *judgedJob, condition target.AlertCondition) (int64, alert.Track) {
	id := dispatcher.AlertStateID(job.salt, a.id, job.id, condition)
	track, known := j.tracks[id]
	if !known {
		track = alert.Track{AlertID: a.id, JobID: job.id, Condition: condition}
	}
	return id, track
}

// set makes a track what an observation made of it.
func (j *judgement) set(id int64, alert *storedAlert, job *judgedJob, track alert.Track, made []alert.Made) {
	for _, m := range made {
		j.made = append(j.made, madeTransition{Made: m, id: id, alert: alert, job: job, track: track})
	}
	j.tracks[id], j.changed[id] = track, true
}

// remove takes a track away.
func (j *judgement) remove(id int64) {
	delete(j.tracks, id)
	j.changed[id] = true
}

// after applies the end of a run of a job to all alerts that apply to it.
func (j *judgement) after(job *judgedJob, end alert.End) {
	for _, alert := range job.alerts {
		for _, condition := range target.AlertConditions {
			rule, has := alert.RuleOf(condition, j.now)
			if !has {
				continue
			}
			id, before := j.trackOf(alert, job, condition)
			if track, made := before.After(alert.Alert, rule, end, j.now); track != before {
				j.set(id, alert, job, track, made)
			}
		}
	}
}

// finish writes what the judgement has changed, and queues the notifications. It returns how many.
func (j *judgement) finish(ctx context.Context) (int, error) {
	if err := j.writeTracks(ctx); err != nil {
		return 0, fmt.Errorf("write states of alerts: %w", err)
	}
	if err := j.writeEvents(ctx); err != nil {
		return 0, fmt.Errorf("write events of alerts: %w", err)
	}
	failpoint.Hit(failpoint.InAlert)
	queued, err := j.queueNotifications(ctx)
	if err != nil {
		return 0, fmt.Errorf("queue notifications of alerts: %w", err)
	}
	return queued, nil
}
