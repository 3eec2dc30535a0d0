package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// Runs move from a claim to the live runs and to the history while somebody lists them, page by page: each is listed once,
// wherever it is.
func TestRunsAreListedOnceWhileTheyMove(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		const triggers, rounds = 12, 6
		s := ownClaims(t, database, triggers)
		var known sync.Map // runs that are stored, by id
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			for round := range rounds {
				held := claimDue(t, s, claimer, run.Token(100+round))
				for _, run := range held {
					known.Store(run.Key, true)
				}
				move(t, s, held, run.Token(1000+round))
			}
		}()
		for lists, moving := 0, true; moving || lists < 2; lists++ {
			select {
			case <-moved:
				moving = false
			default:
			}
			var want []run.Key
			known.Range(func(key, _ any) bool {
				want = append(want, key.(run.Key))
				return true
			})
			for what, list := range map[string]func(*testing.T, *store.Store) map[run.Key]int{
				"runs of the app": listRuns(dispatcher.RunQuery{App: "app"}), "runs of the job": listRuns(dispatcher.RunQuery{App: "app", Job: "job"}),
				"fires": listFires,
			} {
				listed := list(t, s)
				for _, key := range want {
					if listed[key] == 0 {
						t.Errorf("list %d of %s lacks run %s, which is stored", lists, what, key)
					}
				}
				for key, n := range listed {
					if n > 1 {
						t.Errorf("list %d of %s has run %s %d times", lists, what, key, n)
					}
				}
			}
			if !moving && len(want) != triggers*rounds {
				t.Errorf("%d runs were stored, want %d", len(want), triggers*rounds)
			}
		}
	})
}

// move ends some runs by their claim, unfolds it, and ends the others as live runs, some of them after another attempt.
func move(t *testing.T, s *store.Store, held []run.HeldRun, token run.Token) {
	ctx, third := context.WithoutCancel(t.Context()), len(held)/3
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	check(s.Record(ctx, succeeded(claimer, held[:third]...)))
	again := succeeded(claimer, held[third:2*third]...)
	for i := range again {
		again[i].Outcome.State, again[i].Outcome.Class = run.Failed, run.ClassHTTP5xx
		again[i].Next = &dispatcher.NextAttempt{At: may1, Until: may1.Add(10 * time.Hour), CountsAsFailure: true}
	}
	check(s.Record(ctx, again))
	_, err := s.UnfoldClaims(ctx, claimer, 0, may1.Add(2*time.Hour))
	check(err)
	check(s.Record(ctx, succeeded(claimer, held[2*third:]...)))
	adopted, err := adopt(ctx, s, dispatcher.AdoptQuery{Node: claimer, Token: token, Limit: 100, Now: may1.Add(time.Hour), Retries: true})
	check(err)
	check(s.Record(ctx, succeeded(claimer, adopted...)))
}

// listRuns lists all runs of a query, a few on a page.
func listRuns(query dispatcher.RunQuery) func(*testing.T, *store.Store) map[run.Key]int {
	return func(t *testing.T, s *store.Store) map[run.Key]int {
		t.Helper()
		listed := map[run.Key]int{}
		for query.Page = (input.Page{Limit: 20}); ; {
			page, err := s.Runs(t.Context(), query)
			must(t, err)
			for _, r := range page {
				key, err := run.ParseKey(r.ID)
				must(t, err)
				listed[key]++
			}
			if len(page) < query.Page.Limit {
				return listed
			}
			query.Page.Cursor = page[len(page)-1].ID
		}
	}
}

// listFires lists what verify reads.
func listFires(t *testing.T, s *store.Store) map[run.Key]int {
	t.Helper()
	fires, err := s.Fires(t.Context(), run.JobID("app", "job"), may1, may1.Add(24*time.Hour), 10_000)
	must(t, err)
	listed := map[run.Key]int{}
	for _, key := range fires {
		listed[key]++
	}
	return listed
}
