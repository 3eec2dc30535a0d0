package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// A broadcast is a live run in the state waiting_shards with one run for each of its shards, which has the key of the
// parent with another kind; see run.Key.Code. One transaction spreads it. The end of a shard does not touch the
// parent: the node that recorded it then checks whether the parent is done, and the handler does so for all.
//
// A transaction that changes both locks the parent first.

// heldShard is the node of shards that wait until their parent, which is attempted again, is spread.
const heldShard = -2

// ofParent selects the shards r of a run.
// $1 scheduled instant, $2 trigger, $3 kind, all of the parent
const ofParent = ` r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind > $3 AND r.kind % 16 = $3`

// shardsInFlight finds shards of a run r that a node works on. The limits in this and the next query keep PostgreSQL
// from joining all shards.
const shardsInFlight = `SELECT 1 FROM live_runs AS x WHERE x.scheduled_at = r.scheduled_at AND x.trigger_id = r.trigger_id
			AND x.kind >= 16 AND x.kind % 16 = r.kind AND x.token <> 0 LIMIT 1 OFFSET 0`

// anyShard finds unfinished shards of a run r.
const anyShard = `SELECT 1 FROM live_runs AS x WHERE x.scheduled_at = r.scheduled_at AND x.trigger_id = r.trigger_id
		AND x.kind >= 16 AND x.kind % 16 = r.kind LIMIT 1 OFFSET 0`

// DoneAttempt is the attempt of a run that waits for shards, once all have ended.
// $1 scheduled instant, $2 trigger, $3 kind
const DoneAttempt = `SELECT r.attempt FROM live_runs AS r WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3
	AND r.state = 'waiting_shards' AND NOT EXISTS (` + anyShard + `)`

type broadcastStatements struct {
	Insert   string       // $1 the parent's revision, $2 whether it has an input, from $3 on: db.KeyColumns
	Shards   string       // the live shards of runs, as contenders; from $1 on: three of db.KeyColumns
	KeepSlot string       // from $1 on: db.SlotColumns
	Done     string       // $1 limit
	Orphaned string       // $1 limit
	End      db.Statement // $1 now, from $2 on: BroadcastEndColumns
}

// BroadcastEndColumns are the columns of a batch of runs that may have no live shards left.
var BroadcastEndColumns = append(db.EndColumns[:6:6], db.Col("state", db.Text), db.Col("class", db.Text))

