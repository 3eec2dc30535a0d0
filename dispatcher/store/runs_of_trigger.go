package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// What a strip reads. The history has no index of triggers: the latest fires of one are looked for among the latest runs of
// its job, of which there is a bound, and all others are looked up by their keys.

// lookedThrough is how many runs of a job are looked through for those of one trigger.
const lookedThrough = 2000

// LatestFires returns the scheduled times of a trigger's runs among the latest runs of its job, latest first.
func (s *Store) LatestFires(ctx context.Context, job, trigger int64, from, to time.Time, limit int) ([]time.Time, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	// $1 job, $2 trigger, $3 from, $4 to
	const (
		within = ` r.job_id = $1 AND r.scheduled_at >= $3 AND r.scheduled_at <= $4`
		fires  = ` AS r WHERE r.trigger_id = $2 AND r.kind = 1`
	)
	look := ` ORDER BY r.scheduled_at DESC LIMIT ` + strconv.Itoa(lookedThrough)
	ended := `SELECT r.scheduled_at, r.trigger_id, r.kind FROM runs AS r WHERE` + within + look
	live := `SELECT r.scheduled_at, r.trigger_id, r.kind FROM live_runs AS r WHERE r.job_id = $1 AND r.scheduled_at + 0 >= $3
		AND r.scheduled_at + 0 <= $4 ORDER BY r.scheduled_at + 0 DESC LIMIT ` + strconv.Itoa(lookedThrough)
	claimed := `SELECT f.scheduled_at FROM (` + s.db.ClaimedFires() + `) AS f WHERE f.job_id = $1 AND f.trigger_id = $2
		AND f.scheduled_at >= $3 AND f.scheduled_at <= $4`
	list := `SELECT r.scheduled_at FROM (SELECT r.scheduled_at FROM (` + ended + `)` + fires +
		` UNION SELECT r.scheduled_at FROM (` + live + `)` + fires + ` UNION ` + claimed + `) AS r ORDER BY r.scheduled_at DESC LIMIT ` +
		strconv.Itoa(limit)
	return db.Collect(ctx, s.db.Read, func(row db.Scanner) (at time.Time, err error) {
		err = row.Scan(db.InstantColumn(&at))
		return at, err
	}, list, job, trigger, from.UnixMilli(), to.UnixMilli())
}

// RunsAt returns the runs of some keys, latest first. Those that do not exist are left out.
func (s *Store) RunsAt(ctx context.Context, keys []run.Key) ([]run.Run, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	claimed, err := s.claimedNow(ctx)
	if err != nil {
		return nil, err
	}
	const is = ` AS r WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT b.scheduled_at, b.trigger_id, b.kind FROM b)`
	picked := s.endedOfKeys() + ` UNION ALL SELECT r.* FROM b CROSS JOIN (` + db.UnendedRuns +
		`) AS r WHERE ` + sameKey + ` UNION ALL SELECT * FROM (` + claimed + `)` + is
	return db.Collect(ctx, s.db.Read, scanRun, runQuery(picked), s.keysBatch(keys)...)
}

// sameKey tells whether a run r is that of a key b.
const sameKey = `r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind`

// endedOfKeys begins a query with the keys of keysBatch as b, and selects their ended runs. PostgreSQL makes a plan for the days between
// the first and the last of them only.
func (s *Store) endedOfKeys() string {
	// $1 first, $2 last instant, $3 on: the keys
	return s.db.Rows(0, 3, "", db.FireKeyColumns...) + s.db.EndedOfEachKey(`r.scheduled_at >= $1 AND r.scheduled_at <= $2 AND `+sameKey)
}

// keysBatch returns the parameters of endedOfKeys; there is at least one key.
func (s *Store) keysBatch(keys []run.Key) []any {
	var at, trigger, kind []int64
	for _, key := range keys {
		at, trigger, kind = append(at, key.ScheduledAt.UnixMilli()), append(trigger, key.TriggerID), append(kind, int64(key.Code()))
	}
	return append([]any{slices.Min(at), slices.Max(at)}, s.db.Batch(at, trigger, kind)...)
}
