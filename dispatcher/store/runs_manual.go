package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// RequestRun queues a manual run of a job.
func (s *store) RequestRun(ctx context.Context, app, name string, change dispatcher.Change) (run dispatcher.Run, err error) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		job, err := s.findJob(ctx, t, app, name, "")
		if err != nil {
			return err
		}
		if err := t.allow(job.Revision); err != nil {
			return err
		}
		key := dispatcher.RunKey{TriggerID: dispatcher.JobID(app, name), ScheduledAt: t.now, Kind: dispatcher.KindManual}
		if err := t.queue(ctx, &key, job.Revision); err != nil {
			return err
		}
		if run, err = findRun(ctx, t, key.String()); err != nil {
			return err
		}
		t.notify(dispatcher.Notification{Adopt: true})
		return t.audit(ctx, "run", app, "job "+name+" run "+run.ID, job.Revision)
	})
	return run, err
}

// queue inserts a manual run. Requests of one millisecond get instants of their own: key is
// moved to the first free one.
func (t *tx) queue(ctx context.Context, key *dispatcher.RunKey, revision int64) error {
	const most = 1000
	for range most {
		// $1 scheduled instant, $2 job, $3 kind, $4 revision
		const insert = `INSERT INTO runs (scheduled_at, trigger_id, job_id, kind, revision, node, token, attempt, live, state)
			VALUES ($1, $2, $2, $3, $4, 0, 0, 0, TRUE, 'queued') ON CONFLICT DO NOTHING`
		n, err := t.execute(ctx, insert, key.ScheduledAt.UnixMilli(), key.TriggerID, key.Kind.Code(), revision)
		if err != nil || n == 1 {
			return err
		}
		key.ScheduledAt = key.ScheduledAt.Add(time.Millisecond)
	}
	return fmt.Errorf("%d runs of this job were requested at once: %w", most, dispatcher.ErrConflict)
}

// RetryRun queues a run again, with all the attempts that its job allows.
func (s *store) RetryRun(ctx context.Context, id string, change dispatcher.Change) (dispatcher.Run, error) {
	return s.changeRun(ctx, id, "retry", change, func(ctx context.Context, t *tx, run dispatcher.Run, key []any) error {
		if run.EndedAt == nil && run.State != dispatcher.RunRetrying {
			return fmt.Errorf("run %s is not finished: %w", id, dispatcher.ErrConflict)
		}
		if n := len(run.Attempts); n > 0 {
			if err := t.insertAttempt(ctx, key, run.Attempts[n-1]); err != nil {
				return err
			}
		}
		// $1 scheduled instant, $2 trigger, $3 kind. The retry runs the job as it is now.
		const queue = `UPDATE runs SET live = TRUE, state = 'queued', node = 0, token = 0, claimed_at = NULL, started_at = NULL,
				ended_at = NULL, failures = 0, next_attempt_at = NULL, retry_until = NULL, http_status = 0, class = '', error = '',
				revision = (SELECT j.revision FROM jobs AS j WHERE j.id = runs.job_id)
			WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
		_, err := t.ExecContext(ctx, queue, key...)
		return err
	})
}

// CancelRun ends a live run as cancelled.
func (s *store) CancelRun(ctx context.Context, id string, change dispatcher.Change) (dispatcher.Run, error) {
	return s.changeRun(ctx, id, "cancel", change, func(ctx context.Context, t *tx, run dispatcher.Run, key []any) error {
		if run.EndedAt != nil {
			return fmt.Errorf("run %s is finished: %w", id, dispatcher.ErrConflict)
		}
		const why = "cancelled on request"
		if run.Node != nil && run.ClaimedAt != nil && run.State != dispatcher.RunRetrying {
			// The row of the attempt takes its late result.
			ended := dispatcher.Attempt{
				Attempt: run.Attempt, Node: *run.Node, State: dispatcher.RunCancelled, StartedAt: *run.ClaimedAt, EndedAt: t.now,
				Class: dispatcher.ClassCancelled, Error: why,
			}
			if err := t.insertAttempt(ctx, key, ended); err != nil {
				return err
			}
		}
		// $1 scheduled instant, $2 trigger, $3 kind, $4 now, $5 class, $6 why
		const cancel = `UPDATE runs SET live = FALSE, state = 'cancelled', token = 0, next_attempt_at = NULL, ended_at = $4,
			class = $5, error = $6
			WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
		if _, err := t.ExecContext(ctx, cancel, append(key, t.now.UnixMilli(), dispatcher.ClassCancelled, why)...); err != nil {
			return err
		}
		t.notify(id)
		return nil
	})
}

// changeRun reads a run under a lock, lets do write it, and returns it as it is then.
func (s *store) changeRun(ctx context.Context, id, action string, change dispatcher.Change,
	do func(ctx context.Context, t *tx, run dispatcher.Run, key []any) error,
) (run dispatcher.Run, err error) {
	key, err := dispatcher.ParseRunKey(id)
	if err != nil {
		return run, dispatcher.NotFound("run", id)
	}
	args := []any{key.ScheduledAt.UnixMilli(), key.TriggerID, key.Kind.Code()}
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// $1 scheduled instant, $2 trigger, $3 kind
		lock := `SELECT 1 FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3` + t.lock()
		if _, _, err := first(ctx, t, scanInt, lock, args...); err != nil {
			return err
		}
		before, err := findRun(ctx, t, id)
		if err != nil {
			return err
		}
		if err := do(ctx, t, before, args[:3:3]); err != nil {
			return err
		}
		if run, err = findRun(ctx, t, id); err != nil {
			return err
		}
		return t.audit(ctx, action, run.App, "run "+id, run.Revision)
	})
	return run, err
}

// insertAttempt writes the row of an attempt that is over. key is that of its run.
func (t *tx) insertAttempt(ctx context.Context, key []any, a dispatcher.Attempt) error {
	// $1 scheduled instant, $2 trigger, $3 kind, $4 attempt, $5 node, $6 started, $7 ended,
	// $8 status, $9 state, $10 class, $11 error
	const insert = `INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status,
		state, class, error) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`
	_, err := t.ExecContext(ctx, insert, append(key, a.Attempt, a.Node, a.StartedAt.UnixMilli(), a.EndedAt.UnixMilli(),
		a.HTTPStatus, a.State, a.Class, a.Error)...)
	return err
}
