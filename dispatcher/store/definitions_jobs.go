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

// triggerIDs returns the ids of a job's triggers.
func triggerIDs(job dispatcher.Job) []int64 {
	ids := make([]int64, 0, len(job.Triggers))
	for name := range job.Triggers {
		ids = append(ids, dispatcher.TriggerID(job.App, job.Name, name))
	}
	return ids
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

func (s *store) PauseJob(ctx context.Context, app, name, trigger string, paused bool, change dispatcher.Change) (stored dispatcher.Job, err error) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		job, err := s.findJob(ctx, t, app, name, t.lock())
		if err != nil {
			return err
		}
		if err := t.allow(job.Revision); err != nil {
			return err
		}
		subject := "job " + name
		if trigger == "" {
			job.Paused = paused
		} else {
			one, found := job.Triggers[trigger]
			if !found {
				return dispatcher.NotFound("trigger", app+"/"+name+"/"+trigger)
			}
			one.Paused = paused
			job.Triggers[trigger] = one
			subject += " trigger " + trigger
		}
		cause := dispatcher.CauseResume
		if paused {
			cause = dispatcher.CausePause
		}
		if !paused && inError(job, trigger) {
			err = s.scheduleNextJob(ctx, t, &job)
		} else {
			job.Revision++
			err = t.writePauses(ctx, job)
		}
		if err != nil {
			return fmt.Errorf("pause job %s/%s: %w", app, name, err)
		}
		if err := t.remember(ctx, cause, triggerIDs(job)); err != nil {
			return err
		}
		if stored, err = s.shownJob(ctx, t, app, name); err != nil {
			return err
		}
		return t.audit(ctx, string(cause), app, subject, job.Revision)
	})
	return stored, err
}

// writePauses writes the pauses of a job and its triggers, and the revision.
func (t *tx) writePauses(ctx context.Context, job dispatcher.Job) error {
	// $1 id, $2 paused, $3 revision, $4 now
	const ofJob = `UPDATE jobs SET paused = $2, revision = $3, updated_at = $4 WHERE id = $1`
	jobID := dispatcher.JobID(job.App, job.Name)
	if _, err := t.ExecContext(ctx, ofJob, jobID, job.Paused, job.Revision, t.now.UnixMilli()); err != nil {
		return err
	}
	job.State = job.RollUp(false)
	if err := t.writeState(ctx, job); err != nil {
		return err
	}
	// $1 job paused, $2 revision, from $3 on: id, paused
	ofTriggers := t.rows(0, 3, "", column{"id", bigint}, column{"paused", boolean}) + ` UPDATE triggers AS t
		SET paused = b.paused, job_paused = $1, revision = $2 FROM b WHERE t.id = b.id`
	var ids []int64
	var paused []bool
	for name, trigger := range job.Triggers {
		ids, paused = append(ids, dispatcher.TriggerID(job.App, job.Name, name)), append(paused, trigger.Paused)
	}
	_, err := t.ExecContext(ctx, ofTriggers, append([]any{job.Paused, job.Revision}, t.batch(ids, paused)...)...)
	return err
}

// inError tells whether a trigger of a job, or without a name any, is in state error.
func inError(job dispatcher.Job, trigger string) bool {
	for name, one := range job.Triggers {
		if one.State == dispatcher.TriggerError && (trigger == "" || trigger == name) {
			return true
		}
	}
	return false
}

// scheduleNextJob writes a job, its triggers in state error armed again as if it had been declared again.
func (s *store) scheduleNextJob(ctx context.Context, t *tx, job *dispatcher.Job) error {
	revision, calendars, err := calendarsOf(ctx, t, job.App, *job)
	if err != nil {
		return err
	}
	revised, missed, err := dispatcher.Apply(job, *job, 0, calendars, t.now)
	if err != nil {
		return err
	}
	if err := t.writeJob(ctx, job, revised, revision); err != nil {
		return err
	}
	*job = revised
	return t.insertMisfires(ctx, missed)
}
