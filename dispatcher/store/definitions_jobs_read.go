package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// jobColumns belong to a query over jobs AS j and apps AS a.
const jobColumns = `j.id, a.name, a.weight, j.name, j.description, j.enabled, j.paused, j.priority, j.node_labels, j.delivery, j.concurrency_policy, j.max_concurrency, j.queue_limit, j.retry, j.target, j.payload, j.trigger_names,
	j.delete_after_completion, j.state, j.revision, j.created_at, j.updated_at`

// jobRow is a job without its triggers.
type jobRow struct{ dispatcher.JobVersion }

func scanJob(row scanner) (jobRow, error) {
	var j jobRow
	var labels, retry, target, payload, triggers string
	var created, updated, deleteAfter int64
	err := row.Scan(&j.ID, &j.App, &j.AppWeight, &j.Name, &j.Description, &j.Enabled, &j.Paused, &j.Priority, &labels, &j.Delivery, &j.ConcurrencyPolicy, &j.MaxConcurrency, &j.QueueLimit, &retry, &target, &payload, &triggers,
		&deleteAfter, &j.State, &j.Revision, &created, &updated)
	if err != nil {
		return j, err
	}
	j.DeleteAfterCompletion = dispatcher.Duration(deleteAfter * int64(time.Millisecond))
	j.CreatedAt, j.UpdatedAt, j.NodeLabels = instant(created), instant(updated), dispatcher.ParseLabels(labels)
	if err := j.decode(retry, target, payload, triggers); err != nil {
		j.Target, j.Payload, j.TriggerNames = dispatcher.Target{}, nil, nil
		j.Err = fmt.Errorf("job %s/%s: stored %w", j.App, j.Name, err)
	}
	return j, nil
}

// decode reads what a job's row holds as JSON.
func (j *jobRow) decode(retry, target, payload, triggers string) error {
	if err := json.Unmarshal([]byte(retry), &j.Retry); err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	if err := json.Unmarshal([]byte(target), &j.Target); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if j.Target == (dispatcher.Target{}) {
		return errors.New("target: its kind is unknown to this version")
	}
	if payload != "" {
		j.Payload = json.RawMessage(payload)
		if !json.Valid(j.Payload) {
			return errors.New("payload: it is not JSON")
		}
	}
	if err := json.Unmarshal([]byte(triggers), &j.TriggerNames); err != nil {
		return fmt.Errorf("trigger names: %w", err)
	}
	return nil
}

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

// complete adds to jobs of one app the warnings that people see.
func (s *store) complete(ctx context.Context, q querier, app string, jobs []dispatcher.JobVersion) error {
	bare := make([]dispatcher.Job, len(jobs))
	for i, job := range jobs {
		bare[i] = job.Job
	}
	_, calendars, err := calendarsOf(ctx, q, app, bare...)
	if err != nil {
		return err
	}
	for i := range jobs {
		job := &jobs[i]
		if job.Err != nil {
			job.State = dispatcher.JobError
		} else {
			job.Warnings = job.Warn(calendars)
		}
	}
	return nil
}

// findJob returns ErrNotFound if there is no such job. Warnings, which are for people and take
// long to work out, are left out. lock is a flavor's lock, or empty.
func (s *store) findJob(ctx context.Context, q querier, app, name, lock string) (dispatcher.Job, error) {
	// $1 id
	query := `SELECT ` + jobColumns + ` FROM jobs AS j JOIN apps AS a ON a.id = j.app_id WHERE j.id = $1 AND j.deleted_at IS NULL`
	if lock != "" {
		query += lock + ` OF j`
	}
	rows, err := collect(ctx, q, scanJob, query, dispatcher.JobID(app, name))
	if err != nil {
		return dispatcher.Job{}, err
	}
	jobs, err := s.loadTriggers(ctx, q, lock, rows)
	if err != nil {
		return dispatcher.Job{}, err
	}
	if len(jobs) == 0 {
		return dispatcher.Job{}, dispatcher.NotFound("job", app+"/"+name)
	}
	return jobs[0].Job, jobs[0].Err
}

// shownJob is findJob with Warnings.
func (s *store) shownJob(ctx context.Context, q querier, app, name string) (dispatcher.Job, error) {
	job, err := s.findJob(ctx, q, app, name, "")
	if err != nil {
		return job, err
	}
	shown := []dispatcher.JobVersion{{Job: job}}
	err = s.complete(ctx, q, app, shown)
	return shown[0].Job, err
}

func (s *store) Job(ctx context.Context, app, name string) (dispatcher.Job, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	return s.shownJob(ctx, s.read, app, name)
}

func (s *store) Jobs(ctx context.Context, app string, page dispatcher.Page) ([]dispatcher.Job, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	if _, err := findApp(ctx, s.read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit
	const list = `SELECT ` + jobColumns + ` FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		WHERE j.app_id = $1 AND j.name > $2 AND j.deleted_at IS NULL ORDER BY j.name LIMIT $3`
	rows, err := collect(ctx, s.read, scanJob, list, dispatcher.AppID(app), page.Cursor, page.Limit)
	if err != nil {
		return nil, err
	}
	loaded, err := s.loadTriggers(ctx, s.read, "", rows)
	if err == nil {
		err = s.complete(ctx, s.read, app, loaded)
	}
	jobs := make([]dispatcher.Job, len(loaded))
	for i, job := range loaded {
		jobs[i] = job.Job
		if job.Err != nil {
			// It must not hide the others of its app.
			jobs[i].Warnings = []dispatcher.Problem{{Code: dispatcher.CodeInternal, Message: job.Err.Error()}}
		}
	}
	return jobs, err
}

func (s *store) JobsByID(ctx context.Context, ids []int64) ([]dispatcher.JobVersion, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	// From $1 on: the ids
	query := s.rows(0, 1, "", column{"id", bigint}) + ` SELECT ` + jobColumns +
		` FROM b JOIN jobs AS j ON j.id = b.id JOIN apps AS a ON a.id = j.app_id WHERE j.deleted_at IS NULL`
	rows, err := collect(ctx, s.read, scanJob, query, s.batch(ids)...)
	if err != nil {
		return nil, err
	}
	versions := make([]dispatcher.JobVersion, len(rows))
	for i := range rows {
		versions[i] = rows[i].JobVersion
	}
	return versions, s.openSecrets(ctx, s.read, versions)
}

// triggerNames returns the names of a job's triggers as its row keeps them.
func triggerNames(job dispatcher.Job) (string, error) {
	names, err := json.Marshal(sortedKeys(job.Triggers))
	return string(names), err
}

// sortedKeys returns the keys of a map in order; none are not nil.
func sortedKeys[V any](m map[string]V) []string {
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(m))))
}
