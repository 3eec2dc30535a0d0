package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// A claim only ever loses its whole row: when its last fire is recorded, or when it is unfolded or divided. To unfold a claim is
// to make a live run of each of its fires that is open, which is in neither the history nor the live runs, and to
// delete the claim. Who must change a run other than by its record unfolds its claim first, and then finds a
// row. From then on the row is the fence of the run, under the same token.
//
// A record locks the claims of its tokens FOR KEY SHARE, for any number of nodes and records may do so at once, and
// inserts under that lock. Who unfolds locks them FOR UPDATE, and looks for open fires by a later statement,
// whose snapshot has what a record committed meanwhile. So of a record and an unfolding, one sees the other.
// Tokens are locked in order.

// unfoldStatements are the statements of claims that are unfolded.
type unfoldStatements struct {
	lock, lockFree, delete string // $1 tokens
	span                   string // $1 tokens
	open                   string // $1 and $2 those of within, $3 tokens
	Insert                 string // the same
	held                   string // $1 node, $2 token, 0 for any
	aged                   string // $1 node, $2 the latest claimed_at, $3 limit
	forgotten              string // $1 the latest claimed_at, $2 limit
	Dead                   string // $1 now, from $2 on: db.IDColumns, which say nothing
	Abandoned              string // $1 nodes, $2 limit
	listing                string // $1 scheduled instant, $2 trigger
}

func unfoldStatementsOf(f db.Flavor) unfoldStatements {
	const byToken = ` ORDER BY token`
	lock := `SELECT token FROM claims WHERE token` + f.In(1) + byToken
	fires := ` FROM (` + f.ClaimedFires() + `) AS f`
	// The limits keep PostgreSQL from joining whole tables: it looks for one fire after the other by its key.
	open := fires + ` WHERE f.token` + f.In(3) + `
		AND CASE WHEN EXISTS (SELECT 1 FROM live_runs AS r
				WHERE r.scheduled_at = f.scheduled_at AND r.trigger_id = f.trigger_id AND r.kind = 1 LIMIT 1 OFFSET 0) THEN FALSE
			ELSE NOT EXISTS (SELECT 1 FROM runs AS r
				WHERE r.scheduled_at = f.scheduled_at AND r.trigger_id = f.trigger_id AND r.kind = 1` + db.Within + ` LIMIT 1 OFFSET 0) END`
	return unfoldStatements{
		lock:     lock + f.LockRows(db.LockToDelete),
		lockFree: lock + f.LockRows(db.LockToDelete+db.SkipLockedRows),
		delete:   `DELETE FROM claims WHERE token` + f.In(1),
		span:     `SELECT min(f.scheduled_at), max(f.scheduled_at)` + fires + ` WHERE f.token` + f.In(1),
		open:     `SELECT ` + heldFire + open,
		Insert: `INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token, claimed_at, attempt, state)
	SELECT f.scheduled_at, f.trigger_id, 1, f.job_id, ` + AppOf("f.job_id") + `, f.revision, f.node, f.token, f.claimed_at, 1,
		'claimed'` + open + `
	ORDER BY f.scheduled_at, f.trigger_id ON CONFLICT DO NOTHING`,
		held:      `SELECT token FROM claims WHERE node = $1 AND (token = $2 OR $2 = 0) ORDER BY token + 0`,
		aged:      `SELECT token FROM claims WHERE node = $1 AND claimed_at <= $2 ORDER BY token + 0 LIMIT $3`,
		forgotten: `SELECT token FROM claims WHERE claimed_at <= $1` + byToken + ` LIMIT $2`,
		Dead:      f.Rows(1, 2, "", db.IDColumns...) + deadNodes,
		Abandoned: `SELECT token FROM claims WHERE node` + f.In(1) + ` ORDER BY token + 0 LIMIT $2`,
		listing:   `SELECT f.token` + fires + ` WHERE f.scheduled_at = $1 AND f.trigger_id = $2 ORDER BY f.token`,
	}
}

// ClaimsAtOnce is how many claims one transaction unfolds. A claim has some hundred fires at most.
const ClaimsAtOnce = 20

