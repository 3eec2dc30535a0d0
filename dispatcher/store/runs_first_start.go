package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// firstAttempt is when the first attempt of a run began.
type firstAttempt struct {
	run string // its id
	at  time.Time
}

// addFirstStarts adds to those runs of a page that were attempted again, or wait for that, when their first attempts began.
func addFirstStarts(ctx context.Context, f flavor, q querier, runs []run.Run) error {
	of := make(map[string]*run.Run, len(runs))
	k := newKeys(len(runs))
	for i := range runs {
		r := &runs[i]
		if r.Attempt < 1 || r.Attempt == 1 && r.State != run.Retrying {
			continue
		}
		key, err := run.ParseKey(r.ID)
		if err != nil {
			return err
		}
		k.add(key, 0, 0)
		of[r.ID] = r
	}
	if len(of) == 0 {
		return nil
	}
	// $1 first day, $2 end of the last, from $3 on: the keys
	query := f.rows(0, 3, "", keyColumns[:3]...) + ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.started_at
		FROM b JOIN attempts AS r ON r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind
			AND r.attempt = 1` + within
	bounds := []any{day(slices.Min(k.at)), day(slices.Max(k.at)) + dayMillis}
	found, err := collect(ctx, q, scanFirstStart, query, append(bounds, f.batch(k.at, k.trigger, k.kind)...)...)
	if err != nil {
		return fmt.Errorf("read the first attempts of %d runs: %w", len(of), err)
	}
	for _, one := range found {
		if run := of[one.run]; run != nil {
			run.FirstStartedAt = &one.at
		}
	}
	return nil
}

func scanFirstStart(row scanner) (first firstAttempt, err error) {
	var key run.Key
	err = row.Scan(instantColumn(&key.ScheduledAt), &key.TriggerID, kindColumn(&key), instantColumn(&first.at))
	first.run = key.String()
	return first, err
}
