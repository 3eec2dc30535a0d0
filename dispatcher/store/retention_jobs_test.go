package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
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

// Triggers that were taken from a job which lives on go once nothing of the history names them.
func TestPurgeRemovesTriggersOfLivingJobs(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testPurgeRemovesTriggers(t, open(t, newFile(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testPurgeRemovesTriggers(t, open(t, pgtest.New(t))) })
}

func testPurgeRemovesTriggers(t *testing.T, s *store.Store) {
	t.Helper()
	declareApp(t, s, "app", days(10))
	putTriggers(t, s, "app", "job", 5, may1)
	putTriggers(t, s, "app", "job", 1, may1.Add(days(1)))
	putTriggers(t, s, "app", "job", 2, may1.Add(days(2)))
	// t2 has a run that ended late, t3 one that is not over.
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

// Deleted jobs go with their triggers, however many other jobs and triggers there are: each is found by an index, and
// none of the tables refers to a row that a check would look for without one.
func TestPurgeOfDeletedJobsReadsNoOtherTriggers(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testPurgeOfDeletedJobs(t, open(t, newFile(t))) })
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

// A step that fails is reported, and stops no other.
func TestPurgeGoesOnAfterAStepThatFails(t *testing.T) {
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

// Any number of nodes roll up the states of all jobs together, whichever of them starts or ends in between.
func TestStatesAreRolledUpByManyNodesTogether(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]string{"SQLite": newFile(t), "PostgreSQL": pgtest.New(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, database)
			declareApp(t, s, "app", days(10))
			const jobs = 10
			for i := range jobs - 1 {
				putTriggers(t, s, "app", fmt.Sprint("job-", i), 1, may1)
			}
			must(t, store.Exec(t.Context(), s, `UPDATE jobs SET state = 'PAUSED'`)) // as if all had changed
			changed := 0
			for node := range 4 { // each comes, rolls up one page, and goes
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
