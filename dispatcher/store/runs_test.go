package store_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// Lists of an app by a walk through all apps show the same as lists that search job by job, wherever the walk ends.
func TestWalkedListsEqualSearchedLists(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testWalks(t, open(t, sqlitetest.New(t)))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testWalks(t, open(t, pgtest.New(t)))
	})
}

func testWalks(t *testing.T, s *store.Store) {
	t.Helper()
	end := time.Now().UTC().Truncate(time.Minute)
	mine, others := walkedHistory(t, s, end)
	never := store.Walks{Jobs: math.MaxInt32, Rows: 1, Counted: 1, Span: time.Hour}
	walks := []store.Walks{
		{Jobs: 1, Rows: 1, Counted: 1, Span: 2 * time.Hour}, {Jobs: 1, Rows: 7, Counted: 7, Span: 20 * time.Minute},
		{Jobs: 1, Rows: 40, Counted: 40, Span: 2 * time.Hour}, {Jobs: 1, Rows: 1000, Counted: 1000, Span: 2 * time.Hour},
		{Jobs: 2, Rows: 7, Counted: 7, Span: 2 * time.Hour}, {Jobs: 1, Rows: 1000, Counted: 1000, Span: time.Minute},
	}
	for _, query := range []dispatcher.RunQuery{
		{}, {State: run.Lost}, {State: run.Skipped},
		{From: end.Add(-25 * time.Minute), To: end.Add(-9 * time.Minute), State: run.Failed},
	} {
		for _, app := range []string{mine, others} {
			query.App = app
			for _, limit := range []int{7, 100} {
				query.Page.Limit = limit
				store.SetWalks(s, never)
				want := walkedLists(t, s, query)
				for _, w := range walks {
					store.SetWalks(s, w)
					if diff := cmp.Diff(want, walkedLists(t, s, query)); diff != "" {
						t.Errorf("%+v with %+v (-job by job +walking):\n%s", query, w, diff)
					}
				}
			}
			if listed := len(walkedLists(t, s, dispatcher.RunQuery{App: app, Page: input.Page{Limit: 100}})["runs"]); listed < 40 {
				t.Errorf("app %s has %d runs, want 40 at least", app, listed)
			}
		}
	}
}

// A page examines few runs, whatever the app, and the pages together find as much as one that examines a day.
func TestSearchOfAnAppWithManyJobsIsBounded(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		mine, _ := walkedHistory(t, s, time.Now().UTC().Truncate(time.Minute))
		search := func(kind run.Kind, jobs int) (found []string, pages int) {
			t.Helper()
			store.SetWalks(s, store.Walks{Jobs: jobs, Rows: 7, Counted: 7, Span: 2 * time.Hour})
			query := dispatcher.RunSearch{Apps: []string{mine}, Kind: kind, Page: input.Page{Limit: 100}}
			for pages == 0 || query.Page.Cursor != "" {
				runs, next, err := s.SearchRuns(t.Context(), query)
				must(t, err)
				for _, r := range runs {
					found = append(found, r.ID)
				}
				query.Page.Cursor, pages = next, pages+1
			}
			return found, pages
		}
		want, _ := search(run.KindSchedule, math.MaxInt32)
		if got, pages := search(run.KindSchedule, 1); len(want) < 40 || pages < 5 || !cmp.Equal(want, got) {
			t.Errorf("%d runs on %d pages, want several pages with these %d:\n%s", len(got), pages, len(want), cmp.Diff(want, got))
		}
		if got, pages := search(run.KindManual, 1); len(got) > 0 || pages < 5 {
			t.Errorf("a search that finds none: %q on %d pages, want several", got, pages)
		}
	})
}

// walkedHistory makes two apps with jobs whose runs and misfires alternate, several at the same time.
func walkedHistory(t *testing.T, s *store.Store, end time.Time) (mine, others string) {
	t.Helper()
	mine, others = "mine", "others"
	for _, app := range []string{mine, others} {
		declareApp(t, s, app, days(30))
	}
	change := input.Change{Actor: "test", Now: end.Add(-time.Hour), Operator: true}
	for n := range 6 {
		job := dispatcher.Job{App: []string{mine, others}[n%2], Name: fmt.Sprint("job", n), JobSpec: dispatcher.JobSpec{Enabled: true,
			Triggers: map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{
				Schedule: dispatcher.Schedule{Expression: "rate(24h)"}}}},
			Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}}}
		trigger := job.Triggers["tick"]
		trigger.SetDefaults()
		job.Triggers["tick"] = trigger
		_, _, err := s.PutJob(t.Context(), job, change)
		must(t, err)
		id, tick := run.JobID(job.App, job.Name), run.TriggerID(job.App, job.Name, "tick")
		states := []string{"NULL", "'failed'", "'lost'", "'skipped'", "NULL"}
		var runs, live, missed []string
		for i := range 24 {
			at := end.Add(-time.Duration(i+n%3) * time.Minute).UnixMilli()
			run := fmt.Sprintf("%d, %d, %d", at, tick, id)
			switch {
			case i%8 == 5:
				live = append(live, fmt.Sprintf("(%s, 1, 1, 1, 0, 0, 2, 'retrying')", run))
			default:
				runs = append(runs, fmt.Sprintf("(%s, 1, 1, 0, 1, 0, %d, %s)", run, at+1, states[(i+n)%5]))
			}
			missed = append(missed, fmt.Sprintf("(%d, %[1]d, %d, %d, 1, 'skip', 'late', 0, %[1]d)", at, tick, id))
		}
		must(t, store.Exec(t.Context(), s, `INSERT INTO runs (scheduled_at, trigger_id, job_id, kind, revision, node, attempt, http_status,
			ended_at, state) VALUES `+strings.Join(runs, ", ")))
		must(t, store.Exec(t.Context(), s, `INSERT INTO live_runs (scheduled_at, trigger_id, job_id, app_id, kind, revision, node, token, attempt,
			state) VALUES `+strings.Join(live, ", ")))
		must(t, store.Exec(t.Context(), s, `INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, node,
			decided_at) VALUES `+strings.Join(missed, ", ")))
	}
	must(t, s.DeleteJob(t.Context(), mine, "job4", input.Change{Actor: "test", Now: end}))
	return mine, others
}

