package store_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// overviewScale is the size of the databases of TestOverviews, 1 by default. With 1000 it prints how long each call takes:
// go test ./dispatcher/store -run TestOverviews -v -timeout 30m -scale 1000
var overviewScale = flag.Int("scale", 1, "size of the databases of TestOverviews: 1000 is 50,000 jobs and 2,000,000 runs")

// scale is how much a database holds.
type scale struct {
	apps, jobs, runs, days int
	now                    time.Time
}

func newScale(n int) scale {
	if n < 1000 {
		return scale{apps: 5, jobs: 300 * n, runs: 40, days: 3, now: may1.Add(days(30))}
	}
	return scale{apps: 50, jobs: 50 * n, runs: 40, days: 28, now: may1.Add(days(30))}
}

func (c scale) app(n int) string { return fmt.Sprintf("app%02d", n%c.apps) }

func (c scale) job(n int) string { return fmt.Sprintf("job-%06d", n) }

// fillScale stores apps, jobs and runs: one run of a hundred fails, and the latest of one job in five hundred.
func fillScale(t *testing.T, s dispatcher.Store, c scale) {
	t.Helper()
	ctx, change := t.Context(), dispatcher.Change{Actor: "test", Now: c.now.Add(-days(c.days))}
	for day := range c.days + 2 {
		purge(t, s, c.now.Add(-days(c.days-day+1)))
	}
	must(t, s.Register(ctx, dispatcher.Node{ID: 1, Name: "node"}, c.now))
	fillModel(t, s, c)
	fillJobs(t, s, c)
	fillRuns(t, s, c)
	must(t, s.DeleteJob(ctx, c.app(0), "model", change))
}

// fillModel stores the apps, and the job that fillJobs copies.
func fillModel(t *testing.T, s dispatcher.Store, c scale) {
	t.Helper()
	change := dispatcher.Change{Actor: "test", Now: c.now.Add(-days(c.days))}
	for n := range c.apps {
		_, _, err := s.PutApp(t.Context(), dispatcher.App{Name: c.app(n), Enabled: true, Retention: dispatcher.Duration(days(60))}, change)
		must(t, err)
	}
	_, _, err := s.PutJob(t.Context(), modelJob(c.app(0), "model"), change)
	must(t, err)
}

// modelJob returns a job as people have it.
func modelJob(app, name string) dispatcher.Job {
	model := dispatcher.Job{App: app, Name: name, Enabled: true, Description: strings.Repeat("describes it ", 5),
		Labels: dispatcher.Labels{"team": "payments"}, Payload: []byte(`{"x":"` + strings.Repeat("y", 300) + `"}`),
		Triggers: map[string]dispatcher.Trigger{"tick": {Schedule: dispatcher.Schedule{Expression: "H * * * *", Timezone: "UTC"}}},
		Target: dispatcher.Target{Webhook: &dispatcher.Webhook{
			URL: "https://example.com/", Method: "POST", Timeout: dispatcher.DefaultTimeout}}}
	model.SetDefaults()
	tick := model.Triggers["tick"]
	tick.SetDefaults()
	model.Triggers["tick"] = tick
	return model
}

