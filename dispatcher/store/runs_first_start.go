package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// firstAttempt is when the first attempt of a run began.
type firstAttempt struct {
	run string // its id
	at  time.Time
}

// addFirstStarts adds to those runs of a page that were attempted again, or wait for that, when their first attempts began.
func addFirstStarts(ctx context.Context, f db.Flavor, q db.Querier, runs []run.Run) error {
	of := make(map[string]*run.Run, len(runs))
	k := db.NewKeys(len(runs))
	for i := range runs {
		r := &runs[i]
		if r.Attempt < 1 || r.Attempt == 1 && r.State != run.Retrying {
			continue
		}
		key, err := run.ParseKey(r.ID)
		if err != nil {
			return err
		}
		k.Add(key, 0, 0)
		of[r.ID] = r
	}
	if len(of) == 0 {
		return nil
	}
	// $1 first day, $2 end of the last, from $3 on: the keys
	query := f.Rows(0, 3, "", db.KeyColumns[:3]...) + ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.started_at
		FROM b JOIN attempts AS r ON r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind
			AND r.attempt = 1` + db.Within
	bounds := []any{db.Day(slices.Min(k.At)), db.Day(slices.Max(k.At)) + db.DayMillis}
	found, err := db.Collect(ctx, q, scanFirstStart, query, append(bounds, f.Batch(k.At, k.Trigger, k.Kind)...)...)
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

func scanFirstStart(row db.Scanner) (first firstAttempt, err error) {
	var key run.Key
	err = row.Scan(db.InstantColumn(&key.ScheduledAt), &key.TriggerID, db.KindColumn(&key), db.InstantColumn(&first.at))
	first.run = key.String()
	return first, err
}
