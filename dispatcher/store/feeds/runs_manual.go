package feeds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// RequestRun queues a manual run of a job.
func (s *Store) RequestRun(ctx context.Context, app, name string, payload json.RawMessage, change input.Change) (
	run run.Run, err error,
) {
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		run, err = s.requestRun(ctx, t, app, name, payload)
		return err
	})
	return run, err
}

// requestRun is RequestRun in a transaction.
func (s *Store) requestRun(ctx context.Context, t *dispatch.Tx, app, name string, payload json.RawMessage) (r run.Run, err error) {
	job, err := s.definitions.FindJob(ctx, t, app, name, "")
	if err != nil {
		return r, err
	}
	if err := t.Allow(job.Revision); err != nil {
		return r, err
	}
	if err := job.CheckPayloadOf(payload); err != nil {
		return r, err
	}
	if err := definitions.CountManual(ctx, t, app, payload); err != nil {
		return r, err
	}
	key := run.Key{TriggerID: job.Key(), ScheduledAt: t.At, Kind: run.KindManual}
	var input *run.Input
	if payload != nil || t.By.Traceparent != "" {
		input = &run.Input{Payload: payload, Traceparent: t.By.Traceparent}
	}
	if err := queue(ctx, t, &key, job.Revision, input); err != nil {
		return r, err
	}
	if r, err = s.reads.FindRun(ctx, t, key.String()); err != nil {
		return r, err
	}
	return r, t.AuditChange(ctx, dispatch.AuditEntry{Action: "run", App: app, Subject: "job " + name + " run " + r.ID,
		Revision: job.Revision, After: dispatch.AuditedInput(input)})
}

// queue inserts a manual run. Requests in the same millisecond get different instants: key moves to the first free one.
func queue(ctx context.Context, t *dispatch.Tx, key *run.Key, revision int64, input *run.Input) error {
	const most = 1000
	for range most {
		if queued, err := dispatch.QueueRun(ctx, t, dispatch.QueuedRun{Key: *key, JobID: key.TriggerID, Revision: revision,
			Input: input}); err != nil || queued {
			return err
		}
		key.ScheduledAt = key.ScheduledAt.Add(time.Millisecond)
	}
	return fmt.Errorf("%d runs of this job were requested at once: %w", most, dispatcher.ErrConflict)
}

