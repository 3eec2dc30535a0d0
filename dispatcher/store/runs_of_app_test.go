package store_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// The runs of a small app are found by its jobs, in however large a history of other apps.
func TestRunsOfAnAppAreFoundByItsJobs(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testRunsOfAppPlan(t, open(t, newFile(t)), "USING INDEX runs_job (job_id=? AND scheduled_at>? AND scheduled_at<?)", "SEARCH runs USING PRIMARY KEY")
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testRunsOfAppPlan(t, openWithout(t, pgtest.New(t)), "job_id_scheduled_at_idx", "Seq Scan on runs")
	})
}

func testRunsOfAppPlan(t *testing.T, s dispatcher.Store, want, unwanted string) {
	t.Helper()
	declareApp(t, s, "small", days(30))
	large := declareApp(t, s, "large", days(30))
	for n := range 4 {
		purge(t, s, may1.Add(days(n)))
		insertRuns(t, s, large, may1.Add(days(n)), 5000, false)
	}
	insertRuns(t, s, dispatcher.JobID("small", "job"), may1, 5, false)
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
