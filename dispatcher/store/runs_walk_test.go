package store_test

import (
	"fmt"
	"math"
	"strings"
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
)

// Lists of an app that walk through the history of all apps show what lists show that look job by job, wherever the walk ends.
func TestListsThatWalkShowWhatOthersDo(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testWalks(t, open(t, newFile(t)))
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

// walkedHistory makes two apps with jobs whose runs and misfires lie between each other, several at the same time.
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

// walkedLists returns what the lists of an app show, read page by page.
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
