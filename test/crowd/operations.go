package crowd

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// operations adds objects of people and nodes: an audit log, tokens and sessions, alerts that fire,
// backfills, bulk actions, objectives, and a hundred nodes, most of them dead.
func (c *Crowd) operations(ctx context.Context) error {
	now, heartbeat := c.Now.UnixMilli(), c.Now.Add(-time.Hour).UnixMilli()
	if !c.postgres { // a file with heartbeats also needs the lock file of their node
		heartbeat = 0
	}
	replace := strings.NewReplacer("{now}", fmt.Sprint(now), "{heartbeat}", fmt.Sprint(heartbeat), "{day}", "CAST(86400000 AS BIGINT)",
		"{jobs}", fmt.Sprint(c.Jobs),
		"{later}", fmt.Sprint(c.Now.Add(365*day).UnixMilli()))
	return c.tx(ctx, func(exec func(string, ...any) error) error {
		for _, statement := range append(c.byJob(), c.byNumber()...) {
			if err := exec(replace.Replace(statement)); err != nil {
				return fmt.Errorf("%w in %s", err, statement)
			}
		}
		return exec(`DROP TABLE crowd`)
	})
}

// byJob returns statements about some of the jobs.
func (c *Crowd) byJob() []string {
	return []string{
		`INSERT INTO audit_log (at, id, actor, token_id, action, app, subject, revision, after)
		SELECT {now} - (c.n * 2 + i.i) * 60000, c.n * 2 + i.i, 'actor' || c.n % 40, '', 'update', j.app, 'job ' || j.name, 2, '{"enabled":true}'
		FROM crowd AS c JOIN jobs AS j ON j.id = c.job_id CROSS JOIN (SELECT 0 AS i UNION ALL SELECT 1) AS i`,
		`INSERT INTO alert_states (id, alert_id, job_id, condition, firing, armed, kept_back, track)
		SELECT c.n, a.id, c.job_id, 'failures', c.n % 10 = 0, FALSE, FALSE, '{"since":"2026-01-01T00:00:00Z","count":1}'
		FROM crowd AS c JOIN alerts AS a ON a.app_id = c.app_id AND a.name = 'alert-01'`,
		`INSERT INTO alert_events (app_id, at, id, alert, job, event)
		SELECT c.app_id, {now} - c.n * 60000, c.n, 'alert-01', j.name, '{"transition":"firing","condition":"failures"}'
		FROM crowd AS c JOIN jobs AS j ON j.id = c.job_id`,
		`INSERT INTO host_waits (id, app_id, job_id, host, pause, probe_at)
		SELECT c.n + 1, c.app_id, c.job_id, 'host' || c.n % 200 || '.example.com', 30000, {now} + 86400000 FROM crowd AS c WHERE c.n % 500 = 7`,
		`INSERT INTO objectives (job_id, within, counted_from, checked_to)
		SELECT c.job_id, 1000, {now} - 90 * {day}, {now} FROM crowd AS c WHERE c.n % 100 = 9`,
		`UPDATE jobs SET objective = '{"within":"1s","of":"99.9%"}' WHERE id IN (SELECT job_id FROM objectives)`,
		`INSERT INTO objective_counts (job_id, minutes, from_at, good, late, missed)
		SELECT c.job_id, 1440, ({now} / {day} - d.d) * {day}, 20, 1, 0 FROM crowd AS c JOIN objectives AS o ON o.job_id = c.job_id
		CROSS JOIN (WITH RECURSIVE d (d) AS (SELECT 1 UNION ALL SELECT d + 1 FROM d WHERE d < 89) SELECT d FROM d) AS d`,
		`INSERT INTO objective_counts (job_id, minutes, from_at, good, late, missed)
		SELECT c.job_id, 5, ({now} / 300000 - d.d) * 300000, 1, d.d % 4, 0 FROM crowd AS c JOIN objectives AS o ON o.job_id = c.job_id
		CROSS JOIN (WITH RECURSIVE d (d) AS (SELECT 1 UNION ALL SELECT d + 1 FROM d WHERE d < 288) SELECT d FROM d) AS d`,
		`INSERT INTO backfills (id, app_id, job_id, spec, schedules, state, total, queued, succeeded, created_by, traceparent, created_at,
			ended_at)
		SELECT c.n + 1, c.app_id, c.job_id, '{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","concurrency":1,"order":"oldest_first"}',
			'{}', 'complete', 24, 24, 24, 'ada', '', {now} - 3600000, {now} - 60000 FROM crowd AS c WHERE c.n % 50 = 11`,
		`INSERT INTO bulk_actions (id, app_id, spec, state, total, more, done, created_by, token_id, address, request_id, traceparent,
			created_at, ended_at)
		SELECT c.n + 1, c.app_id, '{"action":"run_jobs","filter":{"name":"job"}}', 'complete', 24, FALSE, 24, 'ada', '', '', '', '',
			{now} - 3600000,
			{now} - 60000 FROM crowd AS c WHERE c.n % 50 = 12`,
		`INSERT INTO app_pauses (app_id, id, labels, reason, paused_by, paused_at)
		SELECT DISTINCT c.app_id, 'crowd', 'team=nobody', 'waits', 'ada', {now} - 3600000 FROM crowd AS c`,
	}
}

// byNumber returns statements about objects without a job.
func (c *Crowd) byNumber() []string {
	numbers := func(most int) string {
		return fmt.Sprintf(`(WITH RECURSIVE i (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM i WHERE i < %d) SELECT i FROM i) AS i`, most)
	}
	return []string{
		`INSERT INTO locks (name, holder, fence, locked_until, free_at, cursor)
		VALUES ('statistics', 0, 0, 0, 0, {now}), ('statistics_final', 0, 0, 0, 0, {now} - {now} % {day})`,
		`INSERT INTO run_statistics (app_id, day, final, state, runs, attempts, started, late_sum, late_most)
		SELECT a.id, ({now} / {day} - i.i) * {day}, TRUE, s.state, 1000, 1100, 1000, 5000, 900 FROM apps AS a CROSS JOIN ` + numbers(Days) + `
		CROSS JOIN (SELECT 'succeeded' AS state UNION ALL SELECT 'failed' UNION ALL SELECT 'skipped' UNION ALL SELECT '') AS s`,
		`INSERT INTO api_tokens (id, name, description, hash, scopes, apps, created_at)
		SELECT 'crowd' || i.i, 'crowd-' || i.i, '', '` + strings.Repeat("a", 56) + `' || (10000000 + i.i),
			'["read"]', '["app07"]', {now} FROM ` + numbers(1000),
		`INSERT INTO sessions (id, hash, token_id, rules, apps, created_at, used_at, ends_at)
		SELECT 'crowd' || i.i, '` + strings.Repeat("b", 56) + `' || (10000000 + i.i), 'crowd' || i.i, '', '',
			{now}, {now}, {later} FROM ` + numbers(1000),
		`INSERT INTO nodes (id, name, version, state, apps, labels, zones, started_at, heartbeat_at, in_flight, fires, lag,
			clock_offset, empty_at)
		SELECT i.i + 1000, 'node-' || i.i, '1.0.0', 'dead', '', '', '', {now} - {day}, {heartbeat}, 0, 0, 0, 0, {now} - 3500000 FROM ` +
			numbers(99),
	}
}
