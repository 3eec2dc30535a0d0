package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// However many runs are live, and however many are to be attempted later, those that are due are
// found by their own index.
func TestRetriesAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testRetryPlan(t, open(t, newFile(t)), "SEARCH r USING INDEX live_runs_retrying (next_attempt_at>? AND next_attempt_at<?)")
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testRetryPlan(t, open(t, pgtest.New(t)), "Index Cond: ((next_attempt_at <= ")
	})
}

func testRetryPlan(t *testing.T, s *store.Store, want string) {
	t.Helper()
	const fill = `INSERT INTO live_runs (app_id, scheduled_at, trigger_id, kind, job_id, revision, node, token, attempt, state,
			next_attempt_at)
		WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20000)
		SELECT 1, n, n, 1, 1, 1, 1, 1, 1, CASE WHEN n % 2 = 0 THEN 'retrying' ELSE 'claimed' END, CASE WHEN n % 2 = 0 THEN n * 10 END FROM s`
	must(t, store.Exec(t.Context(), s, fill))
	for _, statistics := range []string{"none", "fresh"} {
		if statistics == "fresh" {
			must(t, store.Exec(t.Context(), s, "ANALYZE"))
		}
		if plan, err := store.ExplainRetries(t.Context(), s, 1000); err != nil || !strings.Contains(plan, want) {
			t.Errorf("statistics %s: %v, got plan\n%s", statistics, err, plan)
		}
	}
}

// A look from the first retry that is left does not visit those that were made, however many a long snapshot keeps.
func TestLookForRetriesFromABoundReadsNoOldOnes(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := ownClaims(t, database, 1)
	openSnapshot(t, database)
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO live_runs
		(app_id, scheduled_at, trigger_id, kind, job_id, revision, node, token, attempt, state, next_attempt_at)
		SELECT 1, i, i, 1, 1, 1, 1, 1, 1, 'retrying', %d + i FROM generate_series(1, 20000) AS i`, may1.UnixMilli())))
	must(t, store.Exec(t.Context(), s, `DELETE FROM live_runs`))
	must(t, store.Exec(t.Context(), s, `VACUUM live_runs`))
	now := may1.Add(time.Hour)
	all, err := store.RetriesBuffers(t.Context(), s, time.Time{}, now)
	must(t, err)
	some, err := store.RetriesBuffers(t.Context(), s, now.Add(-time.Minute), now)
	must(t, err)
	if all < 100 || some > 10 {
		t.Errorf("a look touches %d pages, and %d from the bound on; want more than 100, and 10 at most", all, some)
	}
}