// unfold unfolds those of claims that are still there, and returns them and how many live runs that made. With
// skip it leaves out those that somebody else has locked.
func unfold(ctx context.Context, t *Tx, tokens []int64, skip bool) (done []int64, made int64, err error) {
	lock := t.Hot.Unfold.lock
	if skip {
		lock = t.Hot.Unfold.lockFree
	}
	done, err = db.Collect(ctx, t, db.ScanInt, lock, List(t, tokens))
	if err != nil || len(done) == 0 {
		return nil, 0, err
	}
	args, err := openArgs(ctx, t, t.Flavor, t.Hot.Unfold.span, done)
	if err != nil {
		return nil, 0, err
	}
	if made, err = t.Affect(ctx, t.Hot.Unfold.Insert, args...); err == nil {
		err = t.Exec(ctx, t.Hot.Unfold.delete, List(t, done))
	}
	return done, made, err
}

// List returns the parameter that flavor.in speaks of.
func List(t *Tx, ids []int64) any { return t.Batch(append([]int64{}, ids...))[0] }

// openArgs returns the parameters of unfoldStatements.open: the days of the fires of claims, and the claims.
func openArgs(ctx context.Context, q db.Querier, f db.Flavor, span string, tokens []int64) ([]any, error) {
	list := f.Batch(tokens)[0]
	var first, last *int64
	if _, err := db.ReadRow(ctx, q, []any{&first, &last}, span, list); err != nil || first == nil {
		return []any{int64(0), int64(0), list}, err
	}
	return []any{db.Day(*first), db.Day(*last) + db.DayMillis, list}, nil
}

// unfold is UnfoldClaims in a transaction of its own.
func (s *Store) unfold(ctx context.Context, tokens []int64, skip bool) (unfolded int, made int64, err error) {
	tokens = slices.Compact(slices.Sorted(slices.Values(tokens)))
	for some := range slices.Chunk(tokens, ClaimsAtOnce) {
		err := InParts(ctx, s.OfStored, some, func(part []int64) error {
			var done []int64
			var runs int64
			// Nothing in it depends on the time, which it need not ask the database for.
			err := s.Change(ctx, input.Change{Now: time.Unix(1, 0)}, func(ctx context.Context, t *Tx) (err error) {
				done, runs, err = unfold(ctx, t, part, skip)
				return err
			})
			if err != nil {
				return err
			}
			s.Claims.Forget(done...)
			unfolded, made = unfolded+len(done), made+runs
			return nil
		}, func(token int64, why error) error {
			done, runs, err := s.divide(ctx, token, skip, why)
			unfolded, made = unfolded+done, made+runs
			return err
		})
		if err != nil {
			return unfolded, made, fmt.Errorf("unfold %d claims: %w", len(some), err)
		}
	}
	return unfolded, made, nil
}

// claimItem names a claim that is set aside.
func claimItem(token int64) string { return "claim " + strconv.FormatInt(token, 10) }

// findClaims returns the tokens of claims that a query finds, at most so many, which is its last parameter, without those that are
// set aside.
func (s *Store) findClaims(ctx context.Context, most int, find string, args ...any) ([]int64, error) {
	aside := s.Asides.Count(dispatcher.WorkUnfold)
	tokens, err := db.Collect(ctx, s.db.Read, db.ScanInt, find, append(args, int64(most+aside))...)
	tokens = WithoutAsides(s.Asides, dispatcher.WorkUnfold, tokens, claimItem, db.WallClock())
	return tokens[:min(len(tokens), most)], err
}

// unfoldRuns unfolds the claims of those of runs that may be in one, so that they have rows.
func (s *Store) unfoldRuns(ctx context.Context, runs []run.HeldRun) error {
	var tokens []int64
	for _, run := range runs {
		if !run.Live {
			tokens = append(tokens, int64(run.Token))
		}
	}
	_, _, err := s.unfold(ctx, tokens, false)
	return err
}

// UnfoldClaims unfolds the claims that a node made longer ago than olderThan, except those of which it records
// something just now. So no claim grows old because of one slow attempt. While this process remembers all claims that
// it made, and none is that old, it sends nothing.
func (s *Store) UnfoldClaims(ctx context.Context, node run.NodeID, olderThan time.Duration, now time.Time) (int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.OrClock(ctx, now)
	if err != nil {
		return 0, err
	}
	before, begun := now.Add(-olderThan), db.WallClock()
	if !s.Claims.anyBefore(before) {
		return 0, nil
	}
	unfolded, err := s.unfoldAll(ctx, s.Hot.Unfold.aged, int64(node), before.UnixMilli())
	if err == nil {
		s.Claims.forgetBefore(before)
		s.Claims.looked(begun, olderThan)
	}
	return unfolded, err
}