// fillJobs copies the model.
func fillJobs(t *testing.T, s dispatcher.Store, c scale) {
	t.Helper()
	const portion = 500
	of := func(columns string) string { return strings.ReplaceAll(columns, "\n", " ") }
	jobs := of(`description, enabled, paused, priority, labels, node_labels, delivery, retry, concurrency_policy, max_concurrency,
		queue_limit, target, target_kind, payload, trigger_names, state, revision, created_at, updated_at`)
	triggers := of(`revision, misfire_after, anchor_at, jitter, repeat_count, fired, enabled, paused, job_paused, delayed, drift_hour, name,
		expression, dialect, timezone, gap, overlap, calendar, on_excluded, error, node_labels`)
	clocks := of(`revision, calendar_revision, misfire_after, off, delayed, state, node_labels`)
	from := func(columns string) string { return "m." + strings.ReplaceAll(columns, ", ", ", m.") }
	squeeze := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	jobs, triggers, clocks = squeeze(jobs), squeeze(triggers), squeeze(clocks)
	model, tick := dispatcher.JobID(c.app(0), "model"), dispatcher.TriggerID(c.app(0), "model", "tick")
	for first := 0; first < c.jobs; first += portion {
		var rows []string
		for n := first; n < min(first+portion, c.jobs); n++ {
			app, job := c.app(n), c.job(n)
			rows = append(rows, fmt.Sprintf("(%d, %d, '%s', '%s', 'host%d.example.com', %d, %d)", dispatcher.JobID(app, job), dispatcher.AppID(app),
				app, job, n%200, dispatcher.TriggerID(app, job, "tick"), c.now.Add(time.Duration(n%3600)*time.Second).UnixMilli()))
		}
		v := `WITH v (id, app_id, app, name, host, tick, next) AS (VALUES ` + strings.Join(rows, ", ") + `) `
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO jobs (id, app_id, app, name, target_name, %s)
			%s SELECT v.id, v.app_id, v.app, v.name, v.host, %s FROM v CROSS JOIN jobs AS m WHERE m.id = %d`, jobs, v, from(jobs), model)))
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO triggers (id, job_id, app_id, %s)
			%s SELECT v.tick, v.id, v.app_id, %s FROM v CROSS JOIN triggers AS m WHERE m.id = %d`, triggers, v, from(triggers), tick)))
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO trigger_clock (id, app_id, next_fire_time, due_at, prev_fire_time, %s)
			%s SELECT v.tick, v.app_id, v.next, v.next, v.next - 3600000, %s FROM v CROSS JOIN trigger_clock AS m WHERE m.id = %d`, clocks, v,
			from(clocks), tick)))
	}
}

// fillRuns gives each job its runs, the latest an hour ago.
func fillRuns(t *testing.T, s dispatcher.Store, c scale) {
	t.Helper()
	apart := days(c.days).Milliseconds() / int64(c.runs)
	for n := range c.runs {
		bad := "(j.target_name || j.name) LIKE '%" + fmt.Sprintf("%02d", n) + "'" // one in a hundred
		if n == 0 {
			bad = "j.name LIKE '%500' OR j.name LIKE '%000'"
		}
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO runs (scheduled_at, trigger_id, job_id, revision, node, ended_at, claimed_ms,
			started_ms, attempt, http_status, kind, state, class, error)
			SELECT t.at, t.id, t.job_id, 1, 1, t.at + 1000, 990, 980, 1, 200, 1, t.state, NULL, NULL FROM (
				SELECT c.prev_fire_time - %d AS at, t.id, t.job_id, CASE WHEN %s THEN 'failed' END AS state
				FROM triggers AS t JOIN trigger_clock AS c ON c.id = t.id JOIN jobs AS j ON j.id = t.job_id WHERE j.name <> 'model') AS t
			ORDER BY t.at`, int64(n)*apart, bad)))
	}
	must(t, store.Exec(t.Context(), s, `INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, node, decided_at)
		SELECT c.prev_fire_time - 7200000, c.prev_fire_time - 7200000, t.id, t.job_id, 1, 'skip', 'late', 1, c.prev_fire_time - 7100000
		FROM triggers AS t JOIN trigger_clock AS c ON c.id = t.id WHERE t.job_id % 50 = 0`))
}

// overviewCall is what a page asks of the store.
type overviewCall struct {
	name string
	do   func(ctx context.Context, s dispatcher.Store, n int) error
}

