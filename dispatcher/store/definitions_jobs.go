package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
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

// PutJob creates or replaces a job with its triggers. It returns the job as stored, and whether
// it was created.
func (s *store) PutJob(ctx context.Context, job dispatcher.Job, change dispatcher.Change) (stored dispatcher.Job, created bool, err error) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// Writers of one app's jobs queue at its row; two that make the same job do, too.
		if _, err := findApp(ctx, t, job.App, t.lock()); err != nil {
			return err
		}
		old, prior, err := s.replacedJob(ctx, t, job.App, job.Name)
		if err != nil {
			return err
		}
		created = old == nil
		applied, err := s.applyJob(ctx, t, old, job, prior)
		if err != nil {
			return err
		}
		if stored, err = asStored(applied); err != nil {
			return err
		}
		return t.audit(ctx, "put", job.App, "job "+job.Name, applied.Revision)
	})
	return stored, created, err
}

// replacedJob returns the job that a PUT replaces, or nil, and the latest revision of that name.
// A deleted job's revision goes on.
func (s *store) replacedJob(ctx context.Context, t *tx, app, name string) (old *dispatcher.Job, prior int64, err error) {
	found, err := s.findJob(ctx, t, app, name, t.lock())
	switch {
	case err == nil:
		return &found, found.Revision, t.allow(found.Revision)
	case !errors.Is(err, dispatcher.ErrNotFound):
		return nil, 0, err
	}
	if err := t.allow(0); err != nil {
		return nil, 0, err
	}
	// $1 id
	const deleted = `SELECT revision FROM jobs WHERE id = $1`
	prior, _, err = first(ctx, t, scanInt, deleted, dispatcher.JobID(app, name))
	return nil, prior, err
}

// applyJob puts job in place of old, which is nil for a new one, and returns what it wrote.
func (s *store) applyJob(ctx context.Context, t *tx, old *dispatcher.Job, job dispatcher.Job, prior int64) (dispatcher.Job, error) {
	users := []dispatcher.Job{job}
	if old != nil {
		users = append(users, *old)
	}
	revision, calendars, err := calendarsOf(ctx, t, job.App, users...)
	if err != nil {
		return job, err
	}
	applied, missed, err := dispatcher.Apply(old, job, prior, calendars, t.now)
	if err != nil {
		return job, err
	}
	applied, secrets, err := s.sealSecrets(old, applied)
	if err != nil {
		return job, err
	}
	err = t.writeJob(ctx, old, applied, revision)
	if err == nil {
		err = t.writeSecrets(ctx, old, applied, secrets)
	}
	if err != nil {
		return job, fmt.Errorf("put job %s/%s: %w", job.App, job.Name, err)
	}
	if err := t.insertMisfires(ctx, missed); err != nil {
		return job, err
	}
	return applied, t.remember(ctx, dispatcher.CausePut, triggerIDs(applied))
}

// asStored returns a job as reading it back would, so that a PUT need not.
func asStored(job dispatcher.Job) (dispatcher.Job, error) {
	var row jobRow
	retry, err := json.Marshal(job.Retry)
	if err != nil {
		return job, err
	}
	target, err := json.Marshal(job.Target)
	if err != nil {
		return job, err
	}
	if err := row.decode(string(retry), string(target), string(job.Payload), "[]"); err != nil {
		return job, fmt.Errorf("job %s/%s: stored %w", job.App, job.Name, err)
	}
	job.Retry, job.Target, job.Payload = row.Retry, row.Target, row.Payload
	job.NodeLabels = dispatcher.ParseLabels(job.NodeLabels.String())
	job.CreatedAt, job.UpdatedAt = job.CreatedAt.UTC(), job.UpdatedAt.UTC()
	job.Triggers = maps.Clone(job.Triggers)
	for name, t := range job.Triggers {
		for _, at := range []**time.Time{&t.StartAt, &t.EndAt, &t.PrevFireTime, &t.NextFireTime, &t.DueAt} {
			*at = optional(orNullAt(*at))
		}
		if t.AnchorAt = t.AnchorAt.UTC(); t.State == dispatcher.TriggerWaiting && (t.Paused || job.Paused) {
			t.State = dispatcher.TriggerPaused
		}
		job.Triggers[name] = t
	}
	return job, nil
}

