package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// known are the runs that the ledger has of instants.
type known map[repeat.BackfillInstant]*knownRuns

// knownRuns is what the ledger has of an instant.
type knownRuns struct {
	live      bool // a run is under way
	claimed   bool // a claim lists the fire, which may have ended
	ended     bool // a run has ended
	fired     bool // the fire has ended
	succeeded bool
	backfill  bool // a run of a backfill has ended
}

// place is where the run of a backfill of an instant is.
type place int

const (
	nowhere place = iota
	inHistory
)

// keyOfInstant returns the key of the run of a backfill of an instant.
func keyOfInstant(one repeat.BackfillInstant) run.Key {
	return run.Key{TriggerID: one.TriggerID, ScheduledAt: one.At, Kind: run.KindBackfill}
}

// decide tells whether a backfill runs an instant, and where its run is.
func (k known) decide(existing repeat.BackfillExisting, one repeat.BackfillInstant) (run bool, at place) {
	of := k[one]
	if of == nil {
		return true, nowhere
	}
	if of.backfill {
		at = inHistory
	}
	switch {
	case of.live || of.claimed && !of.fired:
		return false, at
	case existing == repeat.ExistingRun:
		return true, at
	case existing == repeat.ExistingFailed:
		return !of.succeeded, at
	}
	return !of.ended, at
}

// skipsPage is how many instants BackfillSkips looks at with one query.
const skipsPage = 2000

// BackfillSkips counts the instants that a backfill would leave out.
func (s *Store) BackfillSkips(ctx context.Context, plan repeat.BackfillPlan) (skipped int, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	var after *repeat.BackfillInstant
	for {
		page, err := plan.Next(ctx, plan.Schedules, after, skipsPage)
		if err != nil {
			return 0, err
		}
		known, err := existing(ctx, s.db.Flavor, s.db.Read, page)
		if err != nil {
			return 0, fmt.Errorf("look for runs of the instants of a backfill: %w", err)
		}
		for _, one := range page {
			if run, _ := known.decide(plan.Existing, one); !run {
				skipped++
			}
		}
		if len(page) < skipsPage {
			return skipped, nil
		}
		after = &page[len(page)-1]
	}
}

// existing reads what the ledger has of instants: runs that are scheduled, stand for misfires or are of a backfill.
func existing(ctx context.Context, f db.Flavor, q db.Querier, page []repeat.BackfillInstant) (known, error) {
	all := known{}
	if len(page) == 0 {
		return all, nil
	}
	sorted := slices.Clone(page)
	db.SortBy(sorted, keyOfInstant)
	var at, trigger []int64
	for _, one := range sorted {
		at, trigger = append(at, one.At.UnixMilli()), append(trigger, one.TriggerID)
	}
	const of = `.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id`
	// $1 first day, $2 end of the last, from $3 on: two of db.KeyColumns
	list := f.Rows(0, 3, "", db.KeyColumns[:2]...) + `
		SELECT r.scheduled_at, r.trigger_id, r.kind, coalesce(r.state, 'succeeded') FROM b JOIN runs AS r ON r` + of + db.Within + `
			WHERE r.kind IN (1, 3, 5)
		UNION ALL SELECT r.scheduled_at, r.trigger_id, r.kind, 'live' FROM b JOIN live_runs AS r ON r` + of + ` WHERE r.kind IN (1, 3, 5)
		UNION ALL SELECT r.scheduled_at, r.trigger_id, 1, 'claimed' FROM b JOIN (` + f.ClaimedFires() + `) AS r ON r` + of
	_, err := db.Collect(ctx, q, func(row db.Scanner) (struct{}, error) {
		var one repeat.BackfillInstant
		var key run.Key
		var state string
		err := row.Scan(db.InstantColumn(&one.At), &one.TriggerID, db.KindColumn(&key), &state)
		if all[one] == nil {
			all[one] = &knownRuns{}
		}
		all[one].add(key.Kind, state)
		return struct{}{}, err
	}, list, append([]any{db.Day(at[0]), db.Day(at[len(at)-1]) + db.DayMillis}, f.Batch(at, trigger)...)...)
	return all, err
}

func (k *knownRuns) add(kind run.Kind, state string) {
	switch state {
	case "live":
		k.live = true
	case "claimed":
		k.claimed = true
	default:
		k.ended = true
		k.succeeded = k.succeeded || state == string(run.Succeeded)
		k.fired = k.fired || kind == run.KindSchedule
		k.backfill = k.backfill || kind == run.KindBackfill
	}
}

// Backfilled counts the runs of backfills of a job, by trigger.
func (s *Store) Backfilled(ctx context.Context, job int64, from, to time.Time) (map[int64]int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	// $1 job, $2 from, $3 to. Shards do not count.
	const of = ` AS r WHERE r.job_id = $1 AND r.scheduled_at >= $2 AND r.scheduled_at <= $3 AND r.kind = 5`
	const list = `SELECT x.trigger_id, count(*) FROM (SELECT r.trigger_id FROM runs` + of + ` UNION ALL
		SELECT r.trigger_id FROM live_runs` + of + `) AS x GROUP BY x.trigger_id`
	counts := map[int64]int{}
	_, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (struct{}, error) {
		var trigger int64
		var count int
		err := row.Scan(&trigger, &count)
		counts[trigger] = count
		return struct{}{}, err
	}, list, job, from.UnixMilli(), to.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("count the backfilled runs of a job: %w", err)
	}
	return counts, nil
}
