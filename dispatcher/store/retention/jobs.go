package retention

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

const (
	// expiredJobs are the jobs whose time after completion has passed, according to their states.
	// $1 now, $2 limit
	expiredJobs = `SELECT a.name, j.name FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		WHERE j.delete_after_completion > 0 AND j.deleted_at IS NULL AND j.completed_at + j.delete_after_completion <= $1
		ORDER BY j.completed_at + j.delete_after_completion LIMIT $2`

	// purgeExpired is how many jobs one call deletes, each in its own transaction.
	purgeExpired = 100
)

// removeExpired deletes jobs some time after their completion, where that was declared. It checks them again under
// their locks: a change or a run of the job in between takes precedence.
func (t *Purge) removeExpired(ctx context.Context, present int64) error {
	jobs, err := db.ReadRows(ctx, t.db.Read, func(j *dispatcher.Job) []any { return []any{&j.App, &j.Name} },
		expiredJobs, present, purgeExpired+t.dispatch.Asides.Count(dispatcher.WorkPurge))
	item := func(job dispatcher.Job) string { return dispatch.JobItem(job.Key()) }
	for _, job := range dispatch.WithoutAsides(t.dispatch.Asides, dispatcher.WorkPurge, jobs, item, t.present()) {
		if t.stopped || ctx.Err() != nil {
			break
		}
		one := t.dispatch.OrAside(ctx, func() error { return t.removeIfExpired(ctx, job.App, job.Name, present) }, func(why error) error {
			row := dispatch.AsideRow{Work: dispatcher.WorkPurge, Item: item(job), App: run.AppID(job.App), Job: job.Key()}
			return t.dispatch.SetAside(ctx, row, why, t.Now)
		})
		if one != nil {
			err = errors.Join(err, fmt.Errorf("job %s/%s: %w", job.App, job.Name, one))
		}
	}
	t.used = err == nil && !t.stopped && len(jobs) >= purgeExpired
	return err
}

func (t *Purge) removeIfExpired(ctx context.Context, app, name string, present int64) error {
	removed := false
	err := t.dispatch.Change(ctx, input.Change{Actor: "system", Now: t.Now}, func(ctx context.Context, tx *dispatch.Tx) error {
		removed = false
		if err := t.db.LimitLockWait(ctx, tx.Tx); err != nil {
			return err
		}
		if held, err := dispatch.Holds(ctx, tx, t.db.Flavor, t.lock, t.Now); err != nil || !held {
			return err
		}
		// In the order of a PUT: no job starts to name this one meanwhile.
		switch _, err := definitions.LockApp(ctx, tx, app); {
		case errors.Is(err, dispatcher.ErrConflict): // an import has yet to write the rest of the app
			return nil
		case err != nil && !errors.Is(err, dispatcher.ErrNotFound):
			return err
		}
		job, err := t.definitions.FindJob(ctx, tx, app, name, tx.ForUpdate())
		if job.Name == "" { // an unreadable job has at least this
			if errors.Is(err, dispatcher.ErrNotFound) {
				return nil
			}
			return err
		}
		// $1 id, $2 now
		over := `SELECT 1 FROM jobs AS j WHERE j.id = $1 AND j.completed_at + j.delete_after_completion <= $2
			AND NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE r.job_id = j.id)
			AND NOT EXISTS (SELECT 1 FROM followers AS f WHERE f.follower_id = j.id)
			AND NOT EXISTS (SELECT 1 FROM (` + dispatch.AnyClaim(t.db.Flavor) + `) AS r WHERE r.job_id = j.id)`
		id := job.Key()
		_, expired, err := db.First(ctx, tx, db.ScanInt, over, id, present)
		if err != nil {
			return err
		}
		if removed = expired && job.Complete(); removed {
			return t.definitions.RemoveJob(ctx, tx, job, "delete after completion")
		}
		// Its time begins again, so that it does not block others.
		// $1 id, $2 now
		_, err = tx.ExecContext(ctx, `UPDATE jobs SET completed_at = $2 WHERE id = $1 AND completed_at IS NOT NULL`, id, present)
		return err
	})
	if err != nil && t.db.Transient(err) {
		t.stopped = true
		return nil
	}
	if removed && err == nil {
		t.Result.Jobs++
	}
	return err
}

// jobShare is how many times fewer jobs than other rows a transaction removes, because their triggers go with them.
const jobShare = 20