// forgottenAfter is the age of claims whose nodes should have unfolded them long ago.
const forgottenAfter = time.Hour

// UnfoldForgotten unfolds the claims of whatever nodes that are so old that what was recorded of them might be
// removed from the history: it would then be taken for open. So the clean-up does this first, as after
// days without any node. left tells that somebody else has locked one of them.
func (s *Store) UnfoldForgotten(ctx context.Context, now time.Time) (left bool, err error) {
	now, err = s.db.OrClock(ctx, now)
	if err != nil {
		return false, err
	}
	before := now.Add(-forgottenAfter).UnixMilli()
	if _, err = s.unfoldAll(ctx, s.Hot.Unfold.forgotten, before); err != nil {
		return false, err
	}
	tokens, err := s.findClaims(ctx, 1, s.Hot.Unfold.forgotten, before)
	return len(tokens) > 0, err
}

// unfoldAll unfolds the claims that a query of findClaims finds, in portions, and returns how many. It leaves out those of which
// something is recorded just now.
func (s *Store) unfoldAll(ctx context.Context, find string, args ...any) (unfolded int, err error) {
	for {
		tokens, err := s.findClaims(ctx, ClaimsAtOnce, find, args...)
		done := 0
		if err == nil {
			done, _, err = s.unfold(ctx, tokens, true)
		}
		if unfolded += done; err != nil || done < ClaimsAtOnce {
			return unfolded, err
		}
	}
}

// unfoldAbandoned unfolds claims of nodes that are dead, until that has made some live runs or there are no more. It
// returns the dead nodes of which something may be left.
func (s *Store) unfoldAbandoned(ctx context.Context, enough int, now time.Time) (dead []int64, err error) {
	dead, err = db.Collect(ctx, s.db.Read, db.ScanInt, s.Hot.Unfold.Dead, append([]any{db.OrZero(now)}, s.db.Batch([]int64{0})...)...)
	// What was set aside of the claim of a living node is a claim of no node.
	if err != nil || len(dead) == 0 && s.Asides.Count(dispatcher.WorkUnfold) == 0 {
		return nil, err
	}
	of := s.db.Batch(append(dead[:len(dead):len(dead)], 0))[0]
	for {
		tokens, err := s.findClaims(ctx, ClaimsAtOnce, s.Hot.Unfold.Abandoned, of)
		if err != nil || len(tokens) == 0 {
			return dead, err
		}
		done, made, err := s.unfold(ctx, tokens, true)
		if err != nil || done == 0 || int(made) >= enough {
			return dead, err // or another node is at it
		}
	}
}

// heldInClaims returns the runs that only claims of a node hold: under a token or, if that is 0, in those that
// this process does not know.
func (s *Store) heldInClaims(ctx context.Context, node run.NodeID, token run.Token) ([]run.HeldRun, error) {
	tokens, err := db.Collect(ctx, s.db.Read, db.ScanInt, s.Hot.Unfold.held, int64(node), int64(token))
	if token == 0 {
		tokens = slices.DeleteFunc(tokens, func(t int64) bool { return s.Claims.knows(run.Token(t)) })
	}
	if err != nil || len(tokens) == 0 {
		return nil, err
	}
	args, err := openArgs(ctx, s.db.Read, s.db.Flavor, s.Hot.Unfold.span, tokens)
	if err != nil {
		return nil, err
	}
	held, err := db.Collect(ctx, s.db.Read, newHeldRow(0).scan, s.Hot.Unfold.open, args...)
	if err == nil && token != 0 {
		s.Claims.add(held, true)
	}
	return held, err
}

// A claim that cannot be unfolded as a whole is divided: its fires that can be live runs become such, under its token. Each other fire
// gets a claim of its own, under a token that no node has, and that is set aside. The row of the old claim goes in the same transaction,
// for it is the fence of all its fires. A new claim is one of the node, if that is dead, or else of none: what a living node records of
// such a fire is a late result, and the fire is attempted again once it can have its row.