// RetryRun queues a run again, with all the attempts that its job allows. An ended run comes back from the history,
// which keeps its attempts. A broadcast comes back with the failed shards.
func (s *Store) RetryRun(ctx context.Context, id string, change input.Change) (run.Run, error) {
	run, err := s.changeRun(ctx, id, "retry", change, func(ctx context.Context, t *dispatch.Tx, run run.Run, key []any) error {
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

// retryRun is RetryRun in a transaction, for a locked run; see changeRun.
func retryRun(ctx context.Context, t *dispatch.Tx, r run.Run, key []any) error {
	if r.EndedAt == nil && r.State != run.Retrying {
		return fmt.Errorf("run %s is not finished: %w", r.ID, dispatcher.ErrConflict)
	}
	if err := definitions.CountManual(ctx, t, r.App, nil); err != nil {
		return err
	}
	if err := dispatch.WriteRequester(ctx, t, r.ID); err != nil {
		return err
	}
	if r.EndedAt != nil && (r.Shard != nil || r.Shards != nil) {
		return dispatch.RetryBroadcast(ctx, t, r.ID, key, r.Shards)
	}
	if n := len(r.Attempts); n > 0 {
		a := r.Attempts[n-1]
		// $1 scheduled instant, $2 trigger, $3 kind, $4 attempt, $5 node, $6 started, $7 ended, $8 status, $9 state, $10 class, $11 error
		const insert = `INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status,
			state, class, error) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`
		if err := t.Exec(ctx, insert, append(key[:3:3], a.Attempt, a.Node, a.StartedAt.UnixMilli(), a.EndedAt.UnixMilli(),
			a.HTTPStatus, a.State, a.Class, a.Error)...); err != nil {
			return err
		}
	}
	t.Notify(dispatcher.Notification{Adopt: true})
	// The retry uses the current revision of the job.
	const now = `(SELECT j.revision FROM jobs AS j WHERE j.id = r.job_id)`
	const ofRun = ` WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3 AND r.job_id = $4`
	if r.EndedAt == nil {
		// $1 scheduled instant, $2 trigger, $3 kind, $4 job
		const queue = `UPDATE live_runs AS r SET state = 'queued', node = 0, token = 0, claimed_at = NULL, started_at = NULL,
			failures = 0, next_attempt_at = NULL, retry_until = NULL, waits_for = 0, http_status = 0, class = '', error = '',
			has_input = ` + dispatch.HasInput + `, revision = ` + now + ofRun
		return t.Exec(ctx, queue, key...)
	}
	for _, step := range []string{
		`INSERT INTO live_runs (scheduled_at, trigger_id, job_id, app_id, kind, revision, node, token, attempt, state, has_input)
			SELECT r.scheduled_at, r.trigger_id, r.job_id, ` + dispatch.AppOf("r.job_id") + `, r.kind, ` + now + `, 0, 0, r.attempt, 'queued',
				` + dispatch.HasInput + `
			FROM runs AS r` + ofRun,
		`DELETE FROM runs AS r` + ofRun,
	} {
		if err := t.Exec(ctx, step, key...); err != nil {
			return err
		}
	}
	// A fixed delay without a next fire waits for the new end.
	// $1 scheduled instant, $2 trigger, $3 kind
	const waitForEnd = `UPDATE trigger_clock AS r SET ended_at = NULL WHERE r.prev_fire_time = $1 AND r.id = $2 AND $3 IN (1, 3) AND r.delayed
		AND r.next_fire_time IS NULL`
	return t.Exec(ctx, waitForEnd, key[:3]...)
}

// CancelRun ends a live run as cancelled.
func (s *Store) CancelRun(ctx context.Context, id string, change input.Change) (run.Run, error) {
	return s.changeRun(ctx, id, "cancel", change, cancelRun)
}

// cancelRun is CancelRun in a transaction, for a locked run; see changeRun.
func cancelRun(ctx context.Context, t *dispatch.Tx, r run.Run, key []any) error {
	if r.EndedAt != nil {
		return fmt.Errorf("run %s is finished: %w", r.ID, dispatcher.ErrConflict)
	}
	// $1 scheduled instant, $2 trigger, $3 kind, $4 job
	const of = `SELECT` + db.ContenderColumns + ` FROM live_runs AS r
		WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3 AND r.job_id = $4`
	var held run.HeldRun
	live, err := db.ReadRow(ctx, t, db.ContenderRefs(&held, new(run.NodeID)), of, key...)
	if err != nil {
		return err
	}
	const why = "cancelled on request"
	t.Notify(dispatcher.Notification{Adopt: true}) // a fixed delay continues from here
	if !live {
		return dispatch.EndClaimed(ctx, t, r.ID, run.ClassCancelled, why)
	}
	t.Notify(dispatcher.Notification{Run: r.ID, Token: held.Token, Attempt: held.Attempt})
	if held.Kind == run.KindBackfill {
		t.Notify(dispatcher.Notification{Backfill: true}) // another run may take its place
	}
	if held.Shard == 0 {
		if err := dispatch.CancelShards(ctx, t, []run.Key{held.Key}, t.At.UnixMilli(), why); err != nil {
			return err
		}
	}
	err = dispatch.Take(ctx, t, t.Hot.Slots.Cancel,
		dispatch.EndingArgs(t, t.At.UnixMilli(), []dispatch.Ending{{Contender: &dispatch.Contender{Held: held}, Why: why}})...)
	if err == nil && held.Shard > 0 {
		_, err = dispatch.EndBroadcast(ctx, t, held.Parent())
	}
	if err == nil {
		err = dispatch.ForgetAside(ctx, t, r.ID)
	}
	return err
}

// runChange writes a locked run. key is its key, in the form of dispatch.KeyArgs, followed by its job: statements name
// the job too, so that no key leads to a run of another one.
type runChange func(ctx context.Context, t *dispatch.Tx, run run.Run, key []any) error

// changeRun reads a run under a lock, lets do write it, and returns the changed run. A run in a claim gets a row first,
// so that do finds it among the live runs or in the history, unless it cannot have one. An empty action is not audited.
func (s *Store) changeRun(ctx context.Context, id, action string, change input.Change, do runChange) (run run.Run, err error) {
	var unfolded []int64
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		run, unfolded, err = s.changeRunIn(ctx, t, id, action, do)
		return err
	})
	s.dispatch.Claims.Forget(unfolded...)
	return run, err
}

// changeRunIn is changeRun in a transaction. The caller forgets the unfolded claims, committed or not.
func (s *Store) changeRunIn(ctx context.Context, t *dispatch.Tx, id, action string, do runChange) (
	r run.Run, unfolded []int64, err error,
) {
	key, err := run.ParseKey(id)
	if err != nil {
		return r, nil, dispatcher.NotFound("run", id)
	}
	job, unfolded, err := s.dispatch.LockRun(ctx, t, key)
	if err != nil {
		return r, unfolded, err
	}
	before, err := s.reads.FindRun(ctx, t, id)
	if err != nil {
		return r, unfolded, err
	}
	if err := do(ctx, t, before, append(dispatch.KeyArgs(key), job)); err != nil {
		return r, unfolded, err
	}
	if r, err = s.reads.FindRun(ctx, t, id); err != nil || action == "" {
		return r, unfolded, err
	}
	return r, unfolded, t.AuditChange(ctx, dispatch.AuditEntry{Action: action, App: r.App, Subject: "run " + id, Revision: r.Revision,
		Before: dispatch.AuditedRun(before), After: dispatch.AuditedRun(r)})
}

// RunInputs returns the inputs of runs, and which notifications of alerts wait or are overtaken.
func (s *Store) RunInputs(ctx context.Context, keys []run.Key) (map[run.Key]run.Input, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	inputs, err := dispatch.InputsOf(ctx, s.db.Flavor, s.db.Read, keys)
	if err == nil {
		err = s.orderNotifications(ctx, inputs)
	}
	return inputs, err
}

// ReleaseSlot releases the slots of a run of a job.
func (s *Store) ReleaseSlot(ctx context.Context, app, job string, release run.SlotRelease, change input.Change) (run.Run, error) {
	if err := release.Validate(); err != nil {
		return run.Run{}, err
	}
	slots, err := s.reads.Slots(ctx, app, job)
	if err != nil {
		return run.Run{}, err
	}
	id, err := holderOf(app+"/"+job, release, slots)
	if err != nil {
		return run.Run{}, err
	}
	var released run.HeldRun
	r, err := s.changeRun(ctx, id, "", change, func(ctx context.Context, t *dispatch.Tx, r run.Run, key []any) error {
		live := r.EndedAt == nil
		switch {
		case live && !release.Cancel:
			return fmt.Errorf("run %s has not ended, so the next run may be at work at the same time: %w", r.ID, dispatcher.ErrConflict)
		case live:
			if err := cancelRun(ctx, t, r, key); err != nil {
				return err
			}
		}
		// $1 scheduled instant, $2 trigger, $3 kind, $4 job
		const leave = `UPDATE slots SET node = 0, token = 0 WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4
			AND node > 0`
		if err := t.Exec(ctx, leave, key...); err != nil {
			return err
		}
		var err error
		if released.Key, err = run.ParseKey(r.ID); err != nil {
			return err
		}
		released.JobID = key[3].(int64)
		return t.AuditChange(ctx, dispatch.AuditEntry{Action: "release", App: app, Subject: "job " + job + " run " + r.ID, Revision: r.Revision,
			Before: dispatch.AuditedRun(r), After: map[string]any{"reason": release.Reason, "cancelled": live}})
	})
	if err == nil {
		_ = s.dispatch.ReleaseSlots(ctx, []run.HeldRun{released}) // the handler grants what this leaves undecided
	}
	return r, err
}

// holderOf returns the run whose slot r frees, one of those with slots of a job. ErrConflict: none has, or several have and r
// names none. ErrNotFound: the named run has none.
func holderOf(job string, r run.SlotRelease, slots []dispatcher.Slot) (string, error) {
	switch {
	case r.Run != "" && slices.ContainsFunc(slots, func(s dispatcher.Slot) bool { return s.Run == r.Run }):
		return r.Run, nil
	case r.Run != "":
		return "", dispatcher.NotFound("slot of run", r.Run)
	case len(slots) == 0:
		return "", fmt.Errorf("job %s has no slot that is taken: %w", job, dispatcher.ErrConflict)
	case slices.ContainsFunc(slots, func(s dispatcher.Slot) bool { return s.Run != slots[0].Run }):
		return "", fmt.Errorf("several runs have slots of job %s, the first of them run %s; name one: %w",
			job, slots[0].Run, dispatcher.ErrConflict)
	}
	return slots[0].Run, nil
}

// ReplayDeadLetters retries some of the runs that failed permanently.
func (s *Store) ReplayDeadLetters(ctx context.Context, query repeat.DeadLetterQuery, change input.Change) (
	repeat.Replayed, error,
) {
	var done repeat.Replayed
	found, err := s.reads.FindDeadLetters(ctx, query, true)
	if err != nil {
		return done, err
	}
	for _, run := range found {
		_, err := s.RetryRun(ctx, run.ID, change)
		var problem *input.Problem
		switch {
		case err == nil:
			done.Replayed++
		case errors.Is(err, dispatcher.ErrConflict), errors.Is(err, dispatcher.ErrNotFound):
			done.Skipped++ // another request came first, or its retention was over
		case errors.As(err, &problem):
			done.Stopped, done.Next = problem, query.Page.Cursor
			return done, nil
		default:
			return done, fmt.Errorf("replay run %s, after %d others: %w", run.ID, done.Replayed, err)
		}
		query.Page.Cursor = run.ID
	}
	if len(found) == query.Page.Limit {
		done.Next = query.Page.Cursor
	}
	return done, nil
}