// walkedLists returns the lists of an app, read page by page.
func walkedLists(t *testing.T, s *store.Store, query dispatcher.RunQuery) map[string][]string {
	t.Helper()
	shown := map[string][]string{}
	list := func(name string, page func(input.Page) (ids []string)) {
		for at := query.Page; ; {
			ids := page(at)
			shown[name] = append(shown[name], ids...)
			if len(ids) < at.Limit {
				return
			}
			at.Cursor = ids[len(ids)-1]
		}
	}
	list("runs", func(page input.Page) (ids []string) {
		of := query
		of.Page = page
		runs, err := s.Runs(t.Context(), of)
		must(t, err)
		for _, run := range runs {
			ids = append(ids, run.ID)
		}
		return ids
	})
	dead := repeat.DeadLetterQuery{App: query.App, From: query.From, To: query.To}
	if query.State != run.Skipped {
		dead.State = query.State
	}
	list("dead letters", func(page input.Page) (ids []string) {
		of := dead
		of.Page = page
		runs, err := s.DeadLetters(t.Context(), of)
		must(t, err)
		for _, run := range runs {
			ids = append(ids, run.ID)
		}
		return ids
	})
	count, err := s.CountDeadLetters(t.Context(), dead, 4*query.Page.Limit)
	must(t, err)
	shown["count"] = []string{fmt.Sprint(count)}
	if query.State == "" {
		list("misfires", func(page input.Page) (ids []string) {
			of := query
			of.Page = page
			missed, err := s.Misfires(t.Context(), of)
			must(t, err)
			for _, m := range missed {
				ids = append(ids, run.Key{ScheduledAt: m.From, TriggerID: m.TriggerID, Kind: run.KindSchedule}.String())
			}
			return ids
		})
	}
	return shown
}

// Runs move from a claim to the live runs and to the history while they are listed page by page: each is listed exactly
// once.
func TestRunsAreListedOnceWhileTheyMove(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		const triggers, rounds = 12, 6
		s := ownClaims(t, database, triggers)
		var known sync.Map // stored runs by id
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

// listFires lists the rows that verify reads.
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

// The runs of a small app are found by its jobs, however large the history of other apps is.
func TestRunsOfAnAppAreFoundByItsJobs(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testRunsOfAppPlan(t, open(t, sqlitetest.New(t)), "USING INDEX runs_job (job_id=? AND scheduled_at>? AND scheduled_at<?)",
			"SEARCH runs USING PRIMARY KEY")
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testRunsOfAppPlan(t, openWithout(t, pgtest.New(t)), "job_id_scheduled_at_idx", "Seq Scan on runs_20260501")
	})
}

func testRunsOfAppPlan(t *testing.T, s *store.Store, want, unwanted string) {
	t.Helper()
	declareApp(t, s, "small", days(30))
	large := declareApp(t, s, "large", days(30))
	for n := range 4 {
		purge(t, s, may1.Add(days(n)))
		insertRuns(t, s, large, may1.Add(days(n)), 5000, false)
	}
	insertRuns(t, s, run.JobID("small", "job"), may1, 5, false)
	for _, statistics := range []string{"none", "fresh"} {
		if statistics == "fresh" {
			must(t, store.Exec(t.Context(), s, "ANALYZE"))
		}
		for _, span := range []int{1, 40} {
			plan, err := store.ExplainRunsOfApp(t.Context(), s, "small", may1, may1.Add(days(span)))
			must(t, err)
			if !strings.Contains(plan, want) || strings.Contains(plan, unwanted) {
				t.Errorf("%d days, statistics %s: got plan\n%s", span, statistics, plan)
			}
		}
	}
}

// The list of an app reads only its own rows, however much other apps have fired.
func TestListOfASmallAppReadsOnlyItsOwnRows(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	s := openWithout(t, pgtest.New(t))
	declareApp(t, s, "small", days(30))
	large := declareApp(t, s, "large", days(30))
	for n := range 5 {
		purge(t, s, may1.Add(days(n)))
	}
	insertRuns(t, s, run.JobID("small", "job"), may1, 5, false)
	read := func() int {
		t.Helper()
		must(t, store.Exec(t.Context(), s, "VACUUM ANALYZE"))
		pages, err := store.RunsOfAppBuffers(t.Context(), s, "small", may1.Add(-days(1)), may1.Add(days(5)))
		must(t, err)
		return pages
	}
	alone := read()
	for n := range 5 {
		insertRuns(t, s, large, may1.Add(days(n)), 10_000, false)
	}
	crowded := read()
	t.Logf("%d pages of a history of its own, %d next to 50,000 runs of another app", alone, crowded)
	if crowded > 2*alone+20 {
		t.Errorf("the list of an app reads %d pages next to another app's history, and %d without", crowded, alone)
	}
}