// divide unfolds what can be unfolded of a claim that cannot be as a whole, and sets the other fires aside.
func (s *Store) divide(ctx context.Context, token int64, skip bool, why error) (unfolded int, made int64, err error) {
	var bad []run.HeldRun
	err = s.Change(ctx, input.Change{Now: time.Unix(1, 0)}, func(ctx context.Context, t *Tx) (err error) {
		unfolded, made, bad, err = s.divideIn(ctx, t, token, skip)
		return err
	})
	switch {
	case s.OfStored(ctx, err):
		return 0, 0, s.SetAside(ctx, AsideRow{Work: dispatcher.WorkUnfold, Item: claimItem(token)}, why, time.Time{})
	case err != nil:
		return 0, 0, err
	case unfolded > 0:
		s.Claims.Forget(token)
	}
	for _, fire := range bad {
		row := AsideRow{Work: dispatcher.WorkUnfold, Item: claimItem(int64(fire.Token)), Job: fire.JobID}
		if err := s.SetAside(ctx, row, why, time.Time{}); err != nil {
			return unfolded, made, err
		}
	}
	return unfolded, made, nil
}

// divideIn is divide in a transaction. It returns the fires that cannot be live runs, under the tokens of their claims. A claim of one fire
// stays.
func (s *Store) divideIn(ctx context.Context, t *Tx, token int64, skip bool) (unfolded int, made int64, bad []run.HeldRun, err error) {
	lock := t.Hot.Unfold.lock
	if skip {
		lock = t.Hot.Unfold.lockFree
	}
	found, err := db.Collect(ctx, t, db.ScanInt, lock, List(t, []int64{token}))
	if err != nil || len(found) == 0 {
		return 0, 0, nil, err
	}
	args, err := openArgs(ctx, t, t.Flavor, t.Hot.Unfold.span, found)
	if err != nil {
		return 0, 0, nil, err
	}
	open, err := db.Collect(ctx, t, newHeldRow(0).scan, t.Hot.Unfold.open, args...)
	if err != nil || len(open) == 1 {
		return 0, 0, open, err
	}
	for _, fire := range db.SortedBy(open, db.HeldKey) {
		err := s.unfoldFire(ctx, t, fire)
		if s.OfStored(ctx, err) {
			fire.Token = run.Token(rand.Int64N(1<<63-1) + 1)
			bad, err = append(bad, fire), claimFire(ctx, t, token, fire)
		} else {
			made++
		}
		if err != nil {
			return 0, 0, nil, fmt.Errorf("divide claim %d: %w", token, err)
		}
	}
	err = t.Exec(ctx, t.Hot.Unfold.delete, List(t, found))
	return 1, made, bad, err
}

// unfoldFire makes a live run of a fire of a claim. If that fails for what is stored, the transaction goes on without it.
func (s *Store) unfoldFire(ctx context.Context, t *Tx, fire run.HeldRun) error {
	// $1 scheduled instant, $2 trigger, $3 job, $4 revision, $5 claim
	insert := `INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token, claimed_at, attempt, state)
		SELECT $1, $2, 1, $3, ` + AppOf("$3") + `, $4, c.node, c.token, c.claimed_at, 1, 'claimed' FROM claims AS c WHERE c.token = $5
		ON CONFLICT DO NOTHING`
	if err := t.Exec(ctx, `SAVEPOINT fire`); err != nil {
		return err
	}
	err := t.Exec(ctx, insert, fire.ScheduledAt.UnixMilli(), fire.TriggerID, fire.JobID, fire.Revision, int64(fire.Token))
	if s.OfStored(ctx, err) {
		if back := t.Exec(ctx, `ROLLBACK TO SAVEPOINT fire`); back != nil {
			return back
		}
	}
	return err
}

// claimFire makes a claim of a fire of another one.
func claimFire(ctx context.Context, t *Tx, of int64, fire run.HeldRun) error {
	// $1 token, $2 trigger, $3 scheduled instant, $4 job, $5 revision, $6 the other claim
	insert := `INSERT INTO claims (token, node, claimed_at, ` + t.ClaimColumns() + `)
		SELECT $1, min(c.node), min(c.claimed_at), ` + t.ClaimValues() + ` FROM (SELECT CAST($2 AS BIGINT) AS id,
			CAST($3 AS BIGINT) AS run_at, CAST($4 AS BIGINT) AS job_id, CAST($5 AS BIGINT) AS revision, c.claimed_at,
			CASE WHEN EXISTS (SELECT 1 FROM nodes AS o WHERE o.id = c.node AND o.state <> 'dead') THEN 0 ELSE c.node END AS node
			FROM claims AS c WHERE c.token = $6) AS c`
	return t.Exec(ctx, insert, int64(fire.Token), fire.TriggerID, fire.ScheduledAt.UnixMilli(), fire.JobID, fire.Revision, of)
}

