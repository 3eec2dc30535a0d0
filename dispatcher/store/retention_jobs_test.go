package store_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// putTriggers declares a job of some triggers t0, t1 and so on.
func putTriggers(t *testing.T, s *store.Store, app, name string, triggers int, now time.Time) {
	t.Helper()
	job := dispatcher.Job{App: app, Name: name,
		JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1",
			Method: "POST", Timeout: target.DefaultTimeout}}, Triggers: map[string]dispatcher.Trigger{}}}
	for i := range triggers {
		job.Triggers[fmt.Sprint("t", i)] = dispatcher.Trigger{
			TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "rate(1h)"}, MisfireAfter: dispatcher.DefaultMisfireAfter,
				Enabled: true},
		}
	}
	_, _, err := s.PutJob(t.Context(), job, input.Change{Actor: "test", Now: now})
	must(t, err)
}

// Triggers removed from a living job are deleted once the history no longer names them.
func TestPurgeRemovesTriggersOfLivingJobs(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testPurgeRemovesTriggers(t, open(t, sqlitetest.New(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testPurgeRemovesTriggers(t, open(t, pgtest.New(t))) })
}

func testPurgeRemovesTriggers(t *testing.T, s *store.Store) {
	t.Helper()
	declareApp(t, s, "app", days(10))
	putTriggers(t, s, "app", "job", 5, may1)
	putTriggers(t, s, "app", "job", 1, may1.Add(days(1)))
	putTriggers(t, s, "app", "job", 2, may1.Add(days(2)))
	// t2 has a run that ended late, t3 an unfinished one.
	insert := `INSERT INTO %s (scheduled_at, trigger_id, job_id, kind, revision, node, attempt, %s) VALUES (%d, %d, %d, 1, 1, 0, 1, %s)`
	id, at := run.JobID("app", "job"), may1.UnixMilli()
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(insert, "runs", "http_status, ended_at", at, run.TriggerID("app", "job", "t2"), id,
		fmt.Sprint("200, ", may1.Add(days(8)).UnixMilli()))))
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(insert, "live_runs", "app_id, token, state", at, run.TriggerID("app", "job",
		"t3"), id,
		"0, 0, 'queued'")))
	left := func(now time.Time) string {
		t.Helper()
		for more := true; more; {
			more = purge(t, s, now).More
		}
		clocks := count(t, s, `SELECT count(*) FROM trigger_clock`)
		var names []string
		for i := range 5 {
			if count(t, s, fmt.Sprintf(`SELECT count(*) FROM triggers WHERE name = 't%d'`, i)) == 1 {
				names = append(names, fmt.Sprint("t", i))
			}
		}
		if int(clocks) != len(names) {
			t.Errorf("at %s: %d clocks of %d triggers are left", now, clocks, len(names))
		}
		return strings.Join(names, " ")
	}
	for _, tt := range []struct {
		after int // days
		want  string
	}{{11, "t0 t1 t2 t3 t4"}, {14, "t0 t1 t2 t3"}, {20, "t0 t1 t3"}} {
		if got := left(may1.Add(days(tt.after))); got != tt.want {
			t.Errorf("after %d days %q are left, want %q", tt.after, got, tt.want)
		}
	}
	must(t, store.Exec(t.Context(), s, `DELETE FROM live_runs`))
	if got := left(may1.Add(days(21))); got != "t0 t1" {
		t.Errorf("when its last run is over %q are left, want those that the job has", got)
	}
}

// Deleted jobs are removed with their triggers, however many other jobs and triggers exist: each is found by an index,
// and no table has a reference to check without one.
func TestPurgeOfDeletedJobsReadsNoOtherTriggers(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testPurgeOfDeletedJobs(t, open(t, sqlitetest.New(t))) })
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		s := open(t, pgtest.New(t))
		testPurgeOfDeletedJobs(t, s)
		const unindexed = `SELECT count(*) FROM pg_constraint AS c WHERE c.contype = 'f' AND NOT EXISTS (
			SELECT 1 FROM pg_index AS i WHERE i.indrelid = c.conrelid AND i.indpred IS NULL AND i.indkey[0] = c.conkey[1])`
		if n := count(t, s, unindexed); n != 0 {
			t.Errorf("%d foreign keys have no index, by which the removal of what they refer to finds them", n)
		}
	})
}

