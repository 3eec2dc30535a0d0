package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// DeleteJob deletes a job and retires its triggers. Its ledger stays.
func (s *Store) DeleteJob(ctx context.Context, app, name string, change input.Change) error {
	return s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// As a PUT locks them: removeUnused needs the app.
		if _, err := t.lockApp(ctx, app); err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
			return err
		}
		job, err := s.readJob(ctx, t, app, name, t.lock())
		if err != nil {
			return err
		}
		if err := t.allow(job.Revision); err != nil {
			return err
		}
		if err := t.notFollowing(ctx, job.Job); err != nil {
			return err
		}
		if job.Err != nil {
			return s.removeUnreadable(ctx, t, job)
		}
		before, err := s.withValues(ctx, t, &job.Job)
		if err != nil {
			return err
		}
		return t.removeJob(ctx, *before, "delete")
	})
}

// removeUnreadable deletes a job of which not all can be read: its triggers, and the jobs that are part of it, are those that say
// that they are its own.
func (s *Store) removeUnreadable(ctx context.Context, t *tx, job dispatcher.JobVersion) error {
	// $1 job
	parts, err := collect(ctx, t, scanInt, `SELECT id FROM jobs WHERE part_of = $1 AND deleted_at IS NULL`, job.Key())
	for _, id := range parts {
		if err == nil {
			err = t.deleteAttached(ctx, id)
		}
	}
	if err != nil {
		return fmt.Errorf("delete what is part of job %s/%s: %w", job.App, job.Name, err)
	}
	ids, err := collect(ctx, t, scanInt, `SELECT id FROM triggers WHERE job_id = $1 AND deleted_at IS NULL ORDER BY id`, job.Key())
	if err != nil {
		return err
	}
	job.Triggers = map[string]dispatcher.Trigger{}
	// From $1 on: the ids
	query := t.rows(0, 1, "", idColumns...) + ` SELECT ` + triggerColumns + theseTriggers + ` ORDER BY t.id` + lockOf(t.lock(), "c, t")
	triggers, err := collect(ctx, t, scanTrigger, query, t.batch(append([]int64{}, ids...))...)
	if err != nil {
		return fmt.Errorf("read the triggers of job %s/%s: %w", job.App, job.Name, err)
	}
	for _, one := range triggers {
		job.Triggers[one.name] = one.Trigger
	}
	return t.removeJob(ctx, job.Job, "delete")
}

// removeJob deletes a job, which may have the values of its secrets; action is what the audit log calls it.
func (t *tx) removeJob(ctx context.Context, job dispatcher.Job, action string) error {
	if err := t.dropJob(ctx, job); err != nil {
		return err
	}
	_, calendars, err := calendarsOf(ctx, t, job.App, job)
	if err != nil {
		return err
	}
	if err := t.insertMisfires(ctx, dispatcher.Retire(job, calendars, t.now)); err != nil {
		return err
	}
	err = t.auditJob(ctx, auditEntry{action: action, app: job.App, subject: "job " + job.Name, revision: job.Revision}, &job, nil)
	if err != nil {
		return err
	}
	return t.removeUnused(ctx, job.App, usedCalendars(&job))
}

// dropJob deletes a job, and says nothing of the fires that it owed.
func (t *tx) dropJob(ctx context.Context, job dispatcher.Job) error {
	id := job.Key()
	// $1 now, $2 id
	const remove = `UPDATE jobs SET deleted_at = $1, updated_at = $1, trigger_names = '[]', trigger_origins = '', follows = 0 WHERE id = $2`
	if _, err := t.ExecContext(ctx, remove, t.now.UnixMilli(), id); err != nil {
		return err
	}
	if err := t.removeSecrets(ctx, id); err != nil {
		return err
	}
	if err := t.removeFollows(ctx, job); err != nil {
		return err
	}
	if _, err := t.countJobs(ctx, job.App, -1, -len(job.Triggers)); err != nil {
		return err
	}
	if err := t.retireTriggers(ctx, job, job.Triggers); err != nil {
		return fmt.Errorf("delete job %s/%s: %w", job.App, job.Name, err)
	}
	if err := t.endAlertsOf(ctx, id); err != nil {
		return err
	}
	if err := t.endAsides(ctx, id); err != nil {
		return err
	}
	t.notify(dispatcher.Notification{JobID: id})
	return nil
}