func broadcastStatementsOf(f db.Flavor) broadcastStatements {
	const (
		parentKey = `SELECT r.scheduled_at, r.trigger_id, r.kind`
		noShard   = ` AND NOT EXISTS (` + anyShard + `)`
		// The form of this comparison keeps PostgreSQL from the index of all broadcasts.
		isSpread = ` AND (r.state = 'waiting_shards') = b.yes`
		inOrder  = ` ORDER BY r.scheduled_at, r.trigger_id, r.kind`
	)
	chooseDone := `SELECT` + ChosenEnd(End{at: `b.now`, status: `0`, State: `b.state`, Class: `b.class`, Message: `b.error`}) +
		` FROM b JOIN live_runs AS r ON` + db.Fence(f) + isSpread
	const ofParent = ` r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind >= 16 AND r.kind % 16 = b.kind`
	shards := ` JOIN live_runs AS r ON` + ofParent
	if _, lateral := f.(*db.Postgres); lateral { // a separate query, as in db.EachRun
		shards = ` CROSS JOIN LATERAL (SELECT r.* FROM live_runs AS r WHERE` + ofParent + ` OFFSET 0) AS r`
	}
	return broadcastStatements{
		Insert: f.Rows(0, 3, "", append(db.KeyColumns[:5:5], db.Col("job_id", db.Bigint))...) + `
	INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token, attempt, state, has_input)
	SELECT b.scheduled_at, b.trigger_id, b.kind, b.job_id, ` + AppOf("b.job_id") + `, CAST($1 AS BIGINT), 0, 0, 0, 'queued',
		CAST($2 AS BOOLEAN) FROM b WHERE 1 = 1
	ON CONFLICT DO NOTHING`,
		Shards: f.Rows(0, 1, "", db.KeyColumns[:3]...) + ` SELECT` + db.ContenderColumns + ` FROM b` + shards + inOrder,
		KeepSlot: f.Rows(0, 1, "", db.SlotColumns...) + ` INSERT INTO slots (job_id, scheduled_at, trigger_id, kind, endpoint, node, token, since)
	SELECT b.job_id, b.scheduled_at, b.trigger_id, b.kind, s.endpoint, b.node, b.token, s.since FROM b
	JOIN slots AS s ON s.job_id = b.job_id AND s.scheduled_at = b.scheduled_at AND s.trigger_id = b.trigger_id AND s.kind = b.kind % 16
		AND s.endpoint = ''
	ON CONFLICT DO NOTHING`,
		Done: parentKey + ` FROM live_runs AS r WHERE r.state = 'waiting_shards'` + noShard + inOrder + ` LIMIT $1`,
		Orphaned: `SELECT DISTINCT r.scheduled_at, r.trigger_id, r.kind % 16 FROM live_runs AS r WHERE r.kind >= 16 AND NOT EXISTS (
		SELECT 1 FROM live_runs AS p WHERE p.scheduled_at = r.scheduled_at AND p.trigger_id = r.trigger_id AND p.kind = r.kind % 16
			LIMIT 1 OFFSET 0) LIMIT $1`,
		End: f.Steps(1, f.Rows(1, 2, "", BroadcastEndColumns...), chooseDone, db.LockToDelete, 1, followedEndSteps(f)...),
	}
}

// KeyArgs are the parameters of a run: scheduled instant, trigger, kind.
func KeyArgs(key run.Key) []any {
	return []any{key.ScheduledAt.UnixMilli(), key.TriggerID, int64(key.Code())}
}

// Broadcast spreads a run that a node holds.
func (s *Store) Broadcast(ctx context.Context, r run.HeldRun, endpoints []string, now time.Time) (held bool, err error) {
	s.Rollbacks.handedBack(r.Key)
	if err := s.unfoldRuns(ctx, []run.HeldRun{r}); err != nil {
		return false, fmt.Errorf("broadcast run %s: %w", r.Key, err)
	}
	err = s.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *Tx) error {
		key := append(KeyArgs(r.Key), r.JobID, int64(r.Token))
		// $1 scheduled instant, $2 trigger, $3 kind, $4 job, $5 token, $6 attempt, $7 now
		const wait = `UPDATE live_runs SET state = 'waiting_shards', node = 0, token = 0, started_at = $7
			WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4 AND token = $5 AND attempt = $6`
		n, err := t.Affect(ctx, wait, append(key[:5:5], r.Attempt, t.At.UnixMilli())...)
		if held = n == 1; err != nil || !held {
			return err
		}
		// $1 scheduled instant, $2 trigger, $3 kind, $4 job, $5 token
		const leave = `UPDATE slots SET node = 0, token = 0
			WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4 AND token = $5`
		if err := t.Exec(ctx, leave, key...); err != nil {
			return err
		}
		t.Notify(dispatcher.Notification{Adopt: true})
		return spread(ctx, t, r, endpoints)
	})
	if err != nil {
		return false, fmt.Errorf("broadcast run %s: %w", r.Key, err)
	}
	return held, nil
}

