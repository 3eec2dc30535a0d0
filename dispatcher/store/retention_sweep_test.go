package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// The first sweep of an app, or the one after its retention was shortened, looks at each day of each job. It does so in
// short calls, says that there is more, and goes on where it was, so that an app of any size is cleaned up in the end.
func TestSweepOfManyJobsGoesOnInTheNextCall(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testSweepGoesOn(t, open(t, newFile(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testSweepGoesOn(t, open(t, pgtest.New(t))) })
}

// manyJobs are more than a sweep looks at in one call.
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
	// The next day costs two at most: it looks at that day only, of more jobs than one call gets through.
	for range 2 {
		done, err := s.Purge(t.Context(), 1, now.Add(days(1)))
		must(t, err)
		if !done.More {
			return
		}
	}
	t.Error("a day later there is more to do after two calls, want no more")
}

// A sweep under way that began by a shorter retention removes nothing that is kept now.
func TestSweepFollowsALongerRetention(t *testing.T) {
	t.Parallel()
	s := open(t, newFile(t))
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
