package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// RequestRun queues a manual run of a job.
func (s *Store) RequestRun(ctx context.Context, app, name string, payload json.RawMessage, change input.Change) (
	run run.Run, err error,
) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		run, err = s.requestRun(ctx, t, app, name, payload)
		return err
	})
	return run, err
}

// requestRun is RequestRun in a transaction.
func (s *Store) requestRun(ctx context.Context, t *tx, app, name string, payload json.RawMessage) (r run.Run, err error) {
	job, err := s.findJob(ctx, t, app, name, "")
	if err != nil {
		return r, err
	}
	if err := t.allow(job.Revision); err != nil {
		return r, err
	}
	if err := job.CheckPayloadOf(payload); err != nil {
		return r, err
	}
	if err := countManual(ctx, t, app, payload); err != nil {
		return r, err
	}
	key := run.Key{TriggerID: job.Key(), ScheduledAt: t.now, Kind: run.KindManual}
	var input *run.Input
	if payload != nil || t.by.Traceparent != "" {
		input = &run.Input{Payload: payload, Traceparent: t.by.Traceparent}
	}
	if err := queue(ctx, t, &key, job.Revision, input); err != nil {
		return r, err
	}
	if r, err = s.findRun(ctx, t, key.String()); err != nil {
		return r, err
	}
	return r, t.auditChange(ctx, auditEntry{action: "run", app: app, subject: "job " + name + " run " + r.ID,
		revision: job.Revision, after: auditedInput(input)})
}

// queue inserts a manual run. Requests of one millisecond get instants of their own: key is
// moved to the first free one.
func queue(ctx context.Context, t *tx, key *run.Key, revision int64, input *run.Input) error {
	const most = 1000
	for range most {
		if queued, err := queueRun(ctx, t, queuedRun{*key, key.TriggerID, revision, input}); err != nil || queued {
			return err
		}
		key.ScheduledAt = key.ScheduledAt.Add(time.Millisecond)
	}
	return fmt.Errorf("%d runs of this job were requested at once: %w", most, dispatcher.ErrConflict)
}

// RetryRun queues a run again, with all the attempts that its job allows. A run that is over comes back from the
// history, which keeps its attempts. A broadcast comes back with the shards that failed.
func (s *Store) RetryRun(ctx context.Context, id string, change input.Change) (run.Run, error) {
	run, err := s.changeRun(ctx, id, "retry", change, func(ctx context.Context, t *tx, run run.Run, key []any) error {
		err := retryRun(ctx, t, run, key)
		if err == nil {
			failpoint.Hit(failpoint.InRetryRequest)
		}
		return err
	})
	if err == nil {
		failpoint.Hit(failpoint.AfterRetryRequest)
	}
	return run, err
}

// retryRun is RetryRun in a transaction, of a run that is locked; see changeRun.
func retryRun(ctx context.Context, t *tx, r run.Run, key []any) error {
	if r.EndedAt == nil && r.State != run.Retrying {
		return fmt.Errorf("run %s is not finished: %w", r.ID, dispatcher.ErrConflict)
	}
	if err := countManual(ctx, t, r.App, nil); err != nil {
		return err
	}
	if err := writeRequester(ctx, t, r.ID); err != nil {
		return err
	}
	if r.EndedAt != nil && (r.Shard != nil || r.Shards != nil) {
		return retryBroadcast(ctx, t, r.ID, key, r.Shards)
	}
	if n := len(r.Attempts); n > 0 {
		if err := insertAttempt(ctx, t, key[:3:3], r.Attempts[n-1]); err != nil {
			return err
		}
	}
	t.notify(dispatcher.Notification{Adopt: true})
	// The retry runs the job as it is now.
	const now = `(SELECT j.revision FROM jobs AS j WHERE j.id = r.job_id)`
	const ofRun = ` WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3 AND r.job_id = $4`
	if r.EndedAt == nil {
		// $1 scheduled instant, $2 trigger, $3 kind, $4 job
		const queue = `UPDATE live_runs AS r SET state = 'queued', node = 0, token = 0, claimed_at = NULL, started_at = NULL,
			failures = 0, next_attempt_at = NULL, retry_until = NULL, waits_for = 0, http_status = 0, class = '', error = '',
			has_input = ` + hasInput + `, revision = ` + now + ofRun
		_, err := t.ExecContext(ctx, queue, key...)
		return err
	}
	for _, step := range []string{
		`INSERT INTO live_runs (scheduled_at, trigger_id, job_id, app_id, kind, revision, node, token, attempt, state, has_input)
			SELECT r.scheduled_at, r.trigger_id, r.job_id, ` + appOf("r.job_id") + `, r.kind, ` + now + `, 0, 0, r.attempt, 'queued',
				` + hasInput + `
			FROM runs AS r` + ofRun,
		`DELETE FROM runs AS r` + ofRun,
	} {
		if _, err := t.ExecContext(ctx, step, key...); err != nil {
			return err
		}
	}
	// A fixed delay that has no next fire yet waits for the new end.
	// $1 scheduled instant, $2 trigger, $3 kind
	const waitForEnd = `UPDATE trigger_clock AS r SET ended_at = NULL WHERE r.prev_fire_time = $1 AND r.id = $2 AND $3 IN (1, 3) AND r.delayed
		AND r.next_fire_time IS NULL`
	_, err := t.ExecContext(ctx, waitForEnd, key[:3]...)
	return err
}

// CancelRun ends a live run as cancelled.
func (s *Store) CancelRun(ctx context.Context, id string, change input.Change) (run.Run, error) {
	return s.changeRun(ctx, id, "cancel", change, cancelRun)
}