// spread queues the shards of a run: new ones for each endpoint, or those held for it.
func spread(ctx context.Context, t *Tx, run run.HeldRun, endpoints []string) error {
	key := append(KeyArgs(run.Key), run.JobID)
	// $1 scheduled instant, $2 trigger, $3 kind, $4 endpoints
	const note = `INSERT INTO broadcasts (scheduled_at, trigger_id, kind, endpoints) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	first, err := t.Affect(ctx, note, append(key[:3:3], db.JSONColumn(endpoints))...)
	if err != nil {
		return err
	}
	if first == 0 {
		// $1 to $3 key, $4 job
		const wake = `UPDATE live_runs AS r SET node = 0 WHERE` + ofParent + ` AND r.job_id = $4 AND r.node = -2`
		return t.Exec(ctx, wake, key...)
	}
	k, jobs := db.NewKeys(len(endpoints)), make([]int64, len(endpoints))
	for i := range endpoints {
		k.Add(run.OfIndex(i), 0, 0)
		jobs[i] = run.JobID
	}
	return t.Exec(ctx, t.Hot.Broadcast.Insert,
		append([]any{run.Revision, run.HasInput}, t.Batch(k.At, k.Trigger, k.Kind, k.Token, k.Attempt, jobs)...)...)
}

// BroadcastEndpoints returns the ids of the endpoints of a run's shards.
func (s *Store) BroadcastEndpoints(ctx context.Context, key run.Key) ([]string, error) {
	endpoints, found, err := EndpointsOf(ctx, s.db.Read, key.Parent())
	return endpoints, db.OrNotFound(found, err, "broadcast", key.Parent().String())
}

// EndpointsOf returns the endpoints of a run's shards; found is false if it has no shards.
func EndpointsOf(ctx context.Context, q db.Querier, parent run.Key) (endpoints []string, found bool, err error) {
	// $1 scheduled instant, $2 trigger, $3 kind
	const list = `SELECT endpoints FROM broadcasts WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
	if found, err = db.ReadRow(ctx, q, []any{db.JSONColumn(&endpoints)}, list, KeyArgs(parent)...); err != nil {
		err = fmt.Errorf("read the endpoints of run %s: %w", parent, err)
	}
	return endpoints, found, err
}

// ScanRunKey scans scheduled instant, trigger and kind.
func ScanRunKey(row db.Scanner) (key run.Key, err error) {
	err = row.Scan(db.KeyRefs(&key)...)
	return key, err
}

// EndBroadcasts ends runs with no live shards left.
func (s *Store) EndBroadcasts(ctx context.Context, parents []run.Key, now time.Time) (ended int, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	var done []run.Key
	for _, key := range parents {
		if _, found, err := db.First(ctx, s.db.Read, db.ScanInt, DoneAttempt, KeyArgs(key)...); err != nil {
			return 0, fmt.Errorf("look for shards of run %s: %w", key, err)
		} else if found {
			done = append(done, key)
		}
	}
	if len(parents) == 0 {
		if done, err = db.Collect(ctx, s.db.Read, ScanRunKey, s.Hot.Broadcast.Done, endBatch); err == nil {
			err = s.cancelOrphans(ctx, now)
		}
	}
	var bounded []run.HeldRun // of jobs with slots
	for _, key := range done {
		if err != nil {
			break
		}
		err = s.OrAside(ctx, func() error {
			run, over, err := s.endBroadcast(ctx, key, now)
			if over {
				ended++
			}
			if run != nil {
				bounded = append(bounded, *run)
			}
			return err
		}, func(why error) error {
			return s.setRunAside(ctx, failedRun{dispatcher.WorkBroadcast, key, 0, why}, now)
		})
	}
	if err == nil && len(bounded) > 0 {
		// The handler passes on the slots of locked jobs.
		if err = s.ReleaseSlots(ctx, bounded); errors.As(err, new(*dispatcher.UndecidedError)) {
			err = nil
		}
	}
	if err != nil {
		return ended, fmt.Errorf("end broadcasts: %w", err)
	}
	return ended, nil
}

