package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// DeleteJob deletes a job and retires its triggers. Its ledger stays.
func (s *store) DeleteJob(ctx context.Context, app, name string, change dispatcher.Change) error {
	return s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// As a PUT locks them: removeUnused needs the app.
		if _, err := findApp(ctx, t, app, t.lock()); err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
			return err
		}
		job, err := s.findJob(ctx, t, app, name, t.lock())
		if err != nil {
			return err
		}
		if err := t.allow(job.Revision); err != nil {
			return err
		}
		if err := t.notFollowing(ctx, job); err != nil {
			return err
		}
		before, err := s.withValues(ctx, t, &job)
		if err != nil {
			return err
		}
		return t.removeJob(ctx, *before, "delete")
	})
}

// removeJob deletes a job, which may have the values of its secrets; action is what the audit log calls it.
func (t *tx) removeJob(ctx context.Context, job dispatcher.Job, action string) error {
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
	_, calendars, err := calendarsOf(ctx, t, job.App, job)
	if err != nil {
		return err
	}
	if err := t.insertMisfires(ctx, dispatcher.Retire(job, calendars, t.now)); err != nil {
		return err
	}
	if err := t.endAlertsOf(ctx, id); err != nil {
		return err
	}
	if err := t.endAsides(ctx, id); err != nil {
		return err
	}
	t.notify(dispatcher.Notification{JobID: id})
	err = t.auditJob(ctx, auditEntry{action: action, app: job.App, subject: "job " + job.Name, revision: job.Revision}, &job, nil)
	if err != nil {
		return err
	}
	return t.removeUnused(ctx, job.App, usedCalendars(&job))
}
