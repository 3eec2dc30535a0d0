package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// A claim always loses its whole row at once: when its last fire is recorded, or when it is unfolded or divided.
// Unfolding a claim makes a live run of each of its open fires, which are in neither the history nor the live runs, and
// deletes the claim. Any change of a run other than its record unfolds its claim first, and then finds a row. From then
// on the row is the fence of the run, under the same token.
//
// A record locks the claims of its tokens FOR KEY SHARE, which any number of nodes and records may do at once, and
// inserts under that lock. Unfolding locks them FOR UPDATE, and searches for open fires in a later statement, whose
// snapshot includes records committed meanwhile. So of a record and an unfolding, one sees the other. Tokens are locked
// in order.

// unfoldStatements are the statements for unfolding claims.
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
	// The limits keep PostgreSQL from joining whole tables: it looks up one fire after the other by its key.
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

// ClaimsAtOnce is how many claims one transaction unfolds. A claim has at most some hundred fires.
const ClaimsAtOnce = 20

// unfold unfolds the claims that still exist, and returns them and the number of new live runs. With skip it leaves out
// claims locked by others.
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

// List returns the parameter of Flavor.In.
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

// unfold is UnfoldClaims in its own transaction.
func (s *Store) unfold(ctx context.Context, tokens []int64, skip bool) (unfolded int, made int64, err error) {
	tokens = slices.Compact(slices.Sorted(slices.Values(tokens)))
	for some := range slices.Chunk(tokens, ClaimsAtOnce) {
		err := InParts(ctx, s.OfStored, some, func(part []int64) error {
			var done []int64
			var runs int64
			// The transaction does not depend on the time, so it need not ask the database for it.
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

// findClaims returns the tokens of claims found by a query, at most as many as its last parameter, without those that
// are set aside.
func (s *Store) findClaims(ctx context.Context, most int, find string, args ...any) ([]int64, error) {
	aside := s.Asides.Count(dispatcher.WorkUnfold)
	tokens, err := db.Collect(ctx, s.db.Read, db.ScanInt, find, append(args, int64(most+aside))...)
	tokens = WithoutAsides(s.Asides, dispatcher.WorkUnfold, tokens, claimItem, db.WallClock())
	return tokens[:min(len(tokens), most)], err
}

// unfoldRuns unfolds the claims of the runs that may be in one, so that they have rows.
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

// UnfoldClaims unfolds claims of a node older than olderThan, except those that it is recording at this moment. So no
// claim grows old because of one slow attempt. While this process remembers all its claims, and none is that old, it
// sends no statement.
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

// forgottenAfter is the age of claims that their nodes should have unfolded long ago.
const forgottenAfter = time.Hour

// UnfoldForgotten unfolds old claims of all nodes before the history loses their records: otherwise their fires would
// count as open. So the clean-up calls it first, which matters after days without any node. left means that another
// transaction has locked one of them.
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

// unfoldAll unfolds the claims found by a query of findClaims, in portions, and returns how many. It leaves out claims
// that are being recorded.
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

// unfoldAbandoned unfolds claims of dead nodes until it has made enough live runs or no claims are left. It returns the
// dead nodes that may still have rows.
func (s *Store) unfoldAbandoned(ctx context.Context, enough int, now time.Time) (dead []int64, err error) {
	dead, err = db.Collect(ctx, s.db.Read, db.ScanInt, s.Hot.Unfold.Dead, append([]any{db.OrZero(now)}, s.db.Batch([]int64{0})...)...)
	// Fires set aside from the claim of a living node are in claims of no node.
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
			return dead, err // or another node is working on them
		}
	}
}

// heldInClaims returns the runs that only claims of a node hold: under a token or, if it is 0, in claims unknown to
// this process.
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

// A claim that cannot be unfolded as a whole is divided: its fires that can be live runs become such, under its token.
// Each other fire gets its own claim, under a token of no node, which is set aside. The same transaction deletes the
// old claim, which is the fence of all its fires. A new claim belongs to the node if that is dead, or else to no node:
// a record by a living node is then a late result, and the fire is attempted again once it can have a row.

// divide unfolds the fires of a claim that can be live runs, and sets the other fires aside.
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

// divideIn is divide in a transaction. It returns the fires that cannot be live runs, under the tokens of their claims.
// A claim of one fire stays.
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
			fire.Token = fire.Token.Divided(fire.Key)
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

// unfoldFire makes a live run of a fire of a claim. If stored data makes it fail, the transaction continues without it.
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

func claimFire(ctx context.Context, t *Tx, of int64, fire run.HeldRun) error {
	// $1 token, $2 trigger, $3 scheduled instant, $4 job, $5 revision, $6 the other claim
	insert := `INSERT INTO claims (token, node, claimed_at, ` + t.ClaimColumns() + `)
		SELECT $1, min(c.node), min(c.claimed_at), ` + t.ClaimValues() + ` FROM (SELECT CAST($2 AS BIGINT) AS id,
			CAST($3 AS BIGINT) AS run_at, CAST($4 AS BIGINT) AS job_id, CAST($5 AS BIGINT) AS revision, c.claimed_at,
			CASE WHEN EXISTS (SELECT 1 FROM nodes AS o WHERE o.id = c.node AND o.state <> 'dead') THEN 0 ELSE c.node END AS node
			FROM claims AS c WHERE c.token = $6) AS c`
	return t.Exec(ctx, insert, int64(fire.Token), fire.TriggerID, fire.ScheduledAt.UnixMilli(), fire.JobID, fire.Revision, of)
}

// unfoldOrDivide unfolds claims in a transaction, or divides each as divide does, and returns the claims to forget.
func (s *Store) unfoldOrDivide(ctx context.Context, t *Tx, tokens []int64) (gone []int64, err error) {
	_, err = db.Collect(ctx, t, db.ScanInt, t.Hot.Unfold.lock, List(t, tokens)) // the rollback below keeps this lock
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

// EndClaimed cancels a fire that only its own claim lists. No record comes in between: LockRun has locked the claim.
func EndClaimed(ctx context.Context, t *Tx, id string, class run.Class, why string) error {
	key, err := run.ParseKey(id)
	if err != nil {
		return err
	}
	// $1 now, $2 scheduled instant, $3 trigger, $4 class, $5 why
	chosen := `WITH c AS (SELECT` + ChosenEnd(End{State: `'cancelled'`, Class: `CAST($4 AS TEXT)`, Message: `CAST($5 AS TEXT)`}) + `,
		1 AS attempted
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
		tokens, _, err = unfold(ctx, t, tokens, false) // they have no open fires
	}
	for _, token := range tokens {
		t.Notify(dispatcher.Notification{Run: id, Token: run.Token(token), Attempt: 1})
		if err == nil { // $1 item
			err = t.Exec(ctx, `DELETE FROM set_aside WHERE work = 'unfold' AND item = $1`, claimItem(token))
		}
	}
	return err
}

// endAsideClaims ends the fires of a deleted job in claims that are set aside.
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