// endBroadcast ends a run if all its shards have ended, and returns it if its job has slots.
func (s *Store) endBroadcast(ctx context.Context, key run.Key, now time.Time) (
	bounded *run.HeldRun, over bool, err error,
) {
	err = s.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *Tx) error {
		bounded = nil
		job, _, err := s.LockRun(ctx, t, key)
		if err != nil {
			return err
		}
		if over, err = EndBroadcast(ctx, t, key); err != nil || !over {
			return err
		}
		// $1 scheduled instant, $2 trigger, $3 kind, $4 job
		const slot = `SELECT 1 FROM slots WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4`
		_, hasSlot, err := db.First(ctx, t, db.ScanInt, slot, append(KeyArgs(key), job)...)
		if hasSlot {
			bounded = &run.HeldRun{Key: key, JobID: job}
		}
		return err
	})
	return bounded, over && err == nil, err
}

// cancelOrphans cancels shards of an ended parent: after a parent was given up, skipped or lost, only this ends them.
func (s *Store) cancelOrphans(ctx context.Context, now time.Time) error {
	parents, err := db.Collect(ctx, s.db.Read, ScanRunKey, s.Hot.Broadcast.Orphaned, endBatch+s.Asides.Count(dispatcher.WorkBroadcast))
	if err != nil || len(parents) == 0 {
		return err
	}
	item := func(key run.Key) string { return "shards of " + key.String() }
	parents = WithoutAsides(s.Asides, dispatcher.WorkBroadcast, parents, item, db.WallClock())
	return InParts(ctx, s.OfStored, parents, func(some []run.Key) error {
		return s.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *Tx) error {
			// A shard may have been brought back meanwhile.
			orphaned, err := db.Collect(ctx, t, ScanRunKey, t.Hot.Broadcast.Orphaned, endBatch+s.Asides.Count(dispatcher.WorkBroadcast))
			if err != nil {
				return err
			}
			still := slices.DeleteFunc(slices.Clone(some), func(key run.Key) bool { return !slices.Contains(orphaned, key) })
			return CancelShards(ctx, t, still, t.At.UnixMilli(), "the run that it is part of has ended")
		})
	}, func(key run.Key, why error) error {
		return s.SetAside(ctx, AsideRow{Work: dispatcher.WorkBroadcast, Item: item(key)}, why, now)
	})
}

// CancelShards cancels the shards of runs that are about to end. Shards in flight keep the slot of their parent until
// their requests have been given up.
func CancelShards(ctx context.Context, t *Tx, parents []run.Key, now int64, why string) error {
	if len(parents) == 0 {
		return nil
	}
	k := db.NewKeys(len(parents))
	for _, key := range db.SortedBy(parents, func(key run.Key) run.Key { return key }) {
		k.Add(key, 0, 0)
	}
	var all []Ending
	var inFlight []*Contender
	err := db.EachRow(ctx, t, func(row db.Scanner) error {
		c := &Contender{}
		err := row.Scan(db.ContenderRefs(&c.Held, &c.Node)...)
		all = append(all, Ending{Contender: c, Why: why})
		if c.Held.Token != 0 {
			inFlight = append(inFlight, c)
			t.Notify(dispatcher.Notification{Run: c.Held.String(), Token: c.Held.Token, Attempt: c.Held.Attempt})
		}
		return err
	}, t.Hot.Broadcast.Shards, t.Batch(k.At, k.Trigger, k.Kind)...)
	if err != nil || len(all) == 0 {
		return err
	}
	if len(inFlight) > 0 {
		if err := t.Exec(ctx, t.Hot.Broadcast.KeepSlot, slotArgs(t, inFlight)...); err != nil {
			return err
		}
	}
	return Take(ctx, t, t.Hot.Slots.Cancel, EndingArgs(t, now, all)...)
}

// KeysOfEndings returns the keys of ending runs.
func KeysOfEndings(lists ...[]Ending) (keys []run.Key) {
	for _, list := range lists {
		for _, one := range list {
			keys = append(keys, one.Held.Key)
		}
	}
	return keys
}
