package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// openClaims are the claims of this process with their unrecorded fires. From them it
// knows, without a query, which fires it may record by their claim, and which record is the last of a claim
// and deletes it.
//
// They are only a memory of the database. After a record with unknown outcome, or one that the database stored only in
// part, the process forgets its claims. It also does so with partly recorded claims on a new connection: that may lead
// to a server that lost these records, and deleting the claim would lose the fires. A record for a forgotten claim
// unfolds it first, and a claim that is never deleted is unfolded after a while.
type openClaims struct {
	mu     sync.Mutex
	claims map[run.Token]*openClaim
	doubt  time.Time // when the database last may have got a claim missing from claims; local; zero: never
}

type openClaim struct {
	at    time.Time
	fires map[int64]int64 // scheduled times, by trigger
	// partial means that the claim has other fires, which are recorded.
	partial bool
	ends    bool // its last record is in progress and deletes it
}

func newOpenClaims() *openClaims {
	return &openClaims{claims: map[run.Token]*openClaim{}, doubt: db.WallClock()}
}

// doubted notes that the database may have a claim that is not remembered.
func (o *openClaims) doubted() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.doubt = db.WallClock()
}

// looked notes that claims of an age were searched for at a local time, and unfolded. A claim with a lost response may
// commit as late as a statement may run, and is found when it reaches the age.
func (o *openClaims) looked(at time.Time, age time.Duration) {
	const late = 2 * time.Minute
	o.mu.Lock()
	defer o.mu.Unlock()
	if at.Sub(o.doubt) >= age+late {
		o.doubt = time.Time{}
	}
}

// anyBefore reports whether the database may have claims of this process up to a time.
func (o *openClaims) anyBefore(at time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.doubt.IsZero() {
		return true
	}
	for _, claim := range o.claims {
		if !claim.at.After(at) {
			return true
		}
	}
	return false
}

// add notes the fires of claims among won runs. partial means that the claims may have other fires.
func (o *openClaims) add(held []run.HeldRun, partial bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, run := range held {
		if run.Live {
			continue
		}
		claim := o.claims[run.Token]
		if claim == nil {
			claim = &openClaim{at: run.ClaimedAt, fires: make(map[int64]int64, len(held)), partial: partial}
			o.claims[run.Token] = claim
		}
		claim.fires[run.TriggerID] = run.ScheduledAt.UnixMilli()
	}
}

// knows reports whether a claim is remembered.
func (o *openClaims) knows(token run.Token) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.claims[token] != nil
}

func (o *openClaims) Forget(tokens ...int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(tokens) > 0 {
		o.doubt = db.WallClock()
	}
	for _, token := range tokens {
		delete(o.claims, run.Token(token))
	}
}

func (o *openClaims) forgetPartial() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for token, claim := range o.claims {
		if claim.partial {
			delete(o.claims, token)
			o.doubt = db.WallClock()
		}
	}
}

// forgetBefore forgets the claims up to a time, which have been unfolded.
func (o *openClaims) forgetBefore(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.claims, func(_ run.Token, claim *openClaim) bool { return !claim.at.After(at) })
}

// split divides records into those of open fires and others. A fire that occurs twice is in both.
func (o *openClaims) split(records []dispatcher.Record) (open, others []dispatcher.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	isOpen := func(i int) bool {
		r := &records[i]
		twice := i > 0 && records[i-1].Key == r.Key
		return r.Kind == run.KindSchedule && r.Shard == 0 && r.Attempt == 1 && !twice && o.isOpen(r)
	}
	all := 0 // number of open fires, mostly all
	for all < len(records) && isOpen(all) {
		all++
	}
	open = records[:all:all]
	for i := all; i < len(records); i++ {
		if isOpen(i) {
			open = append(open, records[i])
		} else {
			others = append(others, records[i])
		}
	}
	return open, others
}

func (o *openClaims) isOpen(r *dispatcher.Record) bool {
	claim := o.claims[r.Token]
	if claim == nil {
		return false
	}
	at, open := claim.fires[r.TriggerID]
	return open && at == r.ScheduledAt.UnixMilli()
}

