package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// failFlood stores an app with jobs that all failed six times in the hour before now, and the quiet apps with one
// failure each, older than all but the earliest of these.
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

// failingApps returns the apps with failures in attention, and the number of failures of the first app.
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

// A flood of failures in one app does not hide the failures of other apps.
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

// In a flood attention sends no more statements than with a few failures. Only PostgreSQL has a count of statements.
func TestAttentionSendsNoMoreStatementsInAFlood(t *testing.T) {
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
	if flooded := statements(); flooded > calm+2 { // one statement finds the failing apps, one reads their failures
		t.Errorf("attention sent %v statements in a flood, and %v without one, want two more at most", flooded, calm)
	}
}

// Attention finds a burning error budget among many jobs that were late, but seldom.
func TestAttentionFindsABurningBudgetAmongMany(t *testing.T) {
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

// Each failure is noted once: a round without new failures writes nothing.
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

// secretAlert returns an alert with this secret.
func secretAlert(token target.Secret) alert.Alert {
	a := alert.Alert{App: "demo", Name: "night"}
	a.SetDefaults()
	a.Failure = &alert.Failures{After: 1}
	a.Destination.Webhook = &target.AlertWebhook{}
	a.Destination.Webhook.SetDefaults()
	a.Destination.Webhook.URL = "https://example.com/"
	a.Destination.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: token}}
	return a
}

// Runs that deliver an alert get the values of its secrets. Users and the audit log do not see them.
func TestSecretsOfAlertsAreStoredApart(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		_, _, err := s.PutApp(t.Context(), access.App{Name: "demo", AppSpec: access.AppSpec{Enabled: true}}, input.Change{})
		must(t, err)
		stored, _, err := s.PutAlert(t.Context(), secretAlert(value("s3cret")), input.Change{})
		must(t, err)
		if got := stored.Destination.Webhook.Auth.Bearer.Token; got != (target.Secret{Stored: true}) {
			t.Errorf("secret as it is shown = %+v, want that it is stored", got)
		}
		attached := stored.Attached().Key()
		if got := openedOf(t, s, attached)["/alert/webhook/auth/bearer/token"]; got != "s3cret" {
			t.Errorf("secret as runs get it = %q", got)
		}
		again, _, err := s.PutAlert(t.Context(), secretAlert(target.Secret{Stored: true}), input.Change{})
		if must(t, err); again.Revision != stored.Revision {
			t.Errorf("revision after the same was put = %d, want %d", again.Revision, stored.Revision)
		}
		moved := secretAlert(target.Secret{Stored: true})
		moved.Destination.Webhook.URL = "https://evil.example.com/"
		var problems input.Problems
		if _, _, err = s.PutAlert(t.Context(), moved, input.Change{}); !errors.As(err, &problems) ||
			problems[0].Code != input.CodeSecretOrigin || problems[0].Path != "/destination/webhook/auth/bearer/token/stored" {
			t.Errorf("PutAlert of a stored secret with another host: %v", err)
		}
		must(t, s.DeleteAlert(t.Context(), "demo", "night", input.Change{}))
		entries, err := s.AuditEntries(t.Context(), access.AuditQuery{Page: input.Page{Limit: 100}})
		must(t, err)
		text, err := json.Marshal(entries)
		must(t, err)
		if strings.Contains(string(text), "s3cret") || strings.Count(string(text), "hash:") != 2 {
			t.Errorf("the audit log does not have hashes alone: %s", text)
		}
		if n, err := store.Count(t.Context(), s, `SELECT count(*) FROM secrets`); err != nil || n != 0 {
			t.Errorf("secrets after DeleteAlert = %d, %v, want none", n, err)
		}
	})
}

