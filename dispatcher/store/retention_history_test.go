package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// may1 is a day long before any partition that a migration makes.
var may1 = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

func days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

// declareApp stores an app with one job, and returns the job's id.
func declareApp(t *testing.T, s *store.Store, name string, retention time.Duration) int64 {
	t.Helper()
	change := input.Change{Actor: "test", Now: may1, Operator: true}
	_, _, err := s.PutApp(t.Context(), access.App{
		Name: name, AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(retention),
			Bounds: &target.Bounds{Quotas: target.Quotas{Retention: input.Duration(input.MaxRetention)}}},
	}, change)
	must(t, err)
	_, _, err = s.PutJob(t.Context(), dispatcher.Job{
		App: name, Name: "job", JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1",
			Method: "POST", Timeout: target.DefaultTimeout}}},
	}, change)
	must(t, err)
	return run.JobID(name, "job")
}

// insertRuns inserts n runs of a job from an instant on, a millisecond apart, each with an attempt. Runs that are not
// live end at once.
func insertRuns(t *testing.T, s *store.Store, job int64, at time.Time, n int, live bool) {
	t.Helper()
	table, columns, values := "runs", "ended_at, http_status", fmt.Sprintf("%d + n, 200", at.UnixMilli())
	if live {
		table, columns, values = "live_runs", "app_id, token, state", "0, 0, 'queued'"
	}
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO %[4]s (scheduled_at, trigger_id, job_id, kind, revision, node, attempt, %[5]s)
		WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < %[3]d)
		SELECT %[2]d + n, %[1]d, %[1]d, 1, 1, 0, 2, %[6]s FROM n;
		INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status, state, class, error,
				late_result)
			SELECT scheduled_at, trigger_id, kind, 1, 1, scheduled_at, scheduled_at, 0, 'failed', '', '', NULL
		FROM %[4]s WHERE job_id = %[1]d AND scheduled_at >= %[2]d AND scheduled_at <= %[2]d + %[3]d;
		INSERT INTO broadcasts (scheduled_at, trigger_id, kind, endpoints) SELECT scheduled_at, trigger_id, kind, '[]'
		FROM %[4]s WHERE job_id = %[1]d AND scheduled_at >= %[2]d AND scheduled_at <= %[2]d + %[3]d;
		INSERT INTO run_inputs (scheduled_at, trigger_id, kind, input) SELECT scheduled_at, trigger_id, kind, '{}'
		FROM %[4]s WHERE job_id = %[1]d AND scheduled_at >= %[2]d AND scheduled_at <= %[2]d + %[3]d;
		INSERT INTO responses (scheduled_at, trigger_id, kind, attempt, response) SELECT scheduled_at, trigger_id, kind, 2, '{}'
		FROM %[4]s WHERE job_id = %[1]d AND scheduled_at >= %[2]d AND scheduled_at <= %[2]d + %[3]d`,
		job, at.UnixMilli(), n-1, table, columns, values)))
}

func count(t *testing.T, s *store.Store, query string) int64 {
	t.Helper()
	n, err := store.Count(t.Context(), s, query)
	must(t, err)
	return n
}

// A step of a call does a limited amount; the next call continues.
func TestPurgeIsBounded(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testPurgeIsBounded(t, open(t, sqlitetest.New(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testPurgeIsBounded(t, open(t, pgtest.New(t))) })
}

func testPurgeIsBounded(t *testing.T, s *store.Store) {
	t.Helper()
	long, short := declareApp(t, s, "long", days(10)), declareApp(t, s, "short", days(1))
	insertRuns(t, s, long, may1, 12_000, false)
	insertRuns(t, s, short, may1.Add(days(12)), 3000, false)
	insertRuns(t, s, long, may1.Add(days(12)), 100, false)
	for _, want := range []dispatcher.Purged{{Runs: 13_000, More: true}, {Runs: 2000}, {}} {
		got, err := s.Purge(t.Context(), 1, may1.Add(days(14)))
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error("removed (-want +got):\n" + diff)
		}
	}
	for _, table := range []string{"runs", "attempts", "responses"} {
		if got := count(t, s, `SELECT count(*) FROM `+table); got != 100 {
			t.Errorf("%d %s are left, want 100", got, table)
		}
	}
}

// The jobs of an app that keeps less than others are cleaned up one after the other, and none is skipped.
func TestPurgeGoesThroughAllJobs(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testPurgeGoesThroughAllJobs(t, open(t, sqlitetest.New(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testPurgeGoesThroughAllJobs(t, open(t, pgtest.New(t))) })
}

func testPurgeGoesThroughAllJobs(t *testing.T, s *store.Store) {
	t.Helper()
	declareApp(t, s, "long", days(30))
	declareApp(t, s, "short", days(1))
	for i, runs := range []int{700, 0, 300, 500, 1, 499, 20} {
		name := fmt.Sprintf("job-%d", i)
		_, _, err := s.PutJob(t.Context(), dispatcher.Job{
			App: "short", Name: name, JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1",
				Method: "POST", Timeout: target.DefaultTimeout}}},
		}, input.Change{Actor: "test", Now: may1})
		must(t, err)
		for from, n := may1, runs; n > 0; from, n = from.Add(days(1)), n-400 {
			insertRuns(t, s, run.JobID("short", name), from, min(n, 400), false)
		}
		insertRuns(t, s, run.JobID("short", name), may1.Add(days(9)), 3, false) // kept
	}
	for _, want := range []dispatcher.Purged{{Runs: 2020}, {}} {
		got, err := s.Purge(t.Context(), 1, may1.Add(days(10)))
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error("removed (-want +got):\n" + diff)
		}
	}
	for _, table := range []string{"runs", "attempts", "responses"} {
		if got := count(t, s, `SELECT count(*) FROM `+table); got != 7*3 {
			t.Errorf("%d %s are left, want those of the last day", got, table)
		}
	}
}

// The audit log outlives the ledger; old definitions are then removed, too.
func TestPurgeRemovesOldDefinitionsAndAuditLog(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testPurgeRemovesDefinitions(t, open(t, sqlitetest.New(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testPurgeRemovesDefinitions(t, open(t, pgtest.New(t))) })
}

func testPurgeRemovesDefinitions(t *testing.T, s *store.Store) {
	t.Helper()
	ctx := t.Context()
	must(t, s.Register(ctx, dispatcher.Node{ID: 1, Name: "a"}, may1))
	job := declareApp(t, s, "shop", days(2))
	declareApp(t, s, "office", days(2))
	on := func(n int) input.Change { return input.Change{Actor: "test", Now: may1.Add(days(n))} }
	for n, enabled := range []bool{false, true, false} {
		_, _, err := s.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: enabled, Retention: input.Duration(days(2))}}, on(n))
		must(t, err)
	}
	must(t, s.DeleteJob(ctx, "shop", "job", on(3)))
	insertRuns(t, s, job, may1.Add(days(4)), 1, false)
	must(t, store.Exec(ctx, s, fmt.Sprintf(`INSERT INTO audit_log (at, id, actor, action, app, subject, revision)
		WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n
		WHERE n < 1200) SELECT %d + n, n, 'test', 'put', 'shop', 'job job', n FROM n`, may1.UnixMilli())))
	purge := func(n int) (removed int) {
		t.Helper()
		for more := true; more; {
			purged, err := s.Purge(ctx, 1, may1.Add(days(n)))
			must(t, err)
			removed, more = removed+purged.AuditEntries, purged.More
		}
		return removed
	}
	rows := func() [2]int64 {
		t.Helper()
		return [2]int64{count(t, s, `SELECT count(*) FROM jobs WHERE name = 'job'`), count(t, s, `SELECT count(*) FROM audit_log`)}
	}
	all := rows()[1]
	if n := purge(6); n != 0 || rows() != [2]int64{2, all} {
		t.Errorf("while a run is kept: %d of the audit removed; jobs and audit %v, want both jobs and all %d", n, rows(), all)
	}
	if n := purge(7); n != 0 || rows() != [2]int64{1, all} {
		t.Errorf("beyond the retention: %d of the audit removed; jobs and audit %v, want the job that was not "+
			"deleted, and all %d", n, rows(), all)
	}
	purge(400 + 2) // May 1 and 2, except the disabling on May 1, which was followed by an enabling
	before := rows()[1]
	purge(400 + 30)
	if after := rows()[1]; before <= 1 || after != 1 {
		t.Errorf("%d entries of the audit are left on May 3, and then %d, want one: since when the app is disabled", before, after)
	}
	record, err := s.AppHistory(ctx, "shop", may1.Add(days(400+30)), may1.Add(days(400+30)))
	must(t, err)
	want := []dispatcher.AppSwitch{{At: may1.Add(days(2)), Actor: record.Switches[0].Actor}}
	if diff := cmp.Diff(want, record.Switches); diff != "" {
		t.Errorf("switches of the app (-want +got):\n%s", diff)
	}
}

// The operator sets the retention of the audit log: no app lengthens or shortens it. Entries that explain needs are
// kept as long as an app has history.
func TestAuditLogHasItsOwnRetention(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openAs(t, database, store.Options{AuditRetention: 24 * time.Hour})
		must(t, s.Register(t.Context(), dispatcher.Node{ID: 1, Name: "a"}, may1))
		declareApp(t, s, "shop", days(90))
		for n, enabled := range []bool{false, true} {
			_, _, err := s.PutApp(t.Context(), access.App{Name: "shop",
				AppSpec: access.AppSpec{Enabled: enabled, Retention: input.Duration(days(90))}},
				input.Change{Actor: "test", Now: may1.Add(days(n))})
			must(t, err)
		}
		left := func(on int) (all []string) {
			purge(t, s, may1.Add(days(on)))
			for _, e := range auditLog(t, s, access.AuditQuery{Apps: []string{"shop"}}) {
				all = append(all, e.Action)
			}
			return all
		}
		if diff := cmp.Diff([]string{"disable", "enable"}, left(10)); diff != "" {
			t.Error("after ten days (-want +got):\n" + diff)
		}
		if diff := cmp.Diff([]string{"enable"}, left(120)); diff != "" {
			t.Error("beyond the retention of the app (-want +got):\n" + diff)
		}
	})
}

// The first sweep of an app, or the one after its retention was shortened, covers each day of each job. It does so in
// short calls, reports that there is more, and continues where it stopped, until an app of any size is cleaned up.
func TestSweepOfManyJobsContinuesInTheNextCall(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testSweepGoesOn(t, open(t, sqlitetest.New(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testSweepGoesOn(t, open(t, pgtest.New(t))) })
}

// manyJobs are more than a sweep covers in one call.
const manyJobs = 65_000

// copiedJobs copies the job of an app under the names a-1 to a-n, which sort before its own.
func copiedJobs(t *testing.T, s *store.Store, job int64, n int) {
	t.Helper()
	const columns = `app_id, description, enabled, paused, priority, node_labels, delivery, retry, concurrency_policy, max_concurrency,
		queue_limit, target, payload, trigger_names, revision, created_at, updated_at`
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO jobs (id, name, `+columns+`)
		WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %d)
		SELECT n, 'a-' || n, `+columns+` FROM jobs CROSS JOIN n WHERE id = %d`, n, job)))
}

