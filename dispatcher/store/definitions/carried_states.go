package definitions

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// carriedColumns are the columns of a CarriedState of a job j and its row s.
const carriedColumns = `j.id, s.state, coalesce(s.revision, 0), s.updated_at, coalesce(s.actor, ''), s.scheduled_at, s.trigger_id, s.kind,
	s.discarded_scheduled_at, s.discarded_trigger_id, s.discarded_kind`

type storedState struct {
	job int64
	run.CarriedState
}

func scanCarriedState(row db.Scanner) (s storedState, err error) {
	var text *string
	var updated *int64
	var at, discardedAt, trigger, discardedTrigger, kind, discardedKind *int64
	err = row.Scan(&s.job, &text, &s.Revision, &updated, &s.SetBy, &at, &trigger, &kind, &discardedAt, &discardedTrigger, &discardedKind)
	s.State, s.UpdatedAt = json.RawMessage("null"), db.Optional(updated)
	if text != nil {
		s.State = json.RawMessage(*text)
	}
	s.Run, s.DiscardedRun = optionalRun(at, trigger, kind), optionalRun(discardedAt, discardedTrigger, discardedKind)
	return s, err
}

// optionalRun returns the id of a run; empty if at is nil.
func optionalRun(at, trigger, kind *int64) string {
	if at == nil || trigger == nil || kind == nil {
		return ""
	}
	key := run.Key{ScheduledAt: db.Instant(*at), TriggerID: *trigger}
	key.SetCode(int(*kind))
	return key.String()
}

// CarriedState returns the state of a job.
func (s *Store) CarriedState(ctx context.Context, app, job string) (run.CarriedState, error) {
	return carriedState(ctx, s.db.Read, app, job)
}

func carriedState(ctx context.Context, q db.Querier, app, job string) (run.CarriedState, error) {
	// $1 app, $2 name
	const of = `SELECT ` + carriedColumns + ` FROM jobs AS j LEFT JOIN carried_states AS s ON s.job_id = j.id
		WHERE j.app_id = $1 AND j.name = $2 AND j.deleted_at IS NULL`
	found, there, err := db.First(ctx, q, scanCarriedState, of, run.AppID(app), job)
	return found.CarriedState, db.OrNotFound(there, err, "job", app+"/"+job)
}

// CarriedStatesByID returns the states of jobs that have or had one.
func (s *Store) CarriedStatesByID(ctx context.Context, jobs []int64) (map[int64]run.CarriedState, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	states := make(map[int64]run.CarriedState, len(jobs))
	// From $1 on: the ids
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + carriedColumns + ` FROM b JOIN jobs AS j ON j.id = b.id
		JOIN carried_states AS s ON s.job_id = j.id`
	_, err := s.db.Execute(ctx, db.Reading(query), s.db.Batch(jobs), func(row db.Scanner) error {
		one, err := scanCarriedState(row)
		states[one.job] = one.CarriedState
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the states of %d jobs: %w", len(jobs), err)
	}
	return states, nil
}

// SetCarriedState sets or clears the state of a job. The audit log names the actor, but does not contain the state: it
// is data of the job, and the log is kept longer and read by more people.
func (s *Store) SetCarriedState(ctx context.Context, app, name string, state json.RawMessage, change input.Change) (
	stored run.CarriedState, err error,
) {
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		job, err := s.FindJob(ctx, t, app, name, t.ForUpdate())
		if err != nil {
			return err
		}
		if state != nil && !job.CarryState {
			var problems input.Problems
			problems.Add("/state", input.CodeCarryState, "job %s/%s does not carry a state, so no run would get it; set carry_state in "+
				"its definition first", app, name)
			return problems.Err()
		}
		before, err := carriedState(ctx, t, app, name)
		if err != nil {
			return err
		}
		// A cleared state is absent, although its revision continues.
		if by := t.By; by.IfAbsent && string(before.State) != "null" || by.IfRevision != 0 && by.IfRevision != before.Revision {
			return fmt.Errorf("revision is %d: %w", before.Revision, dispatcher.ErrPrecondition)
		}
		if state == nil && string(before.State) == "null" {
			stored = before
			return nil
		}
		if err := setState(ctx, t, job.Key(), state); err != nil {
			return fmt.Errorf("job %s/%s: %w", app, name, err)
		}
		if stored, err = carriedState(ctx, t, app, name); err != nil {
			return err
		}
		action := "set state"
		if state == nil {
			action = "clear state"
		}
		return t.Audit(ctx, action, app, "job "+name, stored.Revision)
	})
	return stored, err
}

// setState sets the state of a job in the name of the actor of the change, or clears it if state is nil.
func setState(ctx context.Context, t *dispatch.Tx, job int64, state json.RawMessage) error {
	var value *string
	if state != nil {
		text, err := run.ReadCarriedState(state)
		if err != nil {
			return err
		}
		value = new(string(text))
	}
	// $1 job, $2 state, $3 now, $4 actor
	const write = `INSERT INTO carried_states (job_id, state, revision, updated_at, actor) VALUES ($1, $2, 1, $3, $4)
		ON CONFLICT (job_id) DO UPDATE SET state = excluded.state, revision = carried_states.revision + 1,
			updated_at = excluded.updated_at, actor = excluded.actor, scheduled_at = NULL, trigger_id = NULL, kind = NULL,
			discarded_scheduled_at = NULL, discarded_trigger_id = NULL, discarded_kind = NULL`
	if err := t.Exec(ctx, write, job, value, t.At.UnixMilli(), t.By.Actor); err != nil {
		return fmt.Errorf("set the state: %w", err)
	}
	return nil
}
