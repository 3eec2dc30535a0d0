package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

const recordRuns = ` UPDATE runs AS r SET live = FALSE, state = b.state, started_at = b.started_at, ended_at = b.ended_at,
		http_status = b.http_status, class = b.class, error = b.error
	FROM b WHERE` + fence

// recordLate keeps the results of attempts that were taken from their node. The outcome
// that the attempt already has, recorded once more, is no late result.
const recordLate = ` UPDATE attempts AS r SET late_result = b.late FROM b
	WHERE` + sameRun + ` AND r.attempt = b.attempt AND r.node = b.node AND r.late_result IS NULL
		AND NOT (r.state = b.state AND r.started_at = b.started_at AND r.ended_at = b.ended_at)`

// Record stores the outcomes of attempts, and what becomes of their runs.
func (s *store) Record(ctx context.Context, records []dispatcher.Record) error {
	if len(records) == 0 {
		return nil
	}
	sorted := sortedBy(records, func(r dispatcher.Record) dispatcher.RunKey { return r.RunKey })
	for i := range sorted {
		sorted[i].Outcome.Error = storable(sorted[i].Outcome.Error)
		if next := sorted[i].Next; next != nil && next.NotAttempted {
			s.rollbacks.handedBack(sorted[i].RunKey)
		}
	}
	ended, again := partRetries(sorted)
	// Responses are stored first, so that an ended run has its response. One that cannot be stored does
	// not keep the outcome back.
	err := errors.Join(s.recordResponses(ctx, sorted), s.recordAll(ctx, s.hot.record, ended), s.recordAll(ctx, s.hot.again, again))
	if err != nil {
		return fmt.Errorf("record %d attempts: %w", len(records), err)
	}
	return nil
}

// recordAll stores records, sorted, by one hot statement.
func (s *store) recordAll(ctx context.Context, by statement, records []dispatcher.Record) error {
	if len(records) == 0 {
		return nil
	}
	columns := outcomes(records)
	all := columns
	if records[0].Next != nil {
		all = append(columns[:len(columns):len(columns)], nextAttempts(records)...)
	}
	recorded, err := s.exec(ctx, by, s.dated(all...))
	if err == nil && int(recorded) < len(records) {
		// Some were fenced off. If this is interrupted, the caller records them again.
		err = s.recordLate(ctx, records, columns)
	}
	return err
}

// storable returns what of a text a database takes: PostgreSQL refuses NUL and what is not
// UTF-8, both of which a server can put into a response, and with it the whole batch.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

// outcomes returns the columns of a batch of records.
func outcomes(records []dispatcher.Record) []any {
	var k keys
	var node, started, ended []int64
	var status []int32
	var state, class, message []string
	for _, r := range records {
		k.add(r.RunKey, r.Token, r.Attempt)
		o := r.Outcome
		node, status = append(node, int64(r.Node)), append(status, int32(o.HTTPStatus))
		started, ended = append(started, o.StartedAt.UnixMilli()), append(ended, o.EndedAt.UnixMilli())
		state, class, message = append(state, string(o.State)), append(class, string(o.Class)), append(message, o.Error)
	}
	return []any{k.at, k.trigger, k.kind, k.token, k.attempt, node, started, ended, status, state, class, message}
}

// recordLate keeps the results of those of records whose attempt was taken from their node.
func (s *store) recordLate(ctx context.Context, records []dispatcher.Record, columns []any) error {
	late := make([]string, len(records))
	for i, r := range records {
		r.Outcome.Response = nil // which is kept with those of all attempts
		outcome, err := json.Marshal(r.Outcome)
		if err != nil {
			return err
		}
		late[i] = string(outcome)
	}
	_, err := s.exec(ctx, s.hot.late, s.dated(append(columns, late)...))
	return err
}

// exec runs a hot statement that returns no rows.
func (s *store) exec(ctx context.Context, hot statement, args []any) (affected int64, err error) {
	ctx, cancel := bound(ctx, recordTimeout)
	defer cancel()
	err = retry(ctx, s.transient, func() error {
		affected, err = s.run(ctx, hot, args, nil)
		return err
	})
	return affected, err
}
