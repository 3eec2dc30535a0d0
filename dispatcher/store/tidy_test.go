package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/pgtest"
)

// may1 is a day long before any partition that a migration makes.
var may1 = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

func days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

// declareApp stores an app with one job, and returns the job's id.
func declareApp(t *testing.T, s dispatcher.Store, name string, retention time.Duration) int64 {
	t.Helper()
	change := dispatcher.Change{Actor: "test", Now: may1}
	_, err := s.PutApp(t.Context(), dispatcher.App{Name: name, Enabled: true, Retention: dispatcher.Duration(retention)}, change)
	must(t, err)
	_, err = s.PutJob(t.Context(), dispatcher.Job{
		App: name, Name: "job", Target: dispatcher.Target{Webhook: &dispatcher.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: dispatcher.DefaultTimeout}},
	}, change)
	must(t, err)
	return dispatcher.JobID(name, "job")
}

// insertRuns inserts n runs of a job from an instant on, a millisecond apart, each with an attempt.
func insertRuns(t *testing.T, s dispatcher.Store, job int64, at time.Time, n int, live bool) {
	t.Helper()
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO runs (scheduled_at, trigger_id, job_id, kind, revision, node, token, attempt, live, state, ended_at)
		WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < %[3]d)
		SELECT %[2]d + n, %[1]d, %[1]d, 1, 1, 0, 0, 2, %[4]t, 'succeeded', %[2]d + n FROM n;
		INSERT INTO attempts SELECT scheduled_at, trigger_id, kind, 1, 1, ended_at, ended_at, 0, 'failed', '', '', NULL
		FROM runs WHERE job_id = %[1]d AND scheduled_at >= %[2]d AND scheduled_at <= %[2]d + %[3]d;
		INSERT INTO answers SELECT scheduled_at, trigger_id, kind, 2, '{}'
		FROM runs WHERE job_id = %[1]d AND scheduled_at >= %[2]d AND scheduled_at <= %[2]d + %[3]d`, job, at.UnixMilli(), n-1, live)))
}

func count(t *testing.T, s dispatcher.Store, query string) int64 {
	t.Helper()
	n, err := store.Count(t.Context(), s, query)
	must(t, err)
	return n
}

// A call does so much and no more; the next goes on.
func TestTidyIsBounded(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testTidyIsBounded(t, open(t, newFile(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testTidyIsBounded(t, open(t, pgtest.New(t))) })
}

func testTidyIsBounded(t *testing.T, s dispatcher.Store) {
	t.Helper()
	long, short := declareApp(t, s, "long", days(10)), declareApp(t, s, "short", days(1))
	insertRuns(t, s, long, may1, 8000, false)
	insertRuns(t, s, short, may1.Add(days(12)), 3000, false)
	insertRuns(t, s, long, may1.Add(days(12)), 100, false)
	for _, want := range []dispatcher.Tidied{{Runs: 10_000, More: true}, {Runs: 1000}, {}} {
		got, err := s.Tidy(t.Context(), 1, may1.Add(days(14)))
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error("removed (-want +got):\n" + diff)
		}
	}
	for _, table := range []string{"runs", "attempts", "answers"} {
		if got := count(t, s, `SELECT count(*) FROM `+table); got != 100 {
			t.Errorf("%d %s are left, want 100", got, table)
		}
	}
}