// overviewCalls are those of pages over many jobs. n chooses another app, page or job each time.
func overviewCalls(c scale) []overviewCall {
	summaries := func(query func(n int) dispatcher.JobQuery) func(context.Context, dispatcher.Store, int) error {
		return func(ctx context.Context, s dispatcher.Store, n int) error {
			q := query(n)
			q.Page.Limit, q.Now = 100, c.now
			_, _, err := s.JobSummaries(ctx, q)
			return err
		}
	}
	cursor := func(n int) string { return dispatcher.JobCursor(c.app(n), c.job(n*997%c.jobs)) }
	page := dispatcher.Page{Limit: 100}
	return []overviewCall{
		{"jobs", summaries(func(n int) dispatcher.JobQuery { return dispatcher.JobQuery{Page: dispatcher.Page{Cursor: cursor(n)}} })},
		{"jobs of an app", summaries(func(n int) dispatcher.JobQuery { return dispatcher.JobQuery{Apps: []string{c.app(n)}} })},
		{"jobs by host", summaries(func(n int) dispatcher.JobQuery {
			return dispatcher.JobQuery{Host: fmt.Sprintf("host%d.example.com", n%200)}
		})},
		{"jobs by part of the name", summaries(func(n int) dispatcher.JobQuery { return dispatcher.JobQuery{Name: c.job(n * 997 % c.jobs)} })},
		{"jobs in a state that none has", summaries(func(int) dispatcher.JobQuery { return dispatcher.JobQuery{State: dispatcher.JobError} })},
		{"jobs with a label that none has", summaries(func(int) dispatcher.JobQuery {
			return dispatcher.JobQuery{Page: dispatcher.Page{Labels: dispatcher.Labels{"team": "none"}}}
		})},
		{"jobs whose latest run failed", summaries(func(n int) dispatcher.JobQuery {
			return dispatcher.JobQuery{Result: dispatcher.RunFailed, Page: dispatcher.Page{Cursor: cursor(n)}}
		})},
		{"attention", func(ctx context.Context, s dispatcher.Store, _ int) error {
			_, err := s.Attention(ctx, nil, c.now)
			return err
		}},
		{"attention of an app", func(ctx context.Context, s dispatcher.Store, n int) error {
			_, err := s.Attention(ctx, []string{c.app(n)}, c.now)
			return err
		}},
		{"a portion of upcoming triggers", func(ctx context.Context, s dispatcher.Store, n int) error {
			_, err := s.UpcomingTriggers(ctx, nil, c.now.Add(days(1)), int64(n)<<55, 1000)
			return err
		}},
		{"runs of a job", func(ctx context.Context, s dispatcher.Store, n int) error {
			_, err := s.Runs(ctx, dispatcher.RunQuery{App: c.app(n), Job: c.job(n), Page: page})
			return err
		}},
		{"runs of an app", func(ctx context.Context, s dispatcher.Store, n int) error {
			_, err := s.Runs(ctx, dispatcher.RunQuery{App: c.app(n), To: c.now, Page: page})
			return err
		}},
		{"misfires of an app", func(ctx context.Context, s dispatcher.Store, n int) error {
			_, err := s.Misfires(ctx, dispatcher.RunQuery{App: c.app(n), Page: page})
			return err
		}},
		{"dead letters of an app", func(ctx context.Context, s dispatcher.Store, n int) error {
			_, err := s.DeadLetters(ctx, dispatcher.DeadLetterQuery{App: c.app(n), To: c.now, Page: page})
			return err
		}},
		{"definitions of an app", func(ctx context.Context, s dispatcher.Store, n int) error {
			_, err := s.Jobs(ctx, c.app(n), page)
			return err
		}},
		{"audit log", func(ctx context.Context, s dispatcher.Store, _ int) error {
			_, err := s.AuditEntries(ctx, dispatcher.AuditQuery{Page: page})
			return err
		}},
	}
}

// measure makes a call some times and returns the 95th percentile.
func measure(t *testing.T, s dispatcher.Store, call overviewCall, times int) time.Duration {
	t.Helper()
	took := make([]time.Duration, times)
	for n := range times {
		began := time.Now()
		if err := call.do(t.Context(), s, n); err != nil {
			t.Fatalf("%s: %v", call.name, err)
		}
		took[n] = time.Since(began)
	}
	slices.Sort(took)
	return took[times*95/100]
}

// Overviews read no history through, and send as many statements however much there is. A large scale prints times, too.
func TestOverviewsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	database, c := pgtest.New(t), newScale(*overviewScale)
	s := openWithout(t, database)
	fillScale(t, s, c)
	must(t, store.Exec(t.Context(), s, `VACUUM (ANALYZE)`))
	registry := prometheus.NewRegistry()
	reader, err := store.Open(t.Context(), database, store.Options{Metrics: registry})
	must(t, err)
	const scans = `SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_user_tables WHERE relname LIKE 'runs%' AND n_live_tup > 100`
	before := count(t, s, scans)
	for _, call := range overviewCalls(c) {
		must(t, call.do(t.Context(), reader, 0))
		sentBefore := sent(t, registry)
		must(t, call.do(t.Context(), reader, 1))
		statements := sent(t, registry) - sentBefore
		// An attention page asks one or two things of each kind, the others some lists of one page.
		if most := 30.0; statements > most {
			t.Errorf("%s sent %v statements, want %v at most", call.name, statements, most)
		}
		if *overviewScale >= 1000 {
			t.Logf("PostgreSQL: %-34s p95 %v, %v statements", call.name, measure(t, reader, call, 60).Round(100*time.Microsecond), statements)
		}
	}
	must(t, reader.Close()) // a connection that ends reports what it has read
	if after := count(t, s, scans); after != before {
		t.Errorf("the history was read through %d times, want never", after-before)
	}
	t.Logf("%d jobs and %d runs; %d processors", c.jobs, c.jobs*c.runs, runtime.NumCPU())
}

func TestOverviewsOnSQLite(t *testing.T) {
	t.Parallel()
	s, c := open(t, newFile(t)), newScale(*overviewScale)
	fillScale(t, s, c)
	must(t, store.Exec(t.Context(), s, `PRAGMA optimize`))
	for _, call := range overviewCalls(c) {
		must(t, call.do(t.Context(), s, 0))
		if *overviewScale >= 1000 {
			t.Logf("SQLite: %-34s p95 %v", call.name, measure(t, s, call, 60).Round(100*time.Microsecond))
		}
	}
	t.Logf("%d jobs and %d runs; %d processors", c.jobs, c.jobs*c.runs, runtime.NumCPU())
}
