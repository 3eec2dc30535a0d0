package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// scale is how much a database holds.
type scale struct {
	apps, jobs, days int
	now              time.Time
}

func (c scale) app(n int) string { return fmt.Sprintf("app%02d", n%c.apps) }

func (c scale) job(n int) string { return fmt.Sprintf("job-%06d", n) }

// fillModel stores the apps, and the job that fillJobs copies.
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

// modelJob returns a job as people have it.
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

// fillJobs copies the model.
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