// cancelRun is CancelRun in a transaction, of a run that is locked; see changeRun.
func cancelRun(ctx context.Context, t *tx, r run.Run, key []any) error {
	if r.EndedAt != nil {
		return fmt.Errorf("run %s is finished: %w", r.ID, dispatcher.ErrConflict)
	}
	// $1 scheduled instant, $2 trigger, $3 kind, $4 job
	const of = `SELECT` + db.ContenderColumns + ` FROM live_runs AS r
		WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3 AND r.job_id = $4`
	held, _, err := db.First(ctx, t, func(row db.Scanner) (held run.HeldRun, err error) {
		var node run.NodeID
		err = row.Scan(&held.JobID, db.InstantColumn(&held.ScheduledAt), &held.TriggerID, db.KindColumn(&held.Key), &node, &held.Token,
			&held.Attempt)
		return held, err
	}, of, key...)
	if err != nil {
		return err
	}
	// A fixed delay goes on from here.
	t.notify(dispatcher.Notification{Run: r.ID, Token: held.Token, Attempt: held.Attempt})
	t.notify(dispatcher.Notification{Adopt: true})
	if held.Kind == run.KindBackfill {
		t.notify(dispatcher.Notification{Backfill: true}) // another run may take its place
	}
	const why = "cancelled on request"
	if held.Shard == 0 {
		if err := cancelShards(ctx, t, []run.Key{held.Key}, t.now.UnixMilli(), why); err != nil {
			return err
		}
	}
	err = take(ctx, t, t.hot.slots.cancel,
		endingArgs(t, t.now.UnixMilli(), []ending{{contender: &contender{held: held}, why: why}})...)
	if err == nil && held.Shard > 0 {
		_, err = endBroadcast(ctx, t, held.Parent())
	}
	if err == nil {
		err = forgetAside(ctx, t, r.ID)
	}
	return err
}

// runChange writes a run that is locked. key is that of the run, as the parameters of keyArgs, and then its job: what is written of a
// run names its job too, so that no key leads to a run of another one.
type runChange func(ctx context.Context, t *tx, run run.Run, key []any) error

// changeRun reads a run under a lock, lets do write it, and returns it as it is then. A run that is in a claim
// gets a row first, so that do finds it among the live runs or in the history. An empty action is not audited.
func (s *Store) changeRun(ctx context.Context, id, action string, change input.Change, do runChange) (run run.Run, err error) {
	var unfolded []int64
	try := func() error {
		return s.change(ctx, change, func(ctx context.Context, t *tx) error {
			run, unfolded, err = s.changeRunIn(ctx, t, id, action, do)
			return err
		})
	}
	if err = try(); s.ofStored(ctx, err) && s.divideClaimOf(ctx, id, err) {
		err = try()
	}
	s.claims.forget(unfolded...)
	return run, err
}

// changeRunIn is changeRun in a transaction. The caller forgets the claims that it has unfolded, whether it is committed or not.
func (s *Store) changeRunIn(ctx context.Context, t *tx, id, action string, do runChange) (
	r run.Run, unfolded []int64, err error,
) {
	key, err := run.ParseKey(id)
	if err != nil {
		return r, nil, dispatcher.NotFound("run", id)
	}
	job, unfolded, err := lockRun(ctx, t, key)
	if err != nil {
		return r, unfolded, err
	}
	before, err := s.findRun(ctx, t, id)
	if err != nil {
		return r, unfolded, err
	}
	if err := do(ctx, t, before, append(keyArgs(key), job)); err != nil {
		return r, unfolded, err
	}
	if r, err = s.findRun(ctx, t, id); err != nil || action == "" {
		return r, unfolded, err
	}
	return r, unfolded, t.auditChange(ctx, auditEntry{action: action, app: r.App, subject: "run " + id, revision: r.Revision,
		before: auditedRun(before), after: auditedRun(r)})
}

// lockRun locks the row of a run, in the order in which a run moves: a claim that lists it is unfolded, then it is
// among the live runs or in the history. It returns the job of the run; 0: there is no such run.
func lockRun(ctx context.Context, t *tx, key run.Key) (job int64, unfolded []int64, err error) {
	if key.Shard > 0 { // what ends the parent looks at its shards under this lock
		if _, _, err := lockRun(ctx, t, key.Parent()); err != nil {
			return 0, nil, err
		}
	}
	args := keyArgs(key)
	if key.Kind == run.KindSchedule && key.Shard == 0 {
		tokens, err := db.Collect(ctx, t, db.ScanInt, t.hot.unfold.listing, args[:2]...)
		if err == nil && len(tokens) > 0 {
			unfolded, _, err = unfold(ctx, t, tokens, false)
		}
		if err != nil {
			return 0, nil, err
		}
	}
	for _, table := range []string{"live_runs", "runs"} {
		// $1 scheduled instant, $2 trigger, $3 kind
		lock := `SELECT job_id FROM ` + table + ` WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3` + t.ForUpdate()
		if job, found, err := db.First(ctx, t, db.ScanInt, lock, args...); err != nil || found {
			return job, unfolded, err
		}
	}
	return 0, unfolded, nil
}

// insertAttempt writes the row of an attempt that is over. key is that of its run.
func insertAttempt(ctx context.Context, t *tx, key []any, a run.Attempt) error {
	// $1 scheduled instant, $2 trigger, $3 kind, $4 attempt, $5 node, $6 started, $7 ended,
	// $8 status, $9 state, $10 class, $11 error
	const insert = `INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status,
		state, class, error) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`
	_, err := t.ExecContext(ctx, insert, append(key, a.Attempt, a.Node, a.StartedAt.UnixMilli(), a.EndedAt.UnixMilli(),
		a.HTTPStatus, a.State, a.Class, a.Error)...)
	return err
}
