package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// claimedTogether claims a fire of each app in one claim. The fire of evil cannot be written to the live runs.
func (r *batchRig) claimedTogether() {
	r.Helper()
	r.firing("rate(1m)", nil)
	held, err := r.Claim(r.Context(), dispatcher.ClaimBatch{Node: batchNode, Token: batchToken, Lead: time.Hour, Now: r.now,
		Advances: r.advances(false)})
	must(r.T, err)
	r.keep(held)
	r.refuse("INSERT", "live_runs", "ROW.job_id = %d", r.job("evil"))
}

// keep notes the keys of runs.
func (r *batchRig) keep(held []run.HeldRun) {
	for _, one := range held {
		for _, app := range []string{"evil", "victim"} {
			if one.JobID == r.job(app) {
				r.keys[app] = one.Key
			}
		}
	}
}

// nodeDies makes another node find the claiming node dead.
func (r *batchRig) nodeDies() {
	r.Helper()
	r.exec(`UPDATE nodes SET state = 'dead' WHERE id = %d`, batchNode)
	must(r.T, r.Register(r.Context(), dispatcher.Node{ID: batchNode + 1, Name: "n", Version: "v"}, r.now))
}

// unfolded reports whether the fire of victim has its own row under the token of its claim.
func (r *batchRig) unfolded() bool {
	return r.count(`SELECT count(*) FROM live_runs WHERE job_id = %d AND token = %d`, r.job("victim"), batchToken) == 1
}

// claimBatches are the batches of claims with a bad fire. The other fires of the claim continue.
func claimBatches() []poisonedBatch {
	return []poisonedBatch{
		{
			name: "unfold: one fire of a dead node's claim cannot be written", methods: []string{"Adoptable"}, work: dispatcher.WorkUnfold,
			poison: func(r *batchRig) {
				r.claimedTogether()
				r.nodeDies()
			},
			call: func(r *batchRig) error {
				_, err := r.Adoptable(r.Context(), dispatcher.AdoptQuery{Node: batchNode + 1, Token: 1, Limit: 10, Now: r.now})
				return err
			},
			goesOn: (*batchRig).unfolded,
		},
		{
			name: "unfold: one fire of an old claim cannot be written", methods: []string{"UnfoldClaims"}, work: dispatcher.WorkUnfold,
			poison: (*batchRig).claimedTogether,
			call: func(r *batchRig) error {
				_, err := r.UnfoldClaims(r.Context(), batchNode, time.Minute, r.now.Add(time.Hour))
				return err
			},
			goesOn: (*batchRig).unfolded,
		},
		{
			name: "purge: one fire of a forgotten claim cannot be written", methods: []string{"Purge"}, work: dispatcher.WorkUnfold,
			poison: (*batchRig).claimedTogether,
			call: func(r *batchRig) error {
				_, err := r.Purge(r.Context(), batchNode, r.now.Add(3*time.Hour))
				return err
			},
			goesOn: (*batchRig).unfolded,
		},
		{
			name: "rollback: one fire of a claim cannot be written", methods: []string{"SkipRolledBack"}, work: dispatcher.WorkUnfold,
			poison: func(r *batchRig) {
				r.claimedTogether()
				later := input.Change{Now: r.now.Add(10 * time.Minute)}
				_, err := r.DeclareRollback(r.Context(), "test", later)
				must(r.T, err)
				_, err = r.ResolveRollback(r.Context(), dispatcher.RollbackSkip, later)
				must(r.T, err)
			},
			call: func(r *batchRig) error {
				_, err := r.SkipRolledBack(r.Context(), 0, 10, r.now.Add(20*time.Minute))
				return err
			},
			goesOn: func(r *batchRig) bool { return r.state("victim") == run.Lost },
		},
	}
}

// A run can be cancelled although another run of its claim cannot get its own row.
func TestRunsAreCancelledNextToABadFire(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newBatchRig(t, database)
		r.claimedTogether()
		_, err := r.CancelRun(t.Context(), r.keys["victim"].String(), r.change())
		must(t, err)
		if state := r.state("victim"); state != run.Cancelled {
			t.Errorf("the cancelled run is %s", state)
		}
		if aside := r.aside(dispatcher.WorkUnfold); len(aside) != 1 || aside[0].App != "evil" || r.counted(dispatcher.WorkUnfold) != 1 {
			t.Errorf("attention shows %+v, want the fire of evil", aside)
		}
	})
}

// A fire that was set aside is found once its row can be written, even if its node, which lacks the new claim, lives.
func TestFireSetAsideIsAdopted(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{true, false} {
		t.Run(fmt.Sprint("node dies: ", dies), func(t *testing.T) {
			t.Parallel()
			onBothDatabases(t, func(t *testing.T, database string) {
				r := newBatchRig(t, database)
				r.claimedTogether()
				adopt := func(s *store.Store, want string) {
					t.Helper()
					query := dispatcher.AdoptQuery{Node: batchNode + 1, Token: 1, Limit: 10, Now: r.now}
					found, err := s.Adoptable(t.Context(), query)
					must(t, err)
					held, err := s.Adopt(t.Context(), query, found)
					must(t, err)
					if !slices.ContainsFunc(held, func(one run.HeldRun) bool { return one.JobID == r.job(want) }) {
						t.Fatalf("adopted %+v, want the run of %s", held, want)
					}
				}
				if dies {
					r.nodeDies()
					adopt(r.Store, "victim")
				} else {
					_, err := r.UnfoldClaims(t.Context(), batchNode, time.Minute, r.now.Add(time.Hour))
					must(t, err)
					held, err := r.Held(t.Context(), batchNode, 0)
					must(t, err)
					if len(held) != 1 || held[0].JobID != r.job("victim") || held[0].Token != batchToken {
						t.Errorf("the node holds %+v, want the run of victim under its token", held)
					}
				}
				on := map[bool]string{true: " ON live_runs"}[r.postgres]
				r.exec(`DROP TRIGGER refuse_1%s`, on)
				must(t, r.Close())
				later := openAs(t, database, store.Options{}) // remembers no fires set aside
				if !dies {                                    // SQLite has one node, so the other one is dead by then
					must(t, later.Register(t.Context(), dispatcher.Node{ID: batchNode + 1, Name: "other", Version: "v"}, r.now))
				}
				_, err := later.Purge(t.Context(), batchNode+1, r.now.Add(3*time.Hour))
				must(t, err)
				adopt(later, "evil")
			})
		})
	}
}
