package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/view"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// failFlood stores an app whose jobs all fail six times in the hour before now, and apps of which one job failed once, before all
// but the first of these.
func failFlood(t *testing.T, s *store.Store, quiet []string, now time.Time) {
	t.Helper()
	c := scale{apps: 1, jobs: 2000, now: now}
	c.days = 1
	purge(t, s, now) // makes the partitions of these days
	fillModel(t, s, c)
	fillJobs(t, s, c)
	fail := func(condition string, ago time.Duration) {
		t.Helper()
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO runs (scheduled_at, trigger_id, job_id, revision, node, ended_at, claimed_ms,
			started_ms, attempt, http_status, kind, state)
			SELECT %d, t.id, t.job_id, 1, 1, %d + t.id %% 1000, 990, 980, 1, 500, 1, 'failed' FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
			WHERE %s`, now.Add(-ago).UnixMilli(), now.Add(-ago).UnixMilli()+1000, condition)))
	}
	for n := range 6 {
		fail(`j.app = 'app00'`, time.Duration(n+1)*10*time.Minute)
	}
	for _, app := range quiet {
		_, _, err := s.PutApp(t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, input.Change{Now: now})
		must(t, err)
		_, _, err = s.PutJob(t.Context(), modelJob(app, "once"), input.Change{Now: now})
		must(t, err)
	}
	fail(`j.name = 'once'`, 55*time.Minute)
}

func noteFailures(t *testing.T, s *store.Store, now time.Time) {
	t.Helper()
	for more := true; more; {
		rolled, err := s.RollUpStatistics(t.Context(), now)
		must(t, err)
		more = rolled.More
	}
}

// failingApps returns the apps that attention shows failures of, and how many of the first of them.
func failingApps(t *testing.T, s *store.Store, now time.Time, apps ...string) (all []string, ofFlood int) {
	t.Helper()
	a, err := s.Attention(t.Context(), apps, now)
	must(t, err)
	if len(a.Failed.Items) > view.MaxAttention {
		t.Errorf("%d failures are listed, want %d at most", len(a.Failed.Items), view.MaxAttention)
	}
	for i, run := range a.Failed.Items {
		if run.App == "app00" {
			ofFlood++
		}
		if i > 0 && run.EndedAt.After(*a.Failed.Items[i-1].EndedAt) {
			t.Errorf("run %s, which ended at %s, is listed after one of %s", run.ID, run.EndedAt, a.Failed.Items[i-1].EndedAt)
		}
		all = append(all, run.App)
	}
	slices.Sort(all)
	return slices.Compact(all), ofFlood
}

// However much one app fails, attention shows what failed in the others, too.
func TestFloodOfFailuresHidesNoOtherApp(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s, now, quiet := open(t, database), may1.Add(days(30)), []string{"billing", "quiet"}
		failFlood(t, s, quiet, now)
		if all, _ := failingApps(t, s, now); !slices.Equal(all, []string{"app00"}) {
			t.Fatalf("before the handler noted failures, those of %v are shown: the flood is no flood", all)
		}
		noteFailures(t, s, now)
		all, ofFlood := failingApps(t, s, now)
		if want := append([]string{"app00"}, quiet...); !slices.Equal(all, want) || ofFlood != view.MaxAttention-len(quiet) {
			t.Errorf("got failures of %v, %d of the flood, want those of %v, and %d", all, ofFlood, want, view.MaxAttention-len(quiet))
		}
		if all, _ := failingApps(t, s, now, "quiet"); !slices.Equal(all, []string{"quiet"}) {
			t.Errorf("a token of quiet sees the failures of %v", all)
		}
		if all, _ := failingApps(t, s, now.Add(view.AttentionSpan), quiet...); len(all) != 0 {
			t.Errorf("a day later, failures of %v are shown", all)
		}
	})
}

// In a flood attention sends no more statements than with a few failures. Only PostgreSQL counts them.
func TestAttentionSendsAsManyStatementsInAFlood(t *testing.T) {
	t.Parallel()
	registry, now := prometheus.NewRegistry(), may1.Add(days(30))
	s, err := store.Open(t.Context(), pgtest.New(t), store.Options{Options: db.Options{Metrics: registry}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	statements := func() float64 {
		before := sent(t, registry)
		_, err = s.Attention(t.Context(), nil, now)
		must(t, err)
		return sent(t, registry) - before
	}
	_, _, err = s.PutApp(t.Context(), access.App{Name: "calm", AppSpec: access.AppSpec{Enabled: true}}, input.Change{Now: now})
	must(t, err)
	calm := statements()
	failFlood(t, s, []string{"quiet"}, now)
	noteFailures(t, s, now)
	if flooded := statements(); flooded > calm+2 { // one reads of which apps the failures are, and one reads them
		t.Errorf("attention sent %v statements in a flood, and %v without one, want two more at most", flooded, calm)
	}
}

// A budget that burns is found among many jobs that were late, but not often.
func TestAttentionFindsTheBudgetThatBurnsAmongMany(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s, now := open(t, database), may1.Add(days(30))
		c := scale{apps: 1, jobs: 250, now: now}
		c.days = 1
		fillModel(t, s, c)
		fillJobs(t, s, c)
		from := now.Add(-10 * time.Minute).UnixMilli()
		for _, statement := range []string{
			`UPDATE jobs SET objective = '{"within":"1s","of":"99%"}'`,
			fmt.Sprintf(`INSERT INTO objectives (job_id, within, counted_from, checked_to) SELECT id, 1000, %d, %d FROM jobs`, from,
				now.UnixMilli()),
			fmt.Sprintf(`INSERT INTO objective_counts (job_id, minutes, from_at, good, late, missed)
				SELECT id, 5, %d, CASE WHEN id = (SELECT max(id) FROM jobs) THEN 1 ELSE 999 END, 1, 0 FROM jobs`,
				now.Add(-5*time.Minute).UnixMilli()),
		} {
			must(t, store.Exec(t.Context(), s, statement))
		}
		found, err := s.Attention(t.Context(), nil, now)
		must(t, err)
		if len(found.Objectives.Items) != 1 || found.Objectives.More {
			t.Errorf("%d budgets burn (more: %v), want one", len(found.Objectives.Items), found.Objectives.More)
		}
	})
}

// What is noted is noted once: a round in which nothing has failed writes nothing.
func TestFailuresAreNotedOnce(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s, now := open(t, database), may1.Add(days(30))
		failFlood(t, s, []string{"quiet"}, now)
		noteFailures(t, s, now)
		if got := count(t, s, `SELECT count(*) FROM app_failures`); got != 2 {
			t.Errorf("failures of %d apps are noted, want 2", got)
		}
		const at = `SELECT cursor FROM locks WHERE name = 'statistics_failures'`
		before := count(t, s, at)
		noteFailures(t, s, now.Add(time.Minute))
		if after := count(t, s, at); before != now.Add(-10*time.Second).UnixMilli() || after != before {
			t.Errorf("the cursor was at %d, and at %d after a round without failures, want both ten seconds before %d", before, after,
				now.UnixMilli())
		}
	})
}
