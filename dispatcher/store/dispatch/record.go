package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// recordStatements store outcomes.
type recordStatements struct {
	// Of fires of claims. $1 claims that stay, $2 claims that go, $3 on: the batch
	Ended, Again db.Statement
	// Of live runs; liveReturned ends those that returned a state. $1 on: the batch
	LiveEnded, liveReturned, LiveAgain db.Statement
	// Followed are the same for batches with runs that may have followers; nil inside Followed itself.
	Followed *recordStatements
}

func recordStatementsOf(f db.Flavor) recordStatements {
	all := recordsOf(f, func(string) []string { return nil })
	followed := recordsOf(f, func(condition string) []string { return []string{insertPending(condition)} })
	all.Followed = &followed
	return all
}

// recordsOf returns the statements, with the steps of before ahead of the insertion of runs c into the history.
func recordsOf(f db.Flavor, before func(condition string) []string) recordStatements {
	batch := f.Rows(0, 3, "", db.FireColumns...)
	ended := f.Steps(0, batch+f.ClaimFence(), chooseFires, "", 1, append(before(allChosen), insertEnded(""))...)
	// Runs that are recorded again are not followed again.
	notRecorded := `NOT EXISTS (SELECT 1 FROM runs AS r WHERE` + db.OfChosen(f) + `)`
	ended.OrElse = f.Steps(0, batch+f.ClaimFence(), chooseFires, "", 1,
		append(before(notRecorded), insertEnded(` WHERE 1 = 1 ON CONFLICT DO NOTHING`))...).Parts
	// A fire that ends instead of its next attempt, and is recorded again, may be followed again: under the same keys,
	// so that no run is queued twice. Looking for it in the history would cost each batch more.
	again := slices.Concat([]string{insertFailed, noteWaits}, before(`NOT `+goesOn),
		[]string{insertEnded(` WHERE NOT ` + goesOn + ` ON CONFLICT DO NOTHING`), insertRetrying})
	liveEnded := slices.Concat([]string{leaveSlots}, before(allChosen), EndSteps(f, ""))
	liveAgain := slices.Concat([]string{insertFailed, noteWaits, leaveSlots}, before(`NOT `+goesOn), EndSteps(f, `NOT `+goesOn),
		[]string{retryRuns(f)})
	return recordStatements{
		Ended: f.ThenClose(ended),
		Again: f.ThenClose(f.Steps(0, f.Rows(0, 3, "", db.FireAgainColumns...)+f.ClaimFence(), chooseFailedFires, "", 2, again...)),

		LiveEnded: f.Steps(0, f.Rows(0, 1, "", db.RecordColumns...), chooseEnded(f, ""), db.LockToDelete, 1, liveEnded...),
		liveReturned: f.Steps(0, f.Rows(0, 1, "", db.ReturnedColumns...), chooseEnded(f, `, b.returned AS of_returned, b.seen AS of_seen`),
			db.LockToDelete, 1, append([]string{keepState}, liveEnded...)...),
		LiveAgain: f.Steps(0, f.Rows(0, 1, "", db.AgainColumns...), chooseFailed(f), db.LockToDelete, 2, liveAgain...),
	}
}

func (s *Store) recordBy(records []dispatcher.Record) *recordStatements {
	if slices.ContainsFunc(records, func(r dispatcher.Record) bool { return r.Followed }) {
		return s.Hot.Record.Followed
	}
	return &s.Hot.Record
}

// firesOfBatch are the columns of c for fires of the batch, which have no row before the history.
const firesOfBatch = ` b.scheduled_at AS of_at, b.trigger_id AS of_trigger, 1 AS of_kind, b.job_id AS of_job,
		b.revision AS of_revision,
		b.node AS of_node, b.claimed_at AS of_claimed, b.started_at AS of_started, b.ended_at AS of_end, 1 AS over,
		b.http_status AS of_status, b.state AS of_state, b.class AS of_class, b.error AS of_error, '' AS of_waited`

// heldByClaim selects fires with an existing claim; f are the locked claims. It is not a join, because PostgreSQL might
// then begin with the claims.
const heldByClaim = ` (b.token IN (SELECT token FROM f)) = b.yes`

const chooseFires = `SELECT` + firesOfBatch + ` FROM b WHERE` + heldByClaim

