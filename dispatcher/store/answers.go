package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// keepAnswers keeps what attempts were answered, beside their runs, whose rows are hot.
const keepAnswers = ` INSERT INTO answers (scheduled_at, trigger_id, kind, attempt, answer)
	SELECT b.scheduled_at, b.trigger_id, b.kind, b.attempt, b.answer FROM b WHERE 1 = 1 ON CONFLICT DO NOTHING`

// mostAnswers bounds what one statement stores of answers, in bytes.
const mostAnswers = 4 << 20

// recordAnswers stores the answers of those of records that have one. If this is interrupted,
// the caller records them again.
func (s *store) recordAnswers(ctx context.Context, records []dispatcher.Record) error {
	for len(records) > 0 {
		size, count := 0, 0
		for count < len(records) && size < mostAnswers {
			if a := records[count].Outcome.Answer; a != nil {
				size += len(a.Body)
			}
			count++
		}
		if err := s.insertAnswers(ctx, records[:count]); err != nil {
			return err
		}
		records = records[count:]
	}
	return nil
}

func (s *store) insertAnswers(ctx context.Context, records []dispatcher.Record) error {
	var at, trigger []int64
	var kind, attempt []int32
	var answers []string
	for _, r := range records {
		if r.Outcome.Answer == nil {
			continue
		}
		text, err := json.Marshal(r.Outcome.Answer)
		if err != nil {
			return err
		}
		at, trigger = append(at, r.ScheduledAt.UnixMilli()), append(trigger, r.TriggerID)
		kind, attempt = append(kind, int32(r.Kind.Code())), append(attempt, int32(r.Attempt))
		answers = append(answers, string(text))
	}
	if len(answers) == 0 {
		return nil
	}
	_, err := s.exec(ctx, s.hot.answers, s.batch(at, trigger, kind, attempt, answers))
	return err
}

// addAnswers adds to the attempts of a run what is kept of their answers. key is that of the run.
func addAnswers(ctx context.Context, q querier, attempts []dispatcher.Attempt, key []any) error {
	// $1 scheduled instant, $2 trigger, $3 kind
	const kept = `SELECT attempt, answer FROM answers WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
	type row struct {
		attempt int
		answer  dispatcher.Answer
	}
	rows, err := collect(ctx, q, func(s scanner) (r row, err error) {
		var text string
		if err = s.Scan(&r.attempt, &text); err == nil {
			err = json.Unmarshal([]byte(text), &r.answer)
		}
		return r, err
	}, kept, key...)
	if err != nil {
		return fmt.Errorf("read answers: %w", err)
	}
	for _, r := range rows {
		for i := range attempts {
			if attempts[i].Attempt == r.attempt {
				attempts[i].Answer = &r.answer
			}
		}
	}
	return nil
}