// Ten thousand jobs fail at once and recover while two nodes evaluate their ends. Each transition is notified once.
func TestTenThousandFailingJobsAreNotifiedOnceEach(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	s := open(t, pgtest.New(t))
	ctx, jobs := t.Context(), 10_000
	_, _, err := s.PutApp(ctx, access.App{Name: "demo", AppSpec: access.AppSpec{Enabled: true}}, input.Change{})
	must(t, err)
	w := target.Webhook{URL: "https://example.com/", Method: "POST", Timeout: target.DefaultTimeout}
	job := dispatcher.Job{App: "demo", Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true, Target: target.Target{Webhook: &w}}}
	_, _, err = s.PutJob(ctx, job, input.Change{})
	must(t, err)
	must(t, store.Exec(ctx, s, fmt.Sprintf(`INSERT INTO jobs (id, app_id, name, description, enabled, paused, priority,
			node_labels, delivery, retry, concurrency_policy, max_concurrency, queue_limit, target, payload,
			trigger_names, revision, created_at, updated_at)
		SELECT g, app_id, 'job-' || g, description, enabled, paused, priority, node_labels, delivery, retry, concurrency_policy,
			max_concurrency, queue_limit, target, payload, trigger_names, revision, created_at, updated_at
		FROM jobs, generate_series(1, %d) AS g WHERE name = 'job'`, jobs-1)))
	alert := secretAlert(target.Secret{Reference: "env:SECRET_DEMO_PAGER"})
	_, _, err = s.PutAlert(ctx, alert, input.Change{})
	must(t, err)
	for more := true; more; {
		done, _, err := s.WatchAlerts(ctx, nil, 2000, time.Time{})
		must(t, err)
		more = done.More
	}
	for minute, state := range []string{"failed", "failed", "succeeded"} {
		must(t, store.Exec(ctx, s, fmt.Sprintf(`INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt,
				http_status, state, class, error)
			SELECT 1767225600000 + %[1]d * 60000, id, 1767225600000 + %[1]d * 60000, 1, id, app_id, 1, 500, '%[2]s', '', 'broken'
			FROM jobs WHERE part_of = 0`, minute, state)))
		var nodes sync.WaitGroup
		for range 2 {
			nodes.Go(func() {
				for more := true; more; {
					done, err := s.FollowEnds(ctx, dispatcher.FollowQuery{Limit: 200})
					if err != nil {
						t.Error(err)
						return
					}
					more = done.More
				}
			})
		}
		nodes.Wait()
	}
	// Jobs that fail together are told of in one message, which has the notifications of the others.
	const told = ` FROM run_inputs CROSS JOIN LATERAL jsonb_array_elements(
		jsonb_build_array(input::jsonb->'payload') || coalesce(input::jsonb->'payload'->'others', '[]')) AS n WHERE kind = 6`
	for what, of := range map[string]struct {
		query string
		want  int
	}{
		"events":        {`SELECT count(*) FROM alert_events`, 2 * jobs},
		"firing":        {`SELECT count(*) FROM alert_states WHERE firing`, 0},
		"pending ends":  {`SELECT count(*) FROM pending_ends`, 0},
		"notifications": {`SELECT count(DISTINCT (n->>'job', n->>'sequence'))` + told, 2 * jobs},
		"of recoveries": {`SELECT count(DISTINCT n->>'job')` + told + ` AND n->>'transition' = 'resolved'`, jobs},
		"told twice":    {`SELECT count(*) - count(DISTINCT (n->>'job', n->>'sequence'))` + told, 0},
	} {
		if n, err := store.Count(ctx, s, of.query); err != nil || n != int64(of.want) {
			t.Errorf("%s = %d, %v, want %d", what, n, err, of.want)
		}
	}
}

// scale is the size of a database.
type scale struct {
	apps, jobs, days int
	now              time.Time
}

func (c scale) app(n int) string { return fmt.Sprintf("app%02d", n%c.apps) }

func (c scale) job(n int) string { return fmt.Sprintf("job-%06d", n) }

// fillModel stores the apps and the job that fillJobs copies.
func fillModel(t *testing.T, s *store.Store, c scale) {
	t.Helper()
	change := input.Change{Actor: "test", Now: c.now.Add(-days(c.days))}
	for n := range c.apps {
		_, _, err := s.PutApp(t.Context(), access.App{Name: c.app(n),
			AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(days(60))}}, change)
		must(t, err)
	}
	_, _, err := s.PutJob(t.Context(), modelJob(c.app(0), "model"), change)
	must(t, err)
}

