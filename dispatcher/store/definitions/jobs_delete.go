package definitions

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// DeleteJob deletes a job and retires its triggers. Its ledger stays.
func (s *Store) DeleteJob(ctx context.Context, app, name string, change input.Change) error {
	return s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		// As a PUT locks them: removeUnused needs the app.
		if _, err := LockApp(ctx, t, app); err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
			return err
		}
		job, err := s.readJob(ctx, t, app, name, t.ForUpdate())
		if err != nil {
			return err
		}
		if err := t.Allow(job.Revision); err != nil {
			return err
		}
		if err := NotFollowing(ctx, t, job.Job); err != nil {
			return err
		}
		if job.Err != nil {
			return s.removeUnreadable(ctx, t, job)
		}
		before, err := s.withValues(ctx, t, &job.Job)
		if err != nil {
			return err
		}
		return RemoveJob(ctx, t, *before, "delete")
	})
}

// removeUnreadable deletes a job of which not all can be read: its triggers, and the jobs that are part of it, are those that say
// that they are its own.
func (s *Store) removeUnreadable(ctx context.Context, t *dispatch.Tx, job dispatcher.JobVersion) error {
	// $1 job
	parts, err := db.Collect(ctx, t, db.ScanInt, `SELECT id FROM jobs WHERE part_of = $1 AND deleted_at IS NULL`, job.Key())
	for _, id := range parts {
		if err == nil {
			err = deleteAttached(ctx, t, id)
		}
	}
	if err != nil {
		return fmt.Errorf("delete what is part of job %s/%s: %w", job.App, job.Name, err)
	}
	if err := s.loadTriggersOf(ctx, t, t.ForUpdate(), &job); err != nil {
		return err
	}
	return RemoveJob(ctx, t, job.Job, "delete")
}

// loadTriggersOf reads the triggers of a job of which not all can be read, which may not name them.
func (s *Store) loadTriggersOf(ctx context.Context, q db.Querier, lock string, job *dispatcher.JobVersion) error {
	ids, err := db.Collect(ctx, q, db.ScanInt, `SELECT id FROM triggers WHERE job_id = $1 AND deleted_at IS NULL ORDER BY id`, job.Key())
	if err != nil {
		return err
	}
	job.Triggers = map[string]dispatcher.Trigger{}
	// From $1 on: the ids
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + dispatch.TriggerColumns + dispatch.TheseTriggers + ` ORDER BY t.id` +
		db.LockOf(lock, "c, t")
	triggers, err := db.Collect(ctx, q, dispatch.ScanTrigger, query, s.db.Batch(append([]int64{}, ids...))...)
	if err != nil {
		return fmt.Errorf("read the triggers of job %s/%s: %w", job.App, job.Name, err)
	}
	for _, one := range triggers {
		job.Triggers[one.Name] = one.Trigger
	}
	return nil
}

// RemoveJob deletes a job, which may have the values of its secrets; action is what the audit log calls it.
func RemoveJob(ctx context.Context, t *dispatch.Tx, job dispatcher.Job, action string) error {
	_, calendars, err := calendarsOf(ctx, t, job.App, job)
	if err != nil {
		return err
	}
	missed := dispatcher.Retire(job, calendars, t.At)
	if err := dropJob(ctx, t, job); err != nil {
		return err
	}
	if err := dispatch.InsertMisfires(ctx, t, missed); err != nil {
		return err
	}
	err = auditJob(ctx, t, dispatch.AuditEntry{Action: action, App: job.App, Subject: "job " + job.Name, Revision: job.Revision}, &job, nil)
	if err != nil {
		return err
	}
	return removeUnused(ctx, t, job.App, usedCalendars(&job))
}

// dropJob deletes a job, and says nothing of the fires that it owed.
func dropJob(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	id := job.Key()
	// $1 now, $2 id
	const remove = `UPDATE jobs SET deleted_at = $1, updated_at = $1, trigger_names = '[]', trigger_origins = '', follows = 0 WHERE id = $2`
	if _, err := t.ExecContext(ctx, remove, t.At.UnixMilli(), id); err != nil {
		return err
	}
	if err := removeSecrets(ctx, t, id); err != nil {
		return err
	}
	if err := removeFollows(ctx, t, job); err != nil {
		return err
	}
	if err := countJobs(ctx, t, job.App, -1, -len(job.Triggers)); err != nil {
		return err
	}
	if err := retireTriggers(ctx, t, job, job.Triggers); err != nil {
		return fmt.Errorf("delete job %s/%s: %w", job.App, job.Name, err)
	}
	if err := endAlertsOf(ctx, t, id); err != nil {
		return err
	}
	if err := dispatch.EndAsides(ctx, t, id); err != nil {
		return err
	}
	t.Notify(dispatcher.Notification{JobID: id})
	return nil
}