// chooseEnded chooses the runs of the batch that are still held. more are further columns.
func chooseEnded(f db.Flavor, more string) string {
	return `SELECT` + ChosenEnd(End{started: `b.started_at`, at: `b.ended_at`, status: `b.http_status`, State: `b.state`, Class: `b.class`,
		Message: `b.error`}) + `, b.token AS of_token` + more + ` FROM b JOIN live_runs AS r ON` + db.Fence(f)
}

// leaveSlots frees the slots of the attempts c from their node. A slot stays with its run until the run ends.
const leaveSlots = ` UPDATE slots AS s SET node = 0, token = 0 FROM c WHERE s.job_id = c.of_job AND s.scheduled_at = c.of_at
		AND s.trigger_id = c.of_trigger AND s.kind = c.of_kind AND s.token = c.of_token`

// recordLate keeps the results of attempts that were taken from their node. The stored outcome of the attempt, recorded
// again, is not a late result. The node of a fire that left its claim is unknown when the fire is cancelled.
const recordLate = ` UPDATE attempts AS r SET late_result = b.late, node = b.node FROM b
	WHERE r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind` + db.Within + `
		AND r.attempt = b.attempt AND (r.node = b.node OR r.node = 0 AND r.state = 'cancelled') AND r.late_result IS NULL
		AND NOT (r.state = b.state AND r.started_at = b.started_at AND r.ended_at = b.ended_at)`

// Record stores the outcomes of attempts and updates their runs.
func (s *Store) Record(ctx context.Context, records []dispatcher.Record) error {
	if len(records) == 0 {
		return nil
	}
	sorted := db.SortedBy(records, recordKey)
	for i := range sorted {
		sorted[i].Outcome.Error = Storable(sorted[i].Outcome.Error)
		// Any node may record the end of an attempt that its target accepted.
		if next := sorted[i].Next; next != nil && (next.NotAttempted || next.Callback != nil) {
			s.Rollbacks.handedBack(sorted[i].Key)
		}
	}
	// A record that failed alone is stored without its response, a possible cause; or else its run is set aside.
	err := InParts(ctx, s.OfStored, sorted, func(part []dispatcher.Record) error { return s.recordPart(ctx, part) },
		func(record dispatcher.Record, why error) error {
			if record.Outcome.Response != nil {
				record.Outcome.Response = nil
				if err := s.recordPart(ctx, []dispatcher.Record{record}); err == nil || !s.OfStored(ctx, err) {
					return err
				}
			}
			if _, _, err := s.unfold(ctx, []int64{int64(record.Token)}, false); err != nil {
				return err
			}
			return s.setRunAside(ctx, failedRun{dispatcher.WorkRecord, record.Key, record.Token, why}, time.Time{})
		})
	if err != nil {
		return fmt.Errorf("record %d attempts: %w", len(records), err)
	}
	return nil
}

// recordPart stores some sorted records: by their claims, or else as live runs, or else as late results. It stores
// responses first, so that ended runs have them. A response that cannot be stored does not block the outcome.
func (s *Store) recordPart(ctx context.Context, records []dispatcher.Record) error {
	responsesErr := s.recordResponses(ctx, records)
	fires, others := s.Claims.split(records)
	ended, again := partRetries(fires)
	fencedEnded, err := s.recordFires(ctx, s.recordBy(ended).Ended, ended)
	fencedAgain, againErr := s.recordFires(ctx, s.recordBy(again).Again, again)
	if len(fencedEnded)+len(fencedAgain) > 0 {
		others = db.SortedBy(append(append(others, fencedEnded...), fencedAgain...), recordKey)
	}
	return errors.Join(responsesErr, err, againErr, s.recordLive(ctx, others))
}

func recordKey(r dispatcher.Record) run.Key { return r.Key }

