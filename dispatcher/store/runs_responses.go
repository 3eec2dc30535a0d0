package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// keepResponses keeps the responses to attempts in a table of their own, for the rows of runs are hot.
const keepResponses = ` INSERT INTO responses (scheduled_at, trigger_id, kind, attempt, response)
	SELECT b.scheduled_at, b.trigger_id, b.kind, b.attempt, b.response FROM b WHERE 1 = 1 ON CONFLICT DO NOTHING`

// mostResponses bounds what one statement stores of responses, in bytes.
const mostResponses = 4 << 20

// recordResponses stores the responses of those of records that have one. If this is interrupted,
// the caller records them again.
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

// insertResponses stores the responses of some records.
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
	_, err := s.exec(ctx, s.hot.responses, s.db.Batch(k.At, k.Trigger, k.Kind, k.Attempt, responses))
	return err
}

// addResponses adds to the attempts of a run what is kept of their responses, and to a run that waits for a callback which
// endpoint accepted it. key is that of the run.
func addResponses(ctx context.Context, q db.Querier, one *run.Run, key []any) error {
	// $1 scheduled instant, $2 trigger, $3 kind
	const kept = `SELECT attempt, response FROM responses WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
	type row struct {
		attempt  int
		response run.Response
	}
	rows, err := db.Collect(ctx, q, func(s db.Scanner) (r row, err error) {
		var text string
		if err = s.Scan(&r.attempt, &text); err == nil {
			err = json.Unmarshal([]byte(text), &r.response)
		}
		return r, err
	}, kept, key...)
	if err != nil {
		return fmt.Errorf("read responses: %w", err)
	}
	for _, r := range rows {
		for i := range one.Attempts {
			if one.Attempts[i].Attempt == r.attempt {
				one.Attempts[i].Response = &r.response
			}
		}
		if one.Callback != nil && one.Attempt == r.attempt {
			one.Callback.Endpoint = r.response.Endpoint
		}
	}
	return nil
}
