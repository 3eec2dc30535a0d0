package feeds

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// cutMessage cuts a text to its bound, and removes what a database refuses.
func cutMessage(text string) string {
	if len(text) > run.MostCallbackText {
		text = strings.ToValidUTF8(text[:run.MostCallbackText], "")
	}
	return dispatch.Storable(text)
}

// AwaitedAttempt finds a waiting run by the number of its attempt.
func (s *Store) AwaitedAttempt(ctx context.Context, app string, id int64) (found run.AwaitedAttempt, err error) {
	// $1 number, $2 app
	const find = `SELECT r.scheduled_at, r.trigger_id, r.kind, r.attempt, r.callback FROM live_runs AS r JOIN jobs AS j ON j.id = r.job_id
		WHERE r.callback_id = $1 AND r.state = 'waiting_callback' AND j.app_id = $2`
	var key run.Key
	var text string
	there, err := db.ReadRow(ctx, s.db.Read, db.KeyRefs(&key, &found.Attempt, &text), find, id, run.AppID(app))
	if err = db.OrNotFound(there, err, "callback", fmt.Sprint(id)); err != nil {
		return found, err
	}
	note, err := dispatch.ReadCallbackNote(text)
	found.Run, found.Group = key.String(), note.Group
	return found, err
}

// calledBack is a live run for a callback, locked.
type calledBack struct {
	held     run.HeldRun
	state    run.State
	deadline int64
	claimed  int64                  // when its node got it
	note     *dispatch.CallbackNote // nil: no node has recorded that the target accepted the attempt
}

// over returns why a callback comes too late.
func over(run run.Run, attempt int) error {
	if run.EndedAt != nil && run.Attempt == attempt {
		return fmt.Errorf("attempt %d of run %s is over: the run is %s: %w", attempt, run.ID, run.State, dispatcher.ErrConflict)
	}
	return fmt.Errorf("attempt %d of run %s is over: the run is %s, in attempt %d: %w", attempt, run.ID, run.State, run.Attempt,
		dispatcher.ErrConflict)
}

// findCalledBack reads the row of a run with an attempt that a callback may still end.
func findCalledBack(ctx context.Context, t *dispatch.Tx, r run.Run, attempt int, key []any) (c calledBack, err error) {
	if r.EndedAt != nil || r.Attempt != attempt {
		return c, over(r, attempt)
	}
	// $1 scheduled instant, $2 trigger, $3 kind, $4 job
	const of = `SELECT` + db.ContenderColumns + `, r.state, coalesce(r.next_attempt_at, 0), coalesce(r.claimed_at, 0), r.callback
		FROM live_runs AS r
		WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3 AND r.job_id = $4`
	var note *string
	into := db.ContenderRefs(&c.held, new(run.NodeID), &c.state, &c.deadline, &c.claimed, &note)
	if _, err := db.ReadRow(ctx, t, into, of, key...); err != nil {
		return c, err
	}
	if note != nil {
		read, err := dispatch.ReadCallbackNote(*note)
		if err != nil {
			return c, err
		}
		c.note = &read
	}
	switch c.state {
	case run.WaitingCallback, run.Claimed, run.Running:
		return c, nil
	}
	return c, over(r, attempt)
}

// errSaid ends a transaction without changes, because the callback repeats an earlier one.
var errSaid = errors.New("the callback was there before")

// callback changes a run for a callback. do returns errSaid if there is nothing to change.
func (s *Store) callback(ctx context.Context, runID, action string, change input.Change,
	do func(ctx context.Context, t *dispatch.Tx, run run.Run, key []any) error,
) (run.Run, error) {
	if change.Actor == run.ActorCallback {
		action = ""
	}
	run, err := s.changeRun(ctx, runID, action, change, func(ctx context.Context, t *dispatch.Tx, run run.Run, key []any) error {
		if err := do(ctx, t, run, key); err != nil {
			return err
		}
		failpoint.Hit(failpoint.InCallback)
		return nil
	})
	switch {
	case err == nil:
		failpoint.Hit(failpoint.AfterCallback)
	case errors.Is(err, errSaid):
		return s.reads.Run(ctx, runID)
	}
	return run, err
}

