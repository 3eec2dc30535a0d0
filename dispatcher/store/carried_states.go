package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// keepState writes the states that the runs c returned, each for the revision that its run was given. If that is not the
// current one, an operator has changed the state meanwhile: theirs stays, and the row says whose was discarded.
// c has what chosenEnd names and of_returned, which is NULL if a run returned none, and of_seen, the revision.
const keepState = ` INSERT INTO carried_states (job_id, state, revision, updated_at, scheduled_at, trigger_id, kind)
	SELECT c.of_job, NULLIF(c.of_returned, 'null'), c.of_seen + 1, c.of_end, c.of_at, c.of_trigger, c.of_kind
	FROM c WHERE c.of_returned IS NOT NULL
	ON CONFLICT (job_id) DO UPDATE SET
		state = CASE WHEN ` + overtaken + ` THEN carried_states.state ELSE excluded.state END,
		revision = CASE WHEN ` + overtaken + ` THEN carried_states.revision ELSE excluded.revision END,
		updated_at = CASE WHEN ` + overtaken + ` THEN carried_states.updated_at ELSE excluded.updated_at END,
		actor = CASE WHEN ` + overtaken + ` THEN carried_states.actor ELSE '' END,
		scheduled_at = CASE WHEN ` + overtaken + ` THEN carried_states.scheduled_at ELSE excluded.scheduled_at END,
		trigger_id = CASE WHEN ` + overtaken + ` THEN carried_states.trigger_id ELSE excluded.trigger_id END,
		kind = CASE WHEN ` + overtaken + ` THEN carried_states.kind ELSE excluded.kind END,
		discarded_scheduled_at = CASE WHEN ` + overtaken + ` THEN excluded.scheduled_at END,
		discarded_trigger_id = CASE WHEN ` + overtaken + ` THEN excluded.trigger_id END,
		discarded_kind = CASE WHEN ` + overtaken + ` THEN excluded.kind END`

// overtaken tells that a state was changed since the run began that returned another.
const overtaken = `carried_states.revision <> excluded.revision - 1`

// carriedColumns are a CarriedState of a job j and its row s.
const carriedColumns = `j.id, s.state, coalesce(s.revision, 0), s.updated_at, coalesce(s.actor, ''), s.scheduled_at, s.trigger_id, s.kind,
	s.discarded_scheduled_at, s.discarded_trigger_id, s.discarded_kind`

// storedState is the state of a job.
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
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	return carriedState(ctx, s.db.Read, app, job)
}

func carriedState(ctx context.Context, q db.Querier, app, job string) (run.CarriedState, error) {
	// $1 app, $2 name
	const of = `SELECT ` + carriedColumns + ` FROM jobs AS j LEFT JOIN carried_states AS s ON s.job_id = j.id
		WHERE j.app_id = $1 AND j.name = $2 AND j.deleted_at IS NULL`
	found, there, err := db.First(ctx, q, scanCarriedState, of, run.AppID(app), job)
	if err == nil && !there {
		err = dispatcher.NotFound("job", app+"/"+job)
	}
	return found.CarriedState, err
}

// CarriedStatesByID returns the states of jobs that have one, or had.
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

// SetCarriedState sets or clears the state of a job. The audit log says who did, but not what: a state is data of the job,
// and the log is kept for longer and read by more.
func (s *Store) SetCarriedState(ctx context.Context, app, name string, state json.RawMessage, change input.Change) (
	stored run.CarriedState, err error,
) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		job, err := s.findJob(ctx, t, app, name, t.ForUpdate())
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
		if err := allowState(t.by, before); err != nil {
			return err
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
		return t.audit(ctx, action, app, "job "+name, stored.Revision)
	})
	return stored, err
}

// allowState checks the conditions of a change: a state that was cleared is absent, although its revision goes on.
func allowState(by input.Change, before run.CarriedState) error {
	if by.IfAbsent && string(before.State) != "null" || by.IfRevision != 0 && by.IfRevision != before.Revision {
		return fmt.Errorf("revision is %d: %w", before.Revision, dispatcher.ErrPrecondition)
	}
	return nil
}

// partReturned parts records that end their runs into those that returned no state and those that did.
func partReturned(records []dispatcher.Record) (others, returned []dispatcher.Record) {
	returns := func(r dispatcher.Record) bool {
		return r.Outcome.Returned != nil && r.Outcome.State == run.Succeeded
	}
	if !slices.ContainsFunc(records, returns) {
		return records, nil
	}
	for _, r := range records {
		if returns(r) {
			returned = append(returned, r)
		} else {
			others = append(others, r)
		}
	}
	return others, returned
}

// states returns the last columns of a batch of records, those of db.ReturnedColumns.
func states(records []dispatcher.Record) []any {
	var returned []string
	var seen []int64
	for _, r := range records {
		returned, seen = append(returned, string(r.Outcome.Returned.State)), append(seen, r.Outcome.Returned.Revision)
	}
	return []any{returned, seen}
}

// keepReturned writes the state that a run returned with its callback. seen is the revision that its attempt was given.
func keepReturned(ctx context.Context, t *tx, held run.HeldRun, state json.RawMessage, seen int64) error {
	// $1 job, $2 scheduled instant, $3 trigger, $4 kind, $5 now, $6 state, $7 revision
	const of = `WITH c AS (SELECT CAST($1 AS BIGINT) AS of_job, CAST($2 AS BIGINT) AS of_at, CAST($3 AS BIGINT) AS of_trigger,
		CAST($4 AS SMALLINT) AS of_kind, CAST($5 AS BIGINT) AS of_end, CAST($6 AS TEXT) AS of_returned, CAST($7 AS BIGINT) AS of_seen)`
	if _, err := t.ExecContext(ctx, of+keepState, held.JobID, held.ScheduledAt.UnixMilli(), held.TriggerID, int64(held.Key.Code()),
		t.now.UnixMilli(), string(state), seen); err != nil {
		return fmt.Errorf("store the state that run %s returned: %w", held.Key, err)
	}
	return nil
}

// setState sets the state of a job, as who changes it says, or clears it if it is nil.
func setState(ctx context.Context, t *tx, job int64, state json.RawMessage) error {
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
	if _, err := t.ExecContext(ctx, write, job, value, t.now.UnixMilli(), t.by.Actor); err != nil {
		return fmt.Errorf("set the state: %w", err)
	}
	return nil
}

// carriedStatesOfApp returns the states that the jobs of an app carry, by job.
func carriedStatesOfApp(ctx context.Context, q db.Querier, app string) (map[int64]json.RawMessage, error) {
	// $1 app
	const of = `SELECT ` + carriedColumns + ` FROM jobs AS j JOIN carried_states AS s ON s.job_id = j.id
		WHERE j.app_id = $1 AND j.deleted_at IS NULL AND j.carry_state AND s.state IS NOT NULL`
	found, err := db.Collect(ctx, q, scanCarriedState, of, run.AppID(app))
	states := make(map[int64]json.RawMessage, len(found))
	for _, one := range found {
		states[one.job] = one.State
	}
	return states, err
}