// The critical alert has the last name and the highest id, and 600 others fire that were declared like it at first.
func TestAttentionShowsACriticalAlertAmongManyOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		change := input.Change{Actor: "test", Now: may1}
		_, _, err := s.PutJob(t.Context(), modelJob("app", "once"), change)
		must(t, err)
		for _, severity := range []target.AlertSeverity{target.AlertWarning, target.AlertCritical} {
			a := alert.Alert{App: "app", Name: "z", Spec: alert.Spec{Jobs: []string{"once"}}}
			a.SetDefaults()
			a.Failure, a.Destination.Webhook = &alert.Failures{After: 1}, &target.AlertWebhook{}
			a.Destination.Webhook.SetDefaults()
			a.Destination.Webhook.URL, a.Destination.Webhook.Format = "https://example.com/", target.AlertFormatPagerDuty
			a.Destination.Webhook.RoutingKey, a.Destination.Webhook.Severity = &target.Secret{Reference: "env:SECRET_APP_KEY"}, severity
			_, _, err = s.PutAlert(t.Context(), a, change)
			must(t, err)
			if severity == target.AlertWarning {
				must(t, store.Exec(t.Context(), s, `INSERT INTO alerts (id, app_id, name, description, definition, severity, job_id, revision,
						created_at, updated_at)
					WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
					SELECT i - 9223372036854775807, app_id, 'a' || i, '', definition, severity, job_id, 1, 0, 0 FROM alerts, n`))
			}
		}
		must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO alert_states
			(id, alert_id, job_id, condition, firing, armed, kept_back, track)
			SELECT id, id, %d, 'failure', TRUE, FALSE, FALSE, '{}' FROM alerts`, run.JobID("app", "once"))))
		for _, apps := range [][]string{nil, {"app"}} {
			a, err := s.Attention(t.Context(), apps, may1)
			must(t, err)
			if first := a.Alerts.Items[0]; first.Alert != "z" || first.Severity != target.AlertCritical || len(a.Alerts.Items) != view.MaxAttention {
				t.Errorf("apps %q: the first of %d alerts is %s, %s, want z, critical", apps, len(a.Alerts.Items), first.Alert, first.Severity)
			}
		}
	})
}

// modelJob returns a typical job.
func modelJob(app, name string) dispatcher.Job {
	model := dispatcher.Job{App: app, Name: name, JobSpec: dispatcher.JobSpec{Enabled: true, Description: strings.Repeat("describes it ", 5),
		Labels: input.Labels{"team": "payments"}, Payload: []byte(`{"x":"` + strings.Repeat("y", 300) + `"}`),
		Triggers: map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{
			Schedule: dispatcher.Schedule{Expression: "H * * * *", Timezone: "UTC"}}}},
		Target: target.Target{Webhook: &target.Webhook{
			URL: "https://example.com/", Method: "POST", Timeout: target.DefaultTimeout}}}}
	model.SetDefaults()
	tick := model.Triggers["tick"]
	tick.SetDefaults()
	model.Triggers["tick"] = tick
	return model
}

// fillJobs copies the model job.
func fillJobs(t *testing.T, s *store.Store, c scale) {
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
	model, tick := run.JobID(c.app(0), "model"), run.TriggerID(c.app(0), "model", "tick")
	for first := 0; first < c.jobs; first += portion {
		var rows []string
		for n := first; n < min(first+portion, c.jobs); n++ {
			app, job := c.app(n), c.job(n)
			rows = append(rows, fmt.Sprintf("(%d, %d, '%s', '%s', 'host%d.example.com', %d, %d)", run.JobID(app, job), run.AppID(app),
				app, job, n%200, run.TriggerID(app, job, "tick"), c.now.Add(time.Duration(n%3600)*time.Second).UnixMilli()))
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