// tokens returns the claims of open fires in order: those that have further open fires, which stay, and those that
// their record deletes.
func (o *openClaims) tokens(records []dispatcher.Record) (stay, closed []int64) {
	count := map[run.Token]int{}
	for _, r := range records {
		count[r.Token]++
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for token, recorded := range count {
		if claim := o.claims[token]; claim != nil && len(claim.fires) == recorded {
			closed, claim.ends = append(closed, int64(token)), true
		} else {
			stay = append(stay, int64(token))
		}
	}
	slices.Sort(stay)
	slices.Sort(closed)
	return stay, closed
}

func (o *openClaims) recorded(records []dispatcher.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range records {
		claim := o.claims[r.Token]
		if claim == nil {
			continue
		}
		claim.partial = true
		if delete(claim.fires, r.TriggerID); len(claim.fires) == 0 {
			delete(o.claims, r.Token)
			if !claim.ends { // two simultaneous records, neither of which was the last
				o.doubt = db.WallClock()
			}
		}
	}
}

// LockRun locks the row of a run, in the order in which a run moves: a claim that lists it is unfolded or divided, then
// the run is among the live runs or in the history. It returns the job of the run; 0: the run does not exist, or it
// stays in its own claim, which is locked, because it cannot have a row.
func (s *Store) LockRun(ctx context.Context, t *Tx, key run.Key) (job int64, unfolded []int64, err error) {
	if key.Shard > 0 { // whatever ends the parent reads its shards under this lock
		if _, _, err := s.LockRun(ctx, t, key.Parent()); err != nil {
			return 0, nil, err
		}
	}
	args := KeyArgs(key)
	if key.Kind == run.KindSchedule && key.Shard == 0 {
		tokens, err := db.Collect(ctx, t, db.ScanInt, t.Hot.Unfold.listing, args[:2]...)
		if err == nil && len(tokens) > 0 {
			unfolded, err = s.unfoldOrDivide(ctx, t, tokens)
		}
		if err != nil {
			return 0, nil, err
		}
	}
	for _, table := range []string{"live_runs", "runs"} {
		// $1 scheduled instant, $2 trigger, $3 kind
		lock := `SELECT job_id FROM ` + table + ` WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3` + t.ForUpdate()
		if job, found, err := db.First(ctx, t, db.ScanInt, lock, args...); err != nil || found {
			return job, unfolded, err
		}
	}
	return 0, unfolded, nil
}

// ClaimedRuns selects the runs that only a claim holds. Claims are few and young, so the look-ups in the history are,
// too. A condition on the fires f and the rows o that are looked up limits the days: PostgreSQL locks and plans each
// day that it cannot rule out. The limits keep it from joining whole days.
func ClaimedRuns(f db.Flavor, of, lookedUp string) string {
	const (
		found = ` AS o WHERE o.scheduled_at = f.scheduled_at AND o.trigger_id = f.trigger_id AND o.kind = 1`
		one   = ` LIMIT 1 OFFSET 0)`
	)
	return `SELECT f.scheduled_at, f.trigger_id, CAST(1 AS SMALLINT) AS kind, f.job_id, f.revision, 'claimed' AS state,
		1 AS attempt, f.node, f.claimed_at, CAST(NULL AS BIGINT) AS started_at, CAST(NULL AS BIGINT) AS ended_at,
		CAST(NULL AS BIGINT) AS next_attempt_at, CAST(0 AS SMALLINT) AS http_status, '' AS class, '' AS error, '' AS waits_for,
		'' AS waits_at, CAST(NULL AS BIGINT) AS probe_at, CAST(NULL AS TEXT) AS callback, '' AS waited
		FROM (` + f.ClaimedFires() + `) AS f
		WHERE NOT EXISTS (SELECT 1 FROM runs` + found + lookedUp + one + `
			AND NOT EXISTS (SELECT 1 FROM live_runs` + found + one + of
}

// AnyClaim selects the ClaimedRuns of all claims, whatever their days.
func AnyClaim(f db.Flavor) string { return ClaimedRuns(f, "", "") }
