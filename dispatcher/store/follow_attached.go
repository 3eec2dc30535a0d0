package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Deliveries are runs, and each run is of a job. So the target of a Follow, or of an alert, has a row among the jobs, which is
// part of its owner: it has secrets, retries and revisions as any job, and no trigger. Lists, quotas and exports, which are
// about what people declare, leave it out.

// attachedJob is the row of a job that is part of another thing.
type attachedJob struct {
	job      dispatcher.Job
	revision int64
	deleted  bool
}

// findAttached returns the row of an attached job, or nil.
func findAttached(ctx context.Context, t *tx, id int64) (*attachedJob, error) {
	// $1 id
	const attached = `SELECT j.revision, j.target, j.retry, j.created_at, j.deleted_at IS NOT NULL FROM jobs AS j
		WHERE j.id = $1 AND j.part_of <> 0`
	one, found, err := db.First(ctx, t, func(row db.Scanner) (a attachedJob, err error) {
		var target, retry string
		if err = row.Scan(&a.revision, &target, &retry, db.InstantColumn(&a.job.CreatedAt), &a.deleted); err == nil {
			err = errors.Join(json.Unmarshal([]byte(target), &a.job.Target), json.Unmarshal([]byte(retry), &a.job.Retry))
		}
		return a, err
	}, attached, id)
	if err != nil || !found {
		return nil, err
	}
	return &one, nil
}

// putAttached creates or replaces the job that makes the deliveries of owner: job, as Job.Attached makes it, which gets from
// the app what it leaves out. It returns the target as stored. The error is Problems, with JSON pointers in job.
func (s *Store) putAttached(ctx context.Context, t *tx, owner int64, job dispatcher.Job, app access.App) (target.Target, error) {
	app.Defaults.Fill(&job)
	was, err := findAttached(ctx, t, job.Key())
	if err != nil {
		return job.Target, err
	}
	var old *dispatcher.Job
	job.Revision, job.CreatedAt, job.UpdatedAt, job.State = 1, t.now, t.now, dispatcher.JobInit
	if was != nil {
		job.Revision = was.revision + 1
		if !was.deleted {
			before := job
			before.Target, before.Retry = was.job.Target, was.job.Retry
			old, job.CreatedAt = &before, was.job.CreatedAt
		}
	}
	if old != nil {
		if err := job.CheckKept(*old); err != nil {
			return job.Target, err
		}
	}
	job, secrets, err := s.sealJobSecrets(old, job)
	if err != nil {
		return job.Target, err
	}
	if old != nil && len(secrets) == 0 && old.Declares(job) {
		return job.Target, nil
	}
	if err := parkAttached(ctx, t, job); err != nil {
		return job.Target, err
	}
	row, err := rowOf(job)
	if err != nil {
		return job.Target, err
	}
	row.partOf = owner
	// From $1 on: the fields of a job
	put := jobFields.Insert("jobs") + ` ON CONFLICT (id) DO UPDATE SET ` + jobFields.Update() + `, deleted_at = NULL`
	if _, err := t.ExecContext(ctx, put, jobFields.Values(&row)...); err != nil {
		return job.Target, fmt.Errorf("put job %s/%s: %w", job.App, job.Name, err)
	}
	t.notify(dispatcher.Notification{JobID: job.Key()})
	return job.Target, writeJobSecrets(ctx, t, old, job, secrets)
}

// parkAttached takes its name from a deleted job that had it, and has another id.
func parkAttached(ctx context.Context, t *tx, job dispatcher.Job) error {
	_, err := t.ExecContext(ctx, parkDeleted, run.AppID(job.App), job.Name, job.Key())
	return err
}

// deleteAttached deletes the job that made deliveries, if there is one. What of it is under way ends as that of any job that
// is deleted.
func deleteAttached(ctx context.Context, t *tx, id int64) error {
	// $1 now, $2 id
	n, err := t.execute(ctx, `UPDATE jobs SET deleted_at = $1, updated_at = $1 WHERE id = $2 AND part_of <> 0 AND deleted_at IS NULL`,
		t.now.UnixMilli(), id)
	if err != nil || n == 0 {
		return err
	}
	t.notify(dispatcher.Notification{JobID: id})
	return removeSecrets(ctx, t, id)
}

// renameAttached gives the attached jobs of a job names that follow from its new one. before is the job under its old name.
func renameAttached(ctx context.Context, t *tx, after dispatcher.Job) error {
	for _, event := range run.FollowEvents {
		attached := after.Attached(event)
		if err := parkAttached(ctx, t, attached); err != nil {
			return err
		}
		// $1 id, $2 name, $3 origin
		const rename = `UPDATE jobs SET name = $2, origin = $3, revision = revision + 1 WHERE id = $1 AND part_of <> 0`
		n, err := t.execute(ctx, rename, attached.Key(), attached.Name, attached.Origin)
		if err != nil {
			return err
		}
		if n > 0 {
			t.notify(dispatcher.Notification{JobID: attached.Key()})
		}
	}
	return nil
}

// putFollows writes the attached jobs of a job, and returns it with their targets as they are stored, and its followers. The
// error is Problems, with JSON pointers in job.
func (s *Store) putFollows(ctx context.Context, t *tx, old *dispatcher.Job, job dispatcher.Job, app access.App) (
	dispatcher.Job, []follower, error,
) {
	var problems input.Problems
	for _, event := range run.FollowEvents {
		attached := job.Attached(event)
		if attached.Target == (target.Target{}) {
			if old != nil && old.Attached(event).Target != (target.Target{}) {
				if err := deleteAttached(ctx, t, attached.Key()); err != nil {
					return job, nil, err
				}
			}
			continue
		}
		target, err := s.putAttached(ctx, t, job.Key(), attached, app)
		var wrong input.Problems
		if err != nil && !errors.As(err, &wrong) {
			return job, nil, err
		}
		problems.AddError("/"+string(event), err)
		job = job.WithFollowTarget(event, target)
	}
	all, err := findFollowers(ctx, t, app, job)
	var wrong input.Problems
	if err != nil && !errors.As(err, &wrong) {
		return job, nil, err
	}
	problems.AddError("", err)
	return job, all, problems.Err()
}
