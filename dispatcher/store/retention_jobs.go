package store

import (
	"context"
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
)

const (
	// expiredJobs are those whose time after completion has passed, as far as their states tell.
	// $1 now, $2 limit
	expiredJobs = `SELECT a.name, j.name FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		WHERE j.delete_after_completion > 0 AND j.deleted_at IS NULL AND j.completed_at + j.delete_after_completion <= $1
		ORDER BY j.completed_at + j.delete_after_completion LIMIT $2`

	// purgeExpired is how many jobs one call deletes, each in a transaction of its own.
	purgeExpired = 100
)

// removeExpired deletes jobs some time after their completion, where that was declared. They are
// looked at again under their locks: anyone who changes a job or runs it meanwhile comes first.
func (t *purge) removeExpired(ctx context.Context, present int64) error {
	jobs, err := collect(ctx, t.read, func(row scanner) (j dispatcher.Job, err error) {
		err = row.Scan(&j.App, &j.Name)
		return j, err
	}, expiredJobs, present, purgeExpired)
	for _, job := range jobs {
		if err != nil || t.stopped {
			break
		}
		err = t.removeIfExpired(ctx, job.App, job.Name, present)
	}
	t.result.More = t.result.More || err == nil && !t.stopped && len(jobs) == purgeExpired
	return err
}

func (t *purge) removeIfExpired(ctx context.Context, app, name string, present int64) error {
	removed := false
	err := t.change(ctx, dispatcher.Change{Actor: "system", Now: t.now}, func(ctx context.Context, tx *tx) error {
		removed = false
		if err := t.limitLockWait(ctx, tx.Tx); err != nil {
			return err
		}
		if held, err := holds(ctx, tx, t.flavor, t.lock, t.now); err != nil || !held {
			return err
		}
		job, err := t.findJob(ctx, tx, app, name, tx.lock())
		if job.Name == "" { // of one that cannot be read there is at least that
			if errors.Is(err, dispatcher.ErrNotFound) {
				return nil
			}
			return err
		}
		// $1 id, $2 now
		const over = `SELECT 1 FROM jobs AS j WHERE j.id = $1 AND j.completed_at + j.delete_after_completion <= $2
			AND NOT EXISTS (SELECT 1 FROM (` + holders + `) AS n JOIN runs AS r ON r.node = n.id WHERE r.live AND r.job_id = j.id)`
		id := dispatcher.JobID(app, name)
		_, expired, err := first(ctx, tx, scanInt, over, id, present)
		if err != nil {
			return err
		}
		if removed = expired && job.Complete(); removed {
			return tx.removeJob(ctx, job, "delete after completion")
		}
		// Its time begins again, so that it is not in the way of others.
		// $1 id, $2 now
		_, err = tx.ExecContext(ctx, `UPDATE jobs SET completed_at = $2 WHERE id = $1 AND completed_at IS NOT NULL`, id, present)
		return err
	})
	if err != nil && t.transient(err) {
		t.stopped = true
		return nil
	}
	if removed && err == nil {
		t.result.Jobs++
	}
	return err
}