// removeDeleted removes the rows of jobs that were deleted before an instant and have no history left, with their
// triggers, which are found by their job.
func (t *Purge) removeDeleted(ctx context.Context, tx *sql.Tx, before int64, size int) (removed int, err error) {
	// $1 before, $2 limit, $3 end of what the jobs can have done, which leaves the days after it alone
	const outdated = `SELECT j.id FROM jobs AS j WHERE j.deleted_at < $1
		AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.job_id = j.id AND r.scheduled_at < $3)
		AND NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE r.job_id = j.id)
		AND NOT EXISTS (SELECT 1 FROM misfires AS m WHERE m.job_id = j.id) ORDER BY j.deleted_at LIMIT $2`
	jobs, err := t.removableIDs(ctx, tx, size, expiringIDs{"deleted job", outdated, `SELECT id FROM jobs WHERE id = $1`},
		func(most int) []any { return []any{before, most, before + triggerReach} })
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	// $1 before, from $2 on: ids. One of them may have been declared again meanwhile.
	remove := t.db.Rows(0, 2, "", db.IDColumns...) + ` DELETE FROM jobs WHERE deleted_at < $1 AND id IN (SELECT id FROM b) RETURNING id`
	if jobs, err = db.Collect(ctx, tx, db.ScanInt, remove, append([]any{before}, t.db.Batch(jobs)...)...); err != nil || len(jobs) == 0 {
		return 0, err
	}
	// Slots are released under the lock of their job's row, so they must not outlive it.
	for _, table := range []string{"carried_states", "slots", "host_waits"} {
		// From $1 on: ids
		with := t.db.Rows(0, 1, "", db.IDColumns...) + ` DELETE FROM ` + table + ` WHERE job_id IN (SELECT id FROM b)`
		if _, err := tx.ExecContext(ctx, with, t.db.Batch(jobs)...); err != nil {
			return 0, fmt.Errorf("remove the %s of deleted jobs: %w", table, err)
		}
	}
	triggers, err := db.Collect(ctx, tx, db.ScanInt, t.db.Rows(0, 1, "", db.IDColumns...)+RemoveTriggersOf, t.db.Batch(jobs)...)
	if err != nil {
		return 0, err
	}
	return len(jobs), t.removeClocks(ctx, tx, triggers)
}

// RemoveTriggersOf removes the triggers of jobs.
// From $1 on: db.IDColumns
const RemoveTriggersOf = ` DELETE FROM triggers WHERE job_id IN (SELECT id FROM b) RETURNING id`

// triggerReach is how long after its removal a trigger or a job may have a run: a fire is claimed a little ahead of its
// instant.
const triggerReach = 60 * 60 * 1000 // milliseconds

// removeTriggers removes triggers that were removed from their job before an instant, once the history no longer names
// them.
func (t *Purge) removeTriggers(ctx context.Context, tx *sql.Tx, before int64, size int) (removed int, err error) {
	// $1 before, $2 limit, $3 end of what the triggers can have done
	const unnamed = `SELECT t.id FROM triggers AS t WHERE t.deleted_at < $1
		AND NOT EXISTS (SELECT 1 FROM trigger_revisions AS v WHERE v.job_id = t.job_id AND v.id = t.id)
		AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.job_id = t.job_id AND r.scheduled_at < $3 AND r.trigger_id = t.id)
		AND NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE r.job_id = t.job_id AND r.trigger_id = t.id)
		AND NOT EXISTS (SELECT 1 FROM misfires AS m WHERE m.job_id = t.job_id AND m.from_at < $3 AND m.trigger_id = t.id)
		ORDER BY t.deleted_at LIMIT $2`
	ids, err := t.removableIDs(ctx, tx, size, expiringIDs{"trigger", unnamed, `SELECT job_id FROM triggers WHERE id = $1`},
		func(most int) []any { return []any{before, most, before + triggerReach} })
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	// $1 before, from $2 on: ids. One of them may have been declared again meanwhile.
	remove := t.db.Rows(0, 2, "", db.IDColumns...) + ` DELETE FROM triggers WHERE deleted_at < $1 AND id IN (SELECT id FROM b) RETURNING id`
	if ids, err = db.Collect(ctx, tx, db.ScanInt, remove, append([]any{before}, t.db.Batch(ids)...)...); err != nil {
		return 0, err
	}
	return len(ids), t.removeClocks(ctx, tx, ids)
}

func (t *Purge) removeClocks(ctx context.Context, tx *sql.Tx, triggers []int64) error {
	if len(triggers) == 0 {
		return nil
	}
	// From $1 on: ids
	_, err := tx.ExecContext(ctx, t.db.Rows(0, 1, "", db.IDColumns...)+` DELETE FROM trigger_clock WHERE id IN (SELECT id FROM b)`,
		t.db.Batch(triggers)...)
	return err
}
