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
		if err := t.countManual(ctx, app); err != nil {
			return err
		}
		key := dispatcher.RunKey{TriggerID: job.Key(), ScheduledAt: t.now, Kind: dispatcher.KindManual}
		if err := t.queue(ctx, &key, job.Revision); err != nil {
			return err
		}
		if run, err = s.findRun(ctx, t, key.String()); err != nil {
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
		const insert = `INSERT INTO live_runs (scheduled_at, trigger_id, job_id, kind, revision, node, token, attempt, state)
			SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT), $2, CAST($3 AS SMALLINT), CAST($4 AS BIGINT), 0, 0, 0, 'queued'
			WHERE NOT EXISTS (SELECT 1 FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3) ON CONFLICT DO NOTHING`
		n, err := t.execute(ctx, insert, key.ScheduledAt.UnixMilli(), key.TriggerID, int64(key.Kind.Code()), revision)
		if err != nil || n == 1 {
			return err
		}
		key.ScheduledAt = key.ScheduledAt.Add(time.Millisecond)
	}
	return fmt.Errorf("%d runs of this job were requested at once: %w", most, dispatcher.ErrConflict)
}

// RetryRun queues a run again, with all the attempts that its job allows. A run that is over comes back from the
// history, which keeps its attempts.
func (s *store) RetryRun(ctx context.Context, id string, change dispatcher.Change) (dispatcher.Run, error) {
	return s.changeRun(ctx, id, "retry", change, func(ctx context.Context, t *tx, run dispatcher.Run, key []any) error {
		if run.EndedAt == nil && run.State != dispatcher.RunRetrying {
			return fmt.Errorf("run %s is not finished: %w", id, dispatcher.ErrConflict)
		}
		if err := t.countManual(ctx, run.App); err != nil {
			return err
		}
		if n := len(run.Attempts); n > 0 {
			if err := t.insertAttempt(ctx, key, run.Attempts[n-1]); err != nil {
				return err
			}
		}
		t.notify(dispatcher.Notification{Adopt: true})
		// The retry runs the job as it is now.
		const now = `(SELECT j.revision FROM jobs AS j WHERE j.id = r.job_id)`
		const ofRun = ` WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3`
		if run.EndedAt == nil {
			// $1 scheduled instant, $2 trigger, $3 kind
			const queue = `UPDATE live_runs AS r SET state = 'queued', node = 0, token = 0, claimed_at = NULL, started_at = NULL,
				failures = 0, next_attempt_at = NULL, retry_until = NULL, waits_for = 0, http_status = 0, class = '', error = '',
				revision = ` + now + ofRun
			_, err := t.ExecContext(ctx, queue, key...)
			return err
		}
		for _, step := range []string{
			`INSERT INTO live_runs (scheduled_at, trigger_id, job_id, kind, revision, node, token, attempt, state)
				SELECT r.scheduled_at, r.trigger_id, r.job_id, r.kind, ` + now + `, 0, 0, r.attempt, 'queued' FROM runs AS r` + ofRun,
			`DELETE FROM runs AS r` + ofRun,
			// A fixed delay that has no next fire yet waits for the new end.
			`UPDATE trigger_clock AS r SET ended_at = NULL WHERE r.prev_fire_time = $1 AND r.id = $2 AND $3 <> 2 AND r.delayed
				AND r.next_fire_time IS NULL`,
		} {
			if _, err := t.ExecContext(ctx, step, key...); err != nil {
				return err
			}
		}
		return nil
	})
}

// CancelRun ends a live run as cancelled.
func (s *store) CancelRun(ctx context.Context, id string, change dispatcher.Change) (dispatcher.Run, error) {
	return s.changeRun(ctx, id, "cancel", change, func(ctx context.Context, t *tx, run dispatcher.Run, key []any) error {
		if run.EndedAt != nil {
			return fmt.Errorf("run %s is finished: %w", id, dispatcher.ErrConflict)
		}
		// $1 scheduled instant, $2 trigger, $3 kind
		const of = `SELECT` + contenderColumns + ` FROM live_runs AS r WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3`
		held, _, err := first(ctx, t, func(row scanner) (held dispatcher.HeldRun, err error) {
			var node dispatcher.NodeID
			err = row.Scan(&held.JobID, instantColumn(&held.ScheduledAt), &held.TriggerID, kindColumn(&held.Kind), &node, &held.Token,
				&held.Attempt)
			return held, err
		}, of, key...)
		if err != nil {
			return err
		}
		// A fixed delay goes on from here.
		t.notify(dispatcher.Notification{Run: id, Token: held.Token, Attempt: held.Attempt})
		t.notify(dispatcher.Notification{Adopt: true})
		const why = "cancelled on request"
		return t.take(ctx, t.hot.slots.cancel,
			endingArgs(t, t.now.UnixMilli(), []ending{{contender: &contender{held: held}, why: why}})...)
	})
}

// changeRun reads a run under a lock, lets do write it, and returns it as it is then. A run that is in a claim
// gets a row first, so that do finds it among the live runs or in the history.
func (s *store) changeRun(ctx context.Context, id, action string, change dispatcher.Change,
	do func(ctx context.Context, t *tx, run dispatcher.Run, key []any) error,
) (run dispatcher.Run, err error) {
	key, err := dispatcher.ParseRunKey(id)
	if err != nil {
		return run, dispatcher.NotFound("run", id)
	}
	args := []any{key.ScheduledAt.UnixMilli(), key.TriggerID, int64(key.Kind.Code())}
	var unfolded []int64
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		if unfolded, err = t.lockRun(ctx, key, args); err != nil {
			return err
		}
		before, err := s.findRun(ctx, t, id)
		if err != nil {
			return err
		}
		if err := do(ctx, t, before, args[:3:3]); err != nil {
			return err
		}
		if run, err = s.findRun(ctx, t, id); err != nil {
			return err
		}
		return t.auditChange(ctx, auditEntry{action: action, app: run.App, subject: "run " + id, revision: run.Revision,
			before: auditedRun(before), after: auditedRun(run)})
	})
	s.claims.forget(unfolded...)
	return run, err
}

// lockRun locks the row of a run, in the order in which a run moves: a claim that lists it is unfolded, then it is
// among the live runs or in the history.
func (t *tx) lockRun(ctx context.Context, key dispatcher.RunKey, args []any) (unfolded []int64, err error) {
	if key.Kind == dispatcher.KindSchedule {
		tokens, err := collect(ctx, t, scanInt, t.hot.unfold.listing, args[:2]...)
		if err == nil && len(tokens) > 0 {
			unfolded, _, err = t.unfold(ctx, tokens, false)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, table := range []string{"live_runs", "runs"} {
		// $1 scheduled instant, $2 trigger, $3 kind
		lock := `SELECT 1 FROM ` + table + ` WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3` + t.lock()
		if _, found, err := first(ctx, t, scanInt, lock, args...); err != nil || found {
			return unfolded, err
		}
	}
	return unfolded, nil
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