func testPurgeOfDeletedJobs(t *testing.T, s *store.Store) {
	t.Helper()
	declareApp(t, s, "app", days(10))
	const deleted, others = 120, 30_000
	for i := range deleted {
		name := fmt.Sprint("gone-", i)
		putTriggers(t, s, "app", name, 2, may1)
		must(t, s.DeleteJob(t.Context(), "app", name, input.Change{Actor: "test", Now: may1}))
	}
	putTriggers(t, s, "app", "kept", 1, may1)
	columns := `job_id, app_id, revision, misfire_after, anchor_at, jitter, repeat_count, fired, enabled, paused, job_paused,
		delayed, drift_hour, name, expression, dialect, timezone, gap, overlap, calendar, on_excluded, error, node_labels`
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO triggers (id, %[1]s)
		WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %[2]d)
		SELECT n, %[1]s FROM n CROSS JOIN triggers WHERE job_id = %[3]d`, columns, others, run.JobID("app", "kept"))))
	for _, statistics := range []string{"none", "fresh"} {
		if statistics == "fresh" {
			must(t, store.Exec(t.Context(), s, "ANALYZE"))
		}
		plan, err := store.ExplainRemoveJobs(t.Context(), s)
		must(t, err)
		if !strings.Contains(plan, "triggers_job") || strings.Contains(plan, "Seq Scan on triggers") || strings.Contains(plan, "SCAN triggers") {
			t.Errorf("statistics %s: triggers are not found by their job:\n%s", statistics, plan)
		}
	}
	for more := true; more; {
		more = purge(t, s, may1.Add(days(13))).More
	}
	jobs, triggers := count(t, s, `SELECT count(*) FROM jobs`), count(t, s, `SELECT count(*) FROM triggers`)
	if jobs != 2 || triggers != others+1 {
		t.Errorf("%d jobs and %d triggers are left, want 2 and %d", jobs, triggers, others+1)
	}
}

// A failed step is reported, and does not stop the others.
func TestPurgeContinuesAfterAFailedStep(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.New(t))
	job := declareApp(t, s, "app", days(10))
	declareApp(t, s, "short", days(1))
	insertRuns(t, s, job, may1, 10, false)
	insertRuns(t, s, run.JobID("short", "job"), may1.Add(days(10)), 10, false)
	must(t, store.Exec(t.Context(), s, `ALTER TABLE audit_log RENAME TO elsewhere; ALTER TABLE trigger_revisions RENAME TO nowhere`))
	removed, err := s.Purge(t.Context(), 1, may1.Add(days(13)))
	if err == nil || !strings.Contains(err.Error(), "audit log: ") || !strings.Contains(err.Error(), "revisions: ") {
		t.Errorf("got error %v, want one that names both steps", err)
	}
	if removed.Runs != 20 {
		t.Errorf("removed %+v, want the runs of both apps", removed)
	}
}

// Any number of nodes together roll up the states of all jobs, whichever of them starts or stops in between.
func TestStatesAreRolledUpByManyNodesTogether(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]string{"SQLite": sqlitetest.New(t), "PostgreSQL": pgtest.New(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, database)
			declareApp(t, s, "app", days(10))
			const jobs = 10
			for i := range jobs - 1 {
				putTriggers(t, s, "app", fmt.Sprint("job-", i), 1, may1)
			}
			must(t, store.Exec(t.Context(), s, `UPDATE jobs SET state = 'paused'`)) // as if all had changed
			changed := 0
			for node := range 4 { // each starts, rolls up one page, and stops
				must(t, s.Close())
				s = open(t, database)
				rolled, err := s.RollUp(t.Context(), 3)
				must(t, err)
				if changed += rolled.Changed; rolled.More != (node < 3) {
					t.Errorf("node %d: %+v, want more until the last", node, rolled)
				}
			}
			if changed != jobs {
				t.Errorf("%d states were rolled up, want all %d", changed, jobs)
			}
		})
	}
}

// An app that used every feature leaves no rows once it is deleted and its history has expired.
func TestDeletedAppLeavesNoRows(t *testing.T) {
	t.Parallel()
	database := sqlitetest.New(t)
	m := moving{t: t, old: open(t, database), now: time.Now().UTC().Truncate(time.Second)}
	ctx, node := t.Context(), run.NodeID(7)
	_, _, err := m.old.PutApp(ctx, access.App{Name: "app",
		AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(days(7))}}, m.at(-time.Hour))
	must(t, err)
	useAll(m)
	must(t, m.old.Register(ctx, dispatcher.Node{ID: node, Name: "n", Version: "v"}, m.now))
	query := dispatcher.AdoptQuery{Node: node, Token: 9, Limit: 10, Now: m.now}
	for range 2 { // the requested run, and its followers
		_, err := m.old.FollowEnds(ctx, dispatcher.FollowQuery{Limit: 10, Now: m.now})
		must(t, err)
		found, err := m.old.Adoptable(ctx, query)
		must(t, err)
		held, err := m.old.Adopt(ctx, query, found)
		must(t, err)
		for _, r := range held {
			must(t, m.old.Record(ctx, []dispatcher.Record{{Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt,
				Node: node, Token: 9, Attempt: r.Attempt, Followed: true,
				Outcome: run.Outcome{State: run.Failed, StartedAt: m.now, EndedAt: m.now}}}))
		}
	}
	_, err = m.old.RollUpObjectives(ctx, 10, m.now)
	must(t, err)
	tables := []string{"run_inputs", "backfills", "backfill_runs", "pending_ends", "followers", "alert_events", "alert_states",
		"carried_states", "objectives", "objective_triggers", "objective_pending", "objective_counts", "app_pauses", "runs",
		"live_runs", "jobs", "triggers", "alerts"}
	used := rowsOf(t, database, tables)
	for _, table := range []string{"run_inputs", "backfills", "backfill_runs", "followers", "alert_events", "alert_states", "carried_states",
		"objectives", "objective_triggers", "app_pauses"} {
		if used[table] == 0 {
			t.Errorf("table %s has no row that could stay; let the app use it", table)
		}
	}
	must(t, m.old.DeleteJob(ctx, "app", "parent", m.at(0)))
	must(t, m.old.DeleteJob(ctx, "app", "child", m.at(0)))
	must(t, m.old.DeleteAlert(ctx, "app", "night", m.at(0)))
	must(t, m.old.DeleteApp(ctx, "app", m.at(0)))
	later := m.now.Add(days(30))
	for range 5 {
		endAll(m, node, later)
		_, err := m.old.Purge(ctx, node, later)
		must(t, err)
	}
	for table, rows := range rowsOf(t, database, tables) {
		if rows > 0 {
			t.Errorf("%d rows stay in table %s", rows, table)
		}
	}
}

// useAll gives an app a job with a follower, an alert, a state, an objective, a pause and a backfill.
func useAll(m moving) {
	m.t.Helper()
	ctx := m.t.Context()
	m.declare("child", nil)
	m.declare("parent", func(job *dispatcher.Job, _ *dispatcher.Trigger) {
		to := target.FollowDestination{Webhook: &target.FollowWebhook{URL: "https://example.com/failed"}}
		job.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, FollowDestination: to, Payload: dispatcher.FollowResult}
		job.ConcurrencyPolicy, job.CarryState = run.ConcurrencyQueue, true
		job.Objective = &dispatcher.Objective{Within: input.Duration(time.Minute), Of: "90%"}
	})
	_, err := m.old.SetCarriedState(ctx, "app", "parent", json.RawMessage(`{"at":1}`), m.at(-time.Hour))
	must(m.t, err)
	a := alert.Alert{App: "app", Name: "night"}
	a.Failure, a.NoSuccessFor = &alert.Failures{After: 1}, input.Duration(time.Hour)
	a.Destination.Webhook = &target.AlertWebhook{}
	a.Destination.Webhook.SetDefaults()
	a.Destination.Webhook.URL = "https://pager.example.com/"
	_, _, err = m.old.PutAlert(ctx, a, m.at(-time.Hour))
	must(m.t, err)
	_, err = m.old.PauseApp(ctx, "app", dispatcher.AppPauseRequest{Reason: "a migration"}, m.at(-time.Minute))
	must(m.t, err)
	request := repeat.BackfillRequest{BackfillSpec: repeat.BackfillSpec{From: m.now.Add(-time.Hour), To: m.now}}
	request.SetDefaults()
	created, err := m.old.CreateBackfill(ctx, "app", "child", m.plan("child", request.BackfillSpec), m.at(-time.Minute))
	must(m.t, err)
	id, err := repeat.ParseBackfillID(created.ID)
	must(m.t, err)
	_, err = m.old.FeedBackfill(ctx, id, m.now)
	must(m.t, err)
	_, err = m.old.RequestRun(ctx, "app", "parent", nil, m.at(-time.Minute))
	must(m.t, err)
}

// endAll does the work of nodes for deleted jobs: it ends and follows their runs, and ends backfills and objectives.
func endAll(m moving, node run.NodeID, now time.Time) {
	m.t.Helper()
	ctx := m.t.Context()
	query := dispatcher.AdoptQuery{Node: node, Token: 9, Limit: 10, Now: m.now}
	found, err := m.old.Adoptable(ctx, query)
	must(m.t, err)
	held, err := m.old.Adopt(ctx, query, found)
	must(m.t, err)
	for _, r := range held {
		must(m.t, m.old.Record(ctx, []dispatcher.Record{{Key: r.Key, JobID: r.JobID, Revision: r.Revision,
			ClaimedAt: r.ClaimedAt, Node: node, Token: 9, Attempt: r.Attempt, Followed: true,
			Outcome: run.Outcome{State: run.Failed, StartedAt: m.now, EndedAt: m.now}}}))
	}
	_, err = m.old.FollowEnds(ctx, dispatcher.FollowQuery{Limit: 10, Now: m.now})
	must(m.t, err)
	open, err := m.old.OpenBackfills(ctx)
	must(m.t, err)
	for _, one := range open {
		_, err := m.old.FeedBackfill(ctx, one.ID, m.now)
		must(m.t, err)
	}
	_, err = m.old.RollUpObjectives(ctx, 10, now)
	must(m.t, err)
}

// rowsOf counts the rows of tables.
func rowsOf(t *testing.T, database string, tables []string) map[string]int {
	t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(database, "sqlite:")+"?_pragma=busy_timeout(5000)")
	must(t, err)
	defer func() { must(t, db.Close()) }()
	rows := map[string]int{}
	for _, table := range tables {
		var n int
		must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
		rows[table] = n
	}
	return rows
}