// CompleteRun ends a run as succeeded, and grants its slot to a waiting run.
func (s *Store) CompleteRun(ctx context.Context, runID string, attempt int, result run.CallbackResult,
	change input.Change,
) (run.Run, error) {
	var done run.HeldRun
	r, err := s.callback(ctx, runID, "complete", change, func(ctx context.Context, t *dispatch.Tx, r run.Run, key []any) error {
		if r.EndedAt != nil && r.Attempt == attempt && r.State == run.Succeeded {
			return errSaid
		}
		c, err := findCalledBack(ctx, t, r, attempt, key)
		if err != nil {
			return err
		}
		if c.note != nil && c.note.Failed {
			return fmt.Errorf("attempt %d of run %s has failed, as an earlier callback said: %w", attempt, runID, dispatcher.ErrConflict)
		}
		if err := keepResult(ctx, t, key, attempt, result); err != nil {
			return err
		}
		if result.State != nil {
			if err := s.keepCompleted(ctx, t, c, result.State); err != nil {
				return err
			}
		}
		done = c.held
		t.Notify(dispatcher.Notification{Adopt: true}) // a fixed delay continues from here
		args := dispatch.EndingArgs(t, t.At.UnixMilli(), []dispatch.Ending{{Contender: &dispatch.Contender{Held: done}}})
		if err := dispatch.Take(ctx, t, t.Hot.Slots.Complete, args...); err != nil {
			return err
		}
		return dispatch.NotifyEnds(ctx, t)
	})
	if err == nil && done.JobID != 0 {
		// Nodes grant slots that this leaves undecided, and end broadcasts that it does not.
		_ = s.dispatch.ReleaseSlots(ctx, []run.HeldRun{done})
		if done.Shard > 0 {
			_, _ = s.dispatch.EndBroadcasts(ctx, []run.Key{done.Parent()}, change.Now)
		}
	}
	return r, err
}

// keepCompleted stores the state with which a target completes a run. If its node has not yet recorded that the target
// accepted the attempt, the revision given to the attempt is unknown: the current one counts, unless an operator has
// changed the state since the node got the run.
func (s *Store) keepCompleted(ctx context.Context, t *dispatch.Tx, c calledBack, state json.RawMessage) error {
	refused := func(why string) error {
		var problems input.Problems
		problems.Add("/state", input.CodeCarryState, "%s; complete the run without state", why)
		return problems.Err()
	}
	inputs, err := dispatch.InputsOf(ctx, t.Flavor, t, []run.Key{c.held.Key})
	if err != nil {
		return err
	}
	stays := run.WhyStateStays(c.held.Kind, inputs[c.held.Key].Cause)
	switch {
	case stays != "":
		return refused(stays)
	case c.held.Shard > 0:
		return refused("a shard of a broadcast does not change the state of its job")
	case c.note != nil && c.note.State == nil:
		return refused("its job did not carry a state when the attempt began")
	case c.note != nil:
		return dispatch.KeepReturned(ctx, t, c.held, state, *c.note.State)
	}
	// $1 job, $2 when the node got the run
	const seen = `SELECT CASE WHEN s.scheduled_at IS NULL AND s.updated_at > $2 THEN -1 ELSE coalesce(s.revision, 0) END
		FROM jobs AS j LEFT JOIN carried_states AS s ON s.job_id = j.id WHERE j.id = $1 AND j.carry_state`
	revision, carries, err := db.First(ctx, t, db.ScanInt, seen, c.held.JobID, c.claimed)
	if err != nil {
		return fmt.Errorf("read the state that run %s was given: %w", c.held.Key, err)
	}
	if !carries {
		return refused("its job carries no state")
	}
	return dispatch.KeepReturned(ctx, t, c.held, state, revision)
}