// unfoldOrDivide unfolds claims in a transaction, or else divides each as divide does, and returns those that may be gone.
func (s *Store) unfoldOrDivide(ctx context.Context, t *Tx, tokens []int64) (gone []int64, err error) {
	_, err = db.Collect(ctx, t, db.ScanInt, t.Hot.Unfold.lock, List(t, tokens)) // a lock from after the savepoint would go with it
	if err == nil {
		err = t.Exec(ctx, `SAVEPOINT claims`)
	}
	if err == nil {
		gone, _, err = unfold(ctx, t, tokens, false)
	}
	if !s.OfStored(ctx, err) {
		return gone, err
	}
	why := err
	err = t.Exec(ctx, `ROLLBACK TO SAVEPOINT claims`)
	for _, token := range tokens {
		var bad []run.HeldRun
		if err == nil {
			_, _, bad, err = s.divideIn(ctx, t, token, false)
		}
		for _, fire := range bad {
			row := AsideRow{Work: dispatcher.WorkUnfold, Item: claimItem(int64(fire.Token)), Job: fire.JobID}
			shown, fresh := dispatcher.SetAside{Work: row.Work, Item: row.Item, Problem: ProblemOf(why)}, false
			if fresh, err = setAside(ctx, t, row, &shown); err != nil {
				return nil, err
			}
			if s.Asides.remember(row.Work, row.Item, shown.TryAt); fresh {
				s.Asides.Report(ctx, shown)
			}
		}
	}
	return tokens, err
}

// EndClaimed ends a fire that only a claim of its own lists, as cancelled. Nobody records anything of it meanwhile: LockRun has locked
// the claim.
func EndClaimed(ctx context.Context, t *Tx, id string, class run.Class, why string) error {
	key, err := run.ParseKey(id)
	if err != nil {
		return err
	}
	// $1 now, $2 scheduled instant, $3 trigger, $4 class, $5 why
	chosen := `WITH c AS (SELECT` + ChosenEnd(End{State: `'cancelled'`, Class: `CAST($4 AS TEXT)`, Message: `CAST($5 AS TEXT)`}) + `,
		CASE WHEN r.node > 0 THEN 1 ELSE 0 END AS attempted
		FROM (SELECT CAST($1 AS BIGINT) AS now) AS n CROSS JOIN (` + ClaimedRuns(t.Flavor, "", ` AND o.scheduled_at = $2`) + `) AS r
		WHERE r.scheduled_at = $2 AND r.trigger_id = $3)`
	args := []any{t.At.UnixMilli(), key.ScheduledAt.UnixMilli(), key.TriggerID, string(class), why}
	for _, step := range []string{noteEnd, insertCancelled, insertEnded(` WHERE 1 = 1 ON CONFLICT DO NOTHING`)} {
		if err := t.Exec(ctx, chosen+step, args...); err != nil {
			return fmt.Errorf("end run %s of a claim: %w", key, err)
		}
	}
	tokens, err := db.Collect(ctx, t, db.ScanInt, t.Hot.Unfold.listing, KeyArgs(key)[:2]...)
	if err == nil {
		tokens, _, err = unfold(ctx, t, tokens, false) // nothing in them is open
	}
	for _, token := range tokens {
		t.Notify(dispatcher.Notification{Run: id, Token: run.Token(token), Attempt: 1})
		if err == nil { // $1 item
			err = t.Exec(ctx, `DELETE FROM set_aside WHERE work = 'unfold' AND item = $1`, claimItem(token))
		}
	}
	return err
}

// endAsideClaims ends the fires of a job whose claims are set aside. The job is deleted.
func endAsideClaims(ctx context.Context, t *Tx, job int64) error {
	// $1 job
	list := `SELECT f.scheduled_at, f.trigger_id, 1 FROM (` + t.ClaimedFires() + `) AS f WHERE f.job_id = $1
		AND 'claim ' || f.token IN (SELECT item FROM set_aside WHERE work = 'unfold' AND job_id = $1)`
	fires, err := db.Collect(ctx, t, ScanRunKey, list, job)
	for _, key := range fires {
		if err == nil {
			err = EndClaimed(ctx, t, key.String(), run.ClassJobDeleted, "the job was deleted")
		}
	}
	return err
}
