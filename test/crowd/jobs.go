package crowd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// How often jobs fire: one in a thousand every 12 minutes, one in ten daily, the others every 90 hours.
const (
	often = 1000
	daily = 10
)

// period returns the time between two fires of a job, and the number of its runs.
func period(n int) (between time.Duration, count int) {
	switch {
	case n%often == 0:
		return 12 * time.Minute, 10_000
	case n%daily == 1:
		return day, Days
	}
	return 90 * time.Hour, int(Days * day / (90 * time.Hour))
}

// jobs copies the model, and records in a separate table how often each copy fires.
func (c *Crowd) jobs(ctx context.Context) error {
	return c.tx(ctx, func(exec func(string, ...any) error) error {
		if err := exec(`CREATE TABLE crowd (n BIGINT PRIMARY KEY, job_id BIGINT, trigger_id BIGINT, app_id BIGINT, latest BIGINT,
			period BIGINT, runs BIGINT)`); err != nil {
			return err
		}
		for first := 0; first < c.Jobs; first += portion {
			for _, statement := range c.copies(first, min(first+portion, c.Jobs)) {
				if err := exec(statement); err != nil {
					return err
				}
			}
		}
		for _, statement := range c.changes() {
			if err := exec(statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// The rows of the model that its copies also get.
const (
	jobColumns = `description, enabled, paused, priority, node_labels, delivery, retry, concurrency_policy, max_concurrency, queue_limit,
		target, target_kind, payload, trigger_names, revision, created_at, updated_at`
	triggerColumns = `revision, misfire_after, jitter, repeat_count, fired, enabled, paused, job_paused, delayed, drift_hour, name, dialect,
		timezone, gap, overlap, calendar, on_excluded, error, node_labels`
	clockColumns    = `revision, calendar_revision, misfire_after, off, delayed, state, node_labels`
	revisionColumns = `revision, calendar_revision, from_at, to_at, cause, settled_at, name, dialect, timezone, start_at, end_at, repeat_count,
		gap, overlap, drift_hour, calendar, on_excluded, jitter, misfire_after, enabled, paused, labels, zones`
)

// copies returns statements that copy the model to the jobs with numbers in [first, last).
func (c *Crowd) copies(first, last int) []string {
	var rows []string
	for n := first; n < last; n++ {
		app, job := c.App(n), c.Job(n)
		between, count := period(n)
		latest := c.latest(n)
		next := latest.Add(between)
		for next.Before(c.Now.Add(ahead)) {
			next = next.Add(between)
		}
		expression := fmt.Sprintf("rate(%dm)", between/time.Minute)
		rows = append(rows, fmt.Sprintf("(%d, %d, %d, '%s', '%s', 'host%d.example.com', '%s', %d, %d, %d, '%s', %d, %d, %d)", n,
			run.JobID(app, job), run.AppID(app), app, job, n%200, input.Labels{"team": fmt.Sprintf("team-%d", n%50)},
			run.TriggerID(app, job, tick), latest.UnixMilli(), next.UnixMilli(), expression, between.Milliseconds(), count,
			latest.Add(-between*time.Duration(count)).UnixMilli()))
	}
	v := `WITH v (n, id, app_id, app, name, host, labels, trigger_id, latest, next, expression, period, runs, anchor) AS (VALUES ` +
		strings.Join(rows, ", ") + `) `
	job, trigger := run.JobID(Big, model), run.TriggerID(Big, model, tick)
	copied := func(table, own, values, columns, key string, id int64) string {
		columns = strings.Join(strings.Fields(columns), " ")
		return `INSERT INTO ` + table + ` (` + own + `, ` + columns + `) ` + v + `SELECT ` + values + `, m.` +
			strings.ReplaceAll(columns, ", ", ", m.") + fmt.Sprintf(` FROM v CROSS JOIN %s AS m WHERE m.%s = %d`, table, key, id)
	}
	return []string{
		copied("jobs", "id, app_id, app, name, target_name, labels, state", "v.id, v.app_id, v.app, v.name, v.host, v.labels, 'executing'",
			jobColumns, "id", job),
		copied("triggers", "id, job_id, app_id, expression, anchor_at", "v.trigger_id, v.id, v.app_id, v.expression, v.anchor",
			triggerColumns, "id", trigger),
		copied("trigger_clock", "id, app_id, next_fire_time, due_at, prev_fire_time", "v.trigger_id, v.app_id, v.next, v.next, v.latest",
			clockColumns, "id", trigger),
		copied("trigger_revisions", "job_id, id, expression, anchor_at", "v.id, v.trigger_id, v.expression, v.anchor", revisionColumns, "id",
			trigger),
		`INSERT INTO crowd (n, job_id, trigger_id, app_id, latest, period, runs) ` + v +
			`SELECT v.n, v.id, v.trigger_id, v.app_id, v.latest, v.period, v.runs FROM v`,
	}
}

// changes returns statements that change some of the copies: they pause some, and set errors for others.
func (c *Crowd) changes() []string {
	now := c.Now.UnixMilli()
	of := func(key, rest string) string {
		return ` WHERE id IN (SELECT ` + key + ` FROM crowd WHERE n % 400 = ` + rest + `)`
	}
	return []string{
		fmt.Sprintf(`UPDATE jobs SET paused = TRUE, state = 'paused', paused_at = %d, pause = '{"paused_by":"ada","pause_reason":"waits"}'`,
			now-3_600_000) + of("job_id", "1"),
		`UPDATE triggers SET job_paused = TRUE` + of("trigger_id", "1"),
		`UPDATE trigger_clock SET off = 4` + of("trigger_id", "1"),
		`UPDATE jobs SET state = 'error'` + of("job_id", "2"),
		`UPDATE triggers SET error = 'the calendar is gone'` + of("trigger_id", "2"),
		`UPDATE trigger_clock SET state = 'error', off = 8` + of("trigger_id", "2"),
	}
}
