package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Deliveries are runs, and each run is of a job. So the target of a Follow, or of an alert, has a row among the jobs, which is
// part of its owner: it has secrets, retries and revisions as any job, and no trigger. Lists, quotas and exports, which are
// about what people declare, leave it out.

// loadAttached returns an attached job as it is before it is put.
func loadAttached(ctx context.Context, q db.Querier, id int64) (dispatcher.AttachedBefore, error) {
	// $1 id
	const attached = `SELECT j.revision, j.target, j.retry, j.created_at, j.deleted_at IS NOT NULL FROM jobs AS j
		WHERE j.id = $1 AND j.part_of <> 0`
	before, _, err := db.First(ctx, q, func(row db.Scanner) (b dispatcher.AttachedBefore, err error) {
		var job dispatcher.Job
		var target, retry string
		var deleted bool
		err = row.Scan(&b.Revision, &target, &retry, db.InstantColumn(&job.CreatedAt), &deleted)
		unread := errors.Join(json.Unmarshal([]byte(target), &job.Target), json.Unmarshal([]byte(retry), &job.Retry))
		if !deleted && unread == nil { // one that cannot be read is replaced as if it were not there
			b.Old = &job
		}
		return b, err
	}, attached, id)
	return before, err
}

// writeAttached writes what was decided of the job that makes the deliveries of owner. It returns the target as stored.
func (s *Store) writeAttached(ctx context.Context, t *dispatch.Tx, owner int64, c dispatcher.AttachedChange) (target.Target, error) {
	if c.Same {
		return c.Job.Target, nil
	}
	job, secrets := s.sealJobSecrets(c.Job)
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
	t.Notify(dispatcher.Notification{JobID: job.Key()})
	return job.Target, writeJobSecrets(ctx, t, c.Old, job, secrets)
}

// parkAttached takes its name from a deleted job that had it, and has another id.
func parkAttached(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	_, err := t.ExecContext(ctx, parkDeleted, run.AppID(job.App), job.Name, job.Key())
	return err
}

// deleteAttached deletes the job that made deliveries, if there is one. What of it is under way ends as that of any job that
// is deleted.
func deleteAttached(ctx context.Context, t *dispatch.Tx, id int64) error {
	// $1 now, $2 id
	n, err := t.Affect(ctx, `UPDATE jobs SET deleted_at = $1, updated_at = $1 WHERE id = $2 AND part_of <> 0 AND deleted_at IS NULL`,
		t.At.UnixMilli(), id)
	if err != nil || n == 0 {
		return err
	}
	t.Notify(dispatcher.Notification{JobID: id})
	return removeSecrets(ctx, t, id)
}

// renameAttached gives the attached jobs of a job names that follow from its new one. before is the job under its old name.
func renameAttached(ctx context.Context, t *dispatch.Tx, after dispatcher.Job) error {
	for _, event := range run.FollowEvents {
		attached := after.Attached(event)
		if err := parkAttached(ctx, t, attached); err != nil {
			return err
		}
		// $1 id, $2 name, $3 origin
		const rename = `UPDATE jobs SET name = $2, origin = $3, revision = revision + 1 WHERE id = $1 AND part_of <> 0`
		n, err := t.Affect(ctx, rename, attached.Key(), attached.Name, attached.Origin)
		if err != nil {
			return err
		}
		if n > 0 {
			t.Notify(dispatcher.Notification{JobID: attached.Key()})
		}
	}
	return nil
}

// writeAttachedOf writes the attached jobs of a job that replaces old, and returns it with their targets as they are stored.
func (s *Store) writeAttachedOf(ctx context.Context, t *dispatch.Tx, old *dispatcher.Job, job dispatcher.Job,
	attached map[run.FollowEvent]dispatcher.AttachedChange) (dispatcher.Job, error) {
	for _, event := range run.FollowEvents {
		change, stays := attached[event]
		if !stays {
			if old != nil && (unreadable(old) || old.Attached(event).Target != (target.Target{})) {
				if err := deleteAttached(ctx, t, job.Attached(event).Key()); err != nil {
					return job, err
				}
			}
			continue
		}
		stored, err := s.writeAttached(ctx, t, job.Key(), change)
		if err != nil {
			return job, err
		}
		job = job.WithFollowTarget(event, stored)
	}
	return job, nil
}