// writeJob writes a job and its triggers, and retires those that old had besides. calendars is
// the revision of the app's calendars.
func (t *tx) writeJob(ctx context.Context, old *dispatcher.Job, job dispatcher.Job, calendars int64) error {
	target, err := json.Marshal(job.Target)
	if err != nil {
		return err
	}
	retry, err := json.Marshal(job.Retry)
	if err != nil {
		return err
	}
	names, err := triggerNames(job)
	if err != nil {
		return err
	}
	jobID, appID := dispatcher.JobID(job.App, job.Name), dispatcher.AppID(job.App)
	// $1 id, $2 app, $3 name, $4 description, $5 enabled, $6 paused, $7 target, $8 payload,
	// $9 names of the triggers, $10 revision, $11 created, $12 updated, $13 priority,
	// $14 node labels, $15 delivery, $16 concurrency policy, $17 most at once, $18 queue limit, $19 retry,
	// $20 milliseconds after completion
	const put = `INSERT INTO jobs (id, app_id, name, description, enabled, paused, target, payload, trigger_names,
			revision, created_at, updated_at, priority, node_labels, delivery, concurrency_policy, max_concurrency, queue_limit, retry,
			delete_after_completion)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
		ON CONFLICT (id) DO UPDATE SET description = excluded.description, enabled = excluded.enabled,
			paused = excluded.paused, priority = excluded.priority, node_labels = excluded.node_labels,
			delivery = excluded.delivery, concurrency_policy = excluded.concurrency_policy,
			max_concurrency = excluded.max_concurrency, queue_limit = excluded.queue_limit, retry = excluded.retry,
			delete_after_completion = excluded.delete_after_completion, target = excluded.target, payload = excluded.payload,
			trigger_names = excluded.trigger_names, revision = excluded.revision,
			created_at = excluded.created_at, updated_at = excluded.updated_at, deleted_at = NULL`
	_, err = t.ExecContext(ctx, put, jobID, appID, job.Name, job.Description, job.Enabled, job.Paused, string(target),
		string(job.Payload), names, job.Revision, job.CreatedAt.UnixMilli(), job.UpdatedAt.UnixMilli(), job.Priority, job.NodeLabels.String(), job.Delivery,
		job.ConcurrencyPolicy, job.MaxConcurrency, job.QueueLimit, string(retry), job.DeleteAfterCompletion.Std().Milliseconds())
	if err != nil {
		return err
	}
	if err := t.writeState(ctx, job); err != nil {
		return err
	}
	failpoint.Hit(failpoint.InDefinition)
	if err := t.writeTriggers(ctx, job, calendars); err != nil || old == nil {
		return err
	}
	removed := maps.Clone(old.Triggers)
	maps.DeleteFunc(removed, func(name string, _ dispatcher.Trigger) bool {
		_, stays := job.Triggers[name]
		return stays
	})
	return t.retireTriggers(ctx, job, removed)
}

func (s *store) DeleteJob(ctx context.Context, app, name string, change dispatcher.Change) error {
	return s.change(ctx, change, func(ctx context.Context, t *tx) error {
		job, err := s.findJob(ctx, t, app, name, t.lock())
		if err != nil {
			return err
		}
		if err := t.allow(job.Revision); err != nil {
			return err
		}
		return t.removeJob(ctx, job, "delete")
	})
}

// removeJob deletes a job; action is what the audit calls it.
func (t *tx) removeJob(ctx context.Context, job dispatcher.Job, action string) error {
	id := dispatcher.JobID(job.App, job.Name)
	// $1 now, $2 id
	const remove = `UPDATE jobs SET deleted_at = $1, updated_at = $1, trigger_names = '[]' WHERE id = $2`
	if _, err := t.ExecContext(ctx, remove, t.now.UnixMilli(), id); err != nil {
		return err
	}
	// $1 job
	if _, err := t.ExecContext(ctx, `DELETE FROM secrets WHERE job_id = $1`, id); err != nil {
		return err
	}
	if err := t.retireTriggers(ctx, job, job.Triggers); err != nil {
		return fmt.Errorf("delete job %s/%s: %w", job.App, job.Name, err)
	}
	_, calendars, err := calendarsOf(ctx, t, job.App, job)
	if err != nil {
		return err
	}
	if err := t.insertMisfires(ctx, dispatcher.Retire(job, calendars, t.now)); err != nil {
		return err
	}
	return t.audit(ctx, action, job.App, "job "+job.Name, job.Revision)
}