// recordFires records fires of claims. It returns all of them if some claims were taken meanwhile.
func (s *Store) recordFires(ctx context.Context, by db.Statement, records []dispatcher.Record) (fenced []dispatcher.Record, err error) {
	if len(records) == 0 {
		return nil, nil
	}
	ctx, cancel := db.Bound(ctx, db.RecordTimeout)
	defer cancel()
	// The remembered claims must not be older than the connection.
	ctx, release, err := s.db.OnOneConnection(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	stay, closed := s.Claims.tokens(records)
	columns := fires(records)
	if records[0].Next != nil {
		columns = append(columns, nextAttempts(records)...)
	}
	recorded, err := s.exec(ctx, by, append([]any{s.db.List(stay), s.db.List(closed)}, s.db.Batch(columns...)...))
	switch {
	case err != nil: // whether they are recorded is unknown
		s.Claims.Forget(append(stay, closed...)...)
		return nil, err
	case int(recorded) < len(records):
		s.Claims.Forget(append(stay, closed...)...)
		return records, nil
	}
	s.Claims.recorded(records)
	return nil, nil
}

// recordLive records live runs. Records without a live run may be fires of claims that this process does not know,
// which are then unfolded; or their attempt was taken from their node.
func (s *Store) recordLive(ctx context.Context, records []dispatcher.Record) error {
	all, err := s.recordRows(ctx, records)
	if all || err != nil {
		return err
	}
	var unknown []int64
	for _, r := range records {
		if r.Kind == run.KindSchedule && r.Shard == 0 && r.Attempt == 1 && !s.Claims.knows(r.Token) {
			unknown = append(unknown, int64(r.Token))
		}
	}
	if len(unknown) > 0 {
		if _, _, err := s.unfold(ctx, unknown, false); err != nil {
			return err
		}
		// Another node may have unfolded them since the first search for rows.
		if all, err := s.recordRows(ctx, records); all || err != nil {
			return err
		}
	}
	// The node of these attempts lost them; their results are kept.
	late := make([]string, len(records))
	for i, r := range records {
		r.Outcome.Response = nil // responses are kept with those of all attempts
		r.Outcome.StartedAt, r.Outcome.EndedAt = db.Instant(r.Outcome.StartedAt.UnixMilli()), db.Instant(r.Outcome.EndedAt.UnixMilli())
		outcome, err := json.Marshal(r.Outcome)
		if err != nil {
			return err
		}
		late[i] = string(outcome)
	}
	_, err = s.exec(ctx, s.Hot.Late, s.db.Dated(append(attempts(records), late)...))
	return err
}

// recordRows records the runs that have rows among the live runs, and reports whether these are all.
func (s *Store) recordRows(ctx context.Context, records []dispatcher.Record) (all bool, err error) {
	ended, again := partRetries(records)
	ended, returned := partReturned(ended)
	var recorded int64
	if len(ended) > 0 {
		recorded, err = s.exec(ctx, s.recordBy(ended).LiveEnded, s.db.Batch(attempts(ended)...))
	}
	if len(returned) > 0 {
		n, returnedErr := s.exec(ctx, s.recordBy(returned).liveReturned, s.db.Batch(append(attempts(returned), states(returned)...)...))
		recorded, err = recorded+n, errors.Join(err, returnedErr)
	}
	if len(again) > 0 {
		n, againErr := s.exec(ctx, s.recordBy(again).LiveAgain, s.db.Batch(append(attempts(again), nextAttempts(again)...)...))
		recorded, err = recorded+n, errors.Join(err, againErr)
	}
	return int(recorded) == len(records), err
}

// Storable returns a text without the parts that a database refuses: PostgreSQL refuses NUL and invalid UTF-8. A server
// can put both into a response, and the whole batch would fail.
func Storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

// outcomes are the columns of a batch of outcomes.
type outcomes struct {
	node, started, ended  []int64
	status                []int32
	state, class, message []string
}

func outcomesOf(records []dispatcher.Record) outcomes {
	n := len(records)
	o := outcomes{
		node: make([]int64, n), started: make([]int64, n), ended: make([]int64, n), status: make([]int32, n),
		state: make([]string, n), class: make([]string, n), message: make([]string, n),
	}
	for i := range records {
		r := &records[i]
		o.node[i], o.status[i] = int64(r.Node), int32(r.Outcome.HTTPStatus)
		o.started[i], o.ended[i] = r.Outcome.StartedAt.UnixMilli(), r.Outcome.EndedAt.UnixMilli()
		o.state[i], o.class[i], o.message[i] = string(r.Outcome.State), string(r.Outcome.Class), r.Outcome.Error
	}
	return o
}

func (o *outcomes) columns() []any {
	return []any{o.node, o.started, o.ended, o.status, o.state, o.class, o.message}
}

// attempts returns the columns of a batch of records of live runs, db.RecordColumns.
func attempts(records []dispatcher.Record) []any {
	k, o := db.NewKeys(len(records)), outcomesOf(records)
	for i := range records {
		k.Add(records[i].Key, records[i].Token, records[i].Attempt)
	}
	return append([]any{k.At, k.Trigger, k.Kind, k.Token, k.Attempt}, o.columns()...)
}

// fires returns the columns of a batch of records of claimed fires, db.FireColumns.
func fires(records []dispatcher.Record) []any {
	n := len(records)
	at, trigger, token := make([]int64, n), make([]int64, n), make([]int64, n)
	job, revision, claimed := make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range records {
		r := &records[i]
		at[i], trigger[i], token[i] = r.ScheduledAt.UnixMilli(), r.TriggerID, int64(r.Token)
		job[i], revision[i], claimed[i] = r.JobID, r.Revision, r.ClaimedAt.UnixMilli()
	}
	o := outcomesOf(records)
	if records[0].Next == nil {
		// The database mostly has no texts to read if columns with the usual value are NULL, as in the history.
		for _, column := range []struct {
			texts *[]string
			usual string
		}{{&o.state, string(run.Succeeded)}, {&o.class, ""}, {&o.message, ""}} {
			if !slices.ContainsFunc(*column.texts, func(text string) bool { return text != column.usual }) {
				*column.texts = nil
			}
		}
	}
	return append([]any{at, trigger, token, job, revision, claimed}, o.columns()...)
}

// exec runs a hot statement that returns no rows.
func (s *Store) exec(ctx context.Context, hot db.Statement, args []any) (affected int64, err error) {
	ctx, cancel := db.Bound(ctx, db.RecordTimeout)
	defer cancel()
	err = retry(ctx, s.db.Transient, func() error {
		affected, err = s.db.Execute(ctx, hot, args, nil)
		return err
	})
	return affected, err
}

// keepResponses keeps the responses to attempts in a separate table, because the rows of runs are hot.
const keepResponses = ` INSERT INTO responses (scheduled_at, trigger_id, kind, attempt, response)
	SELECT b.scheduled_at, b.trigger_id, b.kind, b.attempt, b.response FROM b WHERE 1 = 1 ON CONFLICT DO NOTHING`

// mostResponses bounds the bytes of responses in one statement.
const mostResponses = 4 << 20

// recordResponses stores the responses of the records that have one. If this is interrupted, the caller records them
// again.
func (s *Store) recordResponses(ctx context.Context, records []dispatcher.Record) error {
	for len(records) > 0 {
		size, count := 0, 0
		for count < len(records) && size < mostResponses {
			if a := records[count].Outcome.Response; a != nil {
				size += len(a.Body)
			}
			count++
		}
		if err := s.insertResponses(ctx, records[:count]); err != nil {
			return err
		}
		records = records[count:]
	}
	return nil
}

func (s *Store) insertResponses(ctx context.Context, records []dispatcher.Record) error {
	var k db.Keys
	var responses []string
	for _, r := range records {
		if r.Outcome.Response == nil {
			continue
		}
		text, err := json.Marshal(r.Outcome.Response)
		if err != nil {
			return err
		}
		k.Add(r.Key, r.Token, r.Attempt)
		responses = append(responses, string(text))
	}
	if len(responses) == 0 {
		return nil
	}
	_, err := s.exec(ctx, s.Hot.Responses, s.db.Batch(k.At, k.Trigger, k.Kind, k.Attempt, responses))
	return err
}

// keepState writes the states that the runs c returned, each based on the revision given to its run. If that is not the
// current one, an operator has changed the state meanwhile: it stays, and the row names the run with the discarded one.
// c has the columns of ChosenEnd and of_returned, which is NULL without a returned state, and of_seen, the revision.
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

// overtaken is the condition that a state was changed after the start of the run that returned another one.
const overtaken = `carried_states.revision <> excluded.revision - 1`

// partReturned divides records that end their runs into those that returned no state and those that did.
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

// KeepReturned writes the state that a run returned with its callback. seen is the revision given to its attempt.
func KeepReturned(ctx context.Context, t *Tx, held run.HeldRun, state json.RawMessage, seen int64) error {
	// $1 job, $2 scheduled instant, $3 trigger, $4 kind, $5 now, $6 state, $7 revision
	const of = `WITH c AS (SELECT CAST($1 AS BIGINT) AS of_job, CAST($2 AS BIGINT) AS of_at, CAST($3 AS BIGINT) AS of_trigger,
		CAST($4 AS SMALLINT) AS of_kind, CAST($5 AS BIGINT) AS of_end, CAST($6 AS TEXT) AS of_returned, CAST($7 AS BIGINT) AS of_seen)`
	if err := t.Exec(ctx, of+keepState, held.JobID, held.ScheduledAt.UnixMilli(), held.TriggerID, int64(held.Key.Code()),
		t.At.UnixMilli(), string(state), seen); err != nil {
		return fmt.Errorf("store the state that run %s returned: %w", held.Key, err)
	}
	return nil
}