// keepResult adds the result from a target to the stored response to the attempt.
func keepResult(ctx context.Context, t *dispatch.Tx, key []any, attempt int, result run.CallbackResult) error {
	message := cutMessage(result.Message)
	if message == "" && result.State == nil {
		return nil
	}
	// $1 scheduled instant, $2 trigger, $3 kind, $4 attempt, $5 response
	const of = ` FROM responses WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND attempt = $4`
	args := append(key[:3:3], attempt)
	var response run.Response
	if _, err := db.ReadRow(ctx, t, []any{db.JSONColumn(&response)}, `SELECT response`+of, args...); err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	response.CallbackResult, response.State = message, result.State
	return t.Exec(ctx, `INSERT INTO responses (scheduled_at, trigger_id, kind, attempt, response) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (scheduled_at, trigger_id, kind, attempt) DO UPDATE SET response = excluded.response`,
		append(args, db.JSONColumn(response))...)
}

// FailRun notes that an attempt failed, and makes its run due: the node that adopts it records the failure.
func (s *Store) FailRun(ctx context.Context, runID string, attempt int, result run.CallbackResult,
	change input.Change,
) (run.Run, error) {
	return s.callback(ctx, runID, "fail", change, func(ctx context.Context, t *dispatch.Tx, r run.Run, key []any) error {
		for _, a := range r.Attempts {
			if a.Attempt == attempt && (a.Class == run.ClassCallback || a.Class == run.ClassFunctionTime) {
				return errSaid
			}
		}
		c, err := findCalledBack(ctx, t, r, attempt, key)
		if err != nil {
			return err
		}
		note := dispatch.CallbackNote{}
		if c.note != nil {
			note = *c.note
		}
		if note.Failed {
			return errSaid
		}
		note.Failed, note.TimedOut, note.Message = true, result.TimedOut, cutMessage(result.Message)
		if c.state == run.WaitingCallback {
			c.deadline = t.At.UnixMilli()
		}
		t.Notify(dispatcher.Notification{Callback: true})
		return writeNote(ctx, t, key, note, c.deadline)
	})
}

// ExtendRun extends the deadline of a waiting run. A heartbeat before the node has recorded that the run waits has no
// effect.
func (s *Store) ExtendRun(ctx context.Context, runID string, beat run.Heartbeat, change input.Change) (run.Run, error) {
	return s.callback(ctx, runID, "", change, func(ctx context.Context, t *dispatch.Tx, r run.Run, key []any) error {
		c, err := findCalledBack(ctx, t, r, beat.Attempt, key)
		switch {
		case err != nil:
			return err
		case c.note == nil:
			return errSaid
		case c.note.Failed:
			return fmt.Errorf("attempt %d of run %s has failed, as an earlier callback said: %w", beat.Attempt, runID, dispatcher.ErrConflict)
		case c.state != run.WaitingCallback:
			return fmt.Errorf("the deadline of attempt %d of run %s has passed: %w", beat.Attempt, runID, dispatcher.ErrConflict)
		}
		note, now := *c.note, t.At.UnixMilli()
		within := cmp.Or(beat.Within, time.Duration(note.Within)*time.Millisecond)
		last := note.Started + run.MostCallbackWait.Milliseconds()
		note.Heartbeat = &now
		if beat.Text != "" {
			note.Progress = cutMessage(beat.Text)
		}
		if beat.Percent != nil {
			note.Percent = beat.Percent
		}
		return writeNote(ctx, t, key, note, max(c.deadline, min(now+within.Milliseconds(), last)))
	})
}

// writeNote writes the note of an accepted attempt, and when its run is due; 0: a node has it.
func writeNote(ctx context.Context, t *dispatch.Tx, key []any, note dispatch.CallbackNote, due int64) error {
	// $1 scheduled instant, $2 trigger, $3 kind, $4 job, $5 note, $6 when it is due
	const write = `UPDATE live_runs SET callback = $5, next_attempt_at = coalesce(NULLIF(CAST($6 AS BIGINT), 0), next_attempt_at)
		WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4`
	return t.Exec(ctx, write, append(key[:4:4], note.Column(), due)...)
}
