package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// A claim that cannot be unfolded as a whole is divided: its fires that can be live runs become such, under its token. Each other fire
// gets a claim of its own, under a token that no node has, and that is set aside. The row of the old claim goes in the same transaction,
// for it is the fence of all its fires. A new claim is one of the node, if that is dead, or else of none: what a living node records of
// such a fire is a late result, and the fire is attempted again once it can have its row.

// divide unfolds what can be unfolded of a claim that cannot be as a whole, and sets the other fires aside.
func (s *Store) divide(ctx context.Context, token int64, skip bool, why error) (unfolded int, made int64, err error) {
	var bad []run.HeldRun
	err = s.change(ctx, input.Change{Now: time.Unix(1, 0)}, func(ctx context.Context, t *tx) (err error) {
		unfolded, made, bad, err = s.divideIn(ctx, t, token, skip)
		return err
	})
	switch {
	case s.ofStored(ctx, err):
		return 0, 0, s.setAside(ctx, asideRow{work: dispatcher.WorkUnfold, item: claimItem(token)}, why, time.Time{})
	case err != nil:
		return 0, 0, err
	case unfolded > 0:
		s.claims.forget(token)
	}
	for _, fire := range bad {
		row := asideRow{work: dispatcher.WorkUnfold, item: claimItem(int64(fire.Token)), job: fire.JobID}
		if err := s.setAside(ctx, row, why, time.Time{}); err != nil {
			return unfolded, made, err
		}
	}
	return unfolded, made, nil
}

// divideIn is divide in a transaction. It returns the fires that cannot be live runs, under the tokens of their claims. A claim of one fire
// stays.
func (s *Store) divideIn(ctx context.Context, t *tx, token int64, skip bool) (unfolded int, made int64, bad []run.HeldRun, err error) {
	lock := t.hot.unfold.lock
	if skip {
		lock = t.hot.unfold.lockFree
	}
	found, err := db.Collect(ctx, t, db.ScanInt, lock, list(t, []int64{token}))
	if err != nil || len(found) == 0 {
		return 0, 0, nil, err
	}
	args, err := openArgs(ctx, t, t.Flavor, t.hot.unfold.span, found)
	if err != nil {
		return 0, 0, nil, err
	}
	open, err := db.Collect(ctx, t, newHeldRow(0).scan, t.hot.unfold.open, args...)
	if err != nil || len(open) == 1 {
		return 0, 0, open, err
	}
	for _, fire := range db.SortedBy(open, db.HeldKey) {
		err := s.unfoldFire(ctx, t, fire)
		if s.ofStored(ctx, err) {
			fire.Token = run.Token(rand.Int64N(1<<63-1) + 1)
			bad, err = append(bad, fire), claimFire(ctx, t, token, fire)
		} else {
			made++
		}
		if err != nil {
			return 0, 0, nil, fmt.Errorf("divide claim %d: %w", token, err)
		}
	}
	_, err = t.ExecContext(ctx, t.hot.unfold.delete, list(t, found))
	return 1, made, bad, err
}

// unfoldFire makes a live run of a fire of a claim. If that fails for what is stored, the transaction goes on without it.
func (s *Store) unfoldFire(ctx context.Context, t *tx, fire run.HeldRun) error {
	// $1 scheduled instant, $2 trigger, $3 job, $4 revision, $5 claim
	insert := `INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token, claimed_at, attempt, state)
		SELECT $1, $2, 1, $3, ` + appOf("$3") + `, $4, c.node, c.token, c.claimed_at, 1, 'claimed' FROM claims AS c WHERE c.token = $5
		ON CONFLICT DO NOTHING`
	if _, err := t.ExecContext(ctx, `SAVEPOINT fire`); err != nil {
		return err
	}
	_, err := t.ExecContext(ctx, insert, fire.ScheduledAt.UnixMilli(), fire.TriggerID, fire.JobID, fire.Revision, int64(fire.Token))
	if s.ofStored(ctx, err) {
		if _, back := t.ExecContext(ctx, `ROLLBACK TO SAVEPOINT fire`); back != nil {
			return back
		}
	}
	return err
}

// claimFire makes a claim of a fire of another one.
func claimFire(ctx context.Context, t *tx, of int64, fire run.HeldRun) error {
	// $1 token, $2 trigger, $3 scheduled instant, $4 job, $5 revision, $6 the other claim
	insert := `INSERT INTO claims (token, node, claimed_at, ` + t.ClaimColumns() + `)
		SELECT $1, min(c.node), min(c.claimed_at), ` + t.ClaimValues() + ` FROM (SELECT CAST($2 AS BIGINT) AS id,
			CAST($3 AS BIGINT) AS run_at, CAST($4 AS BIGINT) AS job_id, CAST($5 AS BIGINT) AS revision, c.claimed_at,
			CASE WHEN EXISTS (SELECT 1 FROM nodes AS o WHERE o.id = c.node AND o.state <> 'dead') THEN 0 ELSE c.node END AS node
			FROM claims AS c WHERE c.token = $6) AS c`
	_, err := t.ExecContext(ctx, insert, int64(fire.Token), fire.TriggerID, fire.ScheduledAt.UnixMilli(), fire.JobID, fire.Revision, of)
	return err
}

// divideClaimOf divides the claims that list a run, which cannot be unfolded, and reports whether that made rows of some fires.
func (s *Store) divideClaimOf(ctx context.Context, id string, why error) bool {
	key, err := run.ParseKey(id)
	if err != nil || key.Kind != run.KindSchedule {
		return false
	}
	tokens, err := db.Collect(ctx, s.Read, db.ScanInt, s.hot.unfold.listing, keyArgs(key)[:2]...)
	divided := false
	for _, token := range tokens {
		if err == nil {
			var made int64
			_, made, err = s.divide(ctx, token, false, why)
			divided = divided || made > 0
		}
	}
	return divided
}
