package store_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// The runs of a small app are found by its jobs, in however large a history of other apps.
func TestRunsOfAnAppAreFoundByItsJobs(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testRunsOfAppPlan(t, open(t, newFile(t)), "USING INDEX runs_job (job_id=? AND scheduled_at>? AND scheduled_at<?)",
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

// However much other apps have fired, the list of an app reads what is its own.
func TestListOfASmallAppReadsNothingOfOthers(t *testing.T) {
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