func testSweepGoesOn(t *testing.T, s *store.Store) {
	t.Helper()
	declareApp(t, s, "long", days(3650))
	job := declareApp(t, s, "short", days(1))
	copiedJobs(t, s, job, manyJobs)
	insertRuns(t, s, job, may1, 3, false)
	insertRuns(t, s, 7, may1, 3, false)
	now := may1.Add(days(10))
	calls, removed := 0, 0
	for more := true; more && calls < 50; calls++ {
		done, err := s.Purge(t.Context(), 1, now)
		must(t, err)
		removed, more = removed+done.Runs, done.More
	}
	if calls < 2 || calls == 50 || removed != 6 {
		t.Errorf("%d calls removed %d runs, want 6 by some calls", calls, removed)
	}
	if n := count(t, s, `SELECT count(*) FROM runs`); n != 0 {
		t.Errorf("%d runs are left, want none", n)
	}
	if n := count(t, s, `SELECT count(*) FROM apps WHERE sweep_from <> 0 OR sweep_to <> 0 OR sweep_after <> ''`); n != 0 {
		t.Errorf("%d sweeps are under way after the last call, want none", n)
	}
	// The next day costs at most two: it covers only that day, for more jobs than one call can handle.
	for range 2 {
		done, err := s.Purge(t.Context(), 1, now.Add(days(1)))
		must(t, err)
		if !done.More {
			return
		}
	}
	t.Error("a day later there is more to do after two calls, want no more")
}

// A sweep that began with a shorter retention removes no history that is now kept.
func TestSweepFollowsALongerRetention(t *testing.T) {
	t.Parallel()
	s := open(t, sqlitetest.New(t))
	declareApp(t, s, "long", days(3650))
	job := declareApp(t, s, "short", days(1))
	copiedJobs(t, s, job, manyJobs)
	now := may1.Add(days(10))
	insertRuns(t, s, job, may1.Add(days(5)), 3, false)
	first, err := s.Purge(t.Context(), 1, now)
	must(t, err)
	if !first.More {
		t.Fatalf("the first call ended with %+v, want a sweep under way", first)
	}
	app, err := s.App(t.Context(), "short")
	must(t, err)
	app.Retention = input.Duration(days(30))
	_, _, err = s.PutApp(t.Context(), app, input.Change{Actor: "test", Now: now})
	must(t, err)
	for range 50 {
		_, err := s.Purge(t.Context(), 1, now.Add(time.Hour))
		must(t, err)
	}
	if n := count(t, s, `SELECT count(*) FROM runs`); n != 3 {
		t.Errorf("%d runs are left, want the 3 that the retention keeps now", n)
	}
}
