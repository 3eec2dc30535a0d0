package crowd

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// partitions makes the partitions for the days of the history, which a node makes day by day.
func (c *Crowd) partitions(ctx context.Context) error {
	if !c.postgres {
		return nil
	}
	return c.tx(ctx, func(exec func(string, ...any) error) error {
		from := c.Now.Truncate(day).Add(-(Days + 2) * day)
		for at := from; at.Before(c.Now.Add(3 * day)); at = at.Add(day) {
			for _, table := range []string{"runs", "attempts", "responses", "broadcasts", "run_inputs"} {
				if err := exec(fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %[1]s_%[2]s PARTITION OF %[1]s FOR VALUES FROM (%[3]d) TO (%[4]d)`,
					table, at.Format("20060102"), at.UnixMilli(), at.Add(day).UnixMilli())); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// state returns the state of a run, by a hash of its job and its number among the job's runs: of a
// thousand, eight have failed, one timed out, one is lost, and twenty were skipped. One job in five
// hundred has a failed latest run, and the flood's runs of the last day have failed.
func state() string {
	return fmt.Sprintf(`CASE WHEN c.n %% 500 = 3 AND i.i = 0 OR c.n %% %d = 0 AND i.i < 120 THEN 'failed' ELSE
		CASE (c.n * 7919 + i.i * 104729) %% 1000 WHEN 7 THEN 'timed_out' WHEN 8 THEN 'lost' WHEN 9 THEN 'failed' WHEN 10 THEN 'failed'
		WHEN 11 THEN 'failed' WHEN 12 THEN 'failed' WHEN 13 THEN 'failed' WHEN 14 THEN 'failed' WHEN 15 THEN 'failed' WHEN 16 THEN 'failed'
		ELSE CASE WHEN (c.n * 7919 + i.i * 104729) %% 1000 BETWEEN 20 AND 39 THEN 'skipped' END END END`, often)
}

// runs gives each job its runs, in the order of their scheduled times. Failed runs get an earlier
// attempt and a response. SQLite gets its indexes afterwards, which is faster.
func (c *Crowd) runs(ctx context.Context) error {
	indexes, err := c.dropIndexes(ctx)
	if err != nil {
		return err
	}
	numbers := `WITH RECURSIVE i (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM i WHERE i < 9999) `
	statements := []string{
		`CREATE TABLE crowd_numbers (i BIGINT PRIMARY KEY)`,
		`INSERT INTO crowd_numbers (i) ` + numbers + `SELECT i FROM i`,
		`INSERT INTO runs (scheduled_at, trigger_id, job_id, revision, node, ended_at, claimed_ms, started_ms, attempt, http_status, kind, state,
			class, error)
		SELECT r.at, r.trigger_id, r.job_id, 1, CASE r.state WHEN 'skipped' THEN 0 ELSE 1 + r.n % 5 END, r.at + 1000, 990,
			CASE r.state WHEN 'skipped' THEN NULL ELSE 20 + (r.n + r.i) % 970 END,
			CASE r.state WHEN 'skipped' THEN 0 WHEN 'failed' THEN 2 ELSE 1 END,
			CASE r.state WHEN 'failed' THEN 503 WHEN 'timed_out' THEN 0 WHEN 'lost' THEN 0 WHEN 'skipped' THEN 0 ELSE 204 END, 1, r.state,
			CASE r.state WHEN 'failed' THEN 'http_5xx' WHEN 'timed_out' THEN 'timeout' END,
			CASE r.state WHEN 'failed' THEN '503 Service Unavailable' END
		FROM (SELECT c.n, i.i, c.latest - i.i * c.period AS at, c.trigger_id, c.job_id, ` + state() + ` AS state
			FROM crowd AS c CROSS JOIN crowd_numbers AS i WHERE i.i < c.runs) AS r ORDER BY r.at, r.trigger_id`,
		`INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status, state, class, error)
		SELECT scheduled_at, trigger_id, kind, 1, 1, scheduled_at + 5, scheduled_at + 400, 503, 'failed', 'http_5xx', '503 Service Unavailable'
		FROM runs WHERE state = 'failed'`,
		`INSERT INTO responses (scheduled_at, trigger_id, kind, attempt, response)
		SELECT scheduled_at, trigger_id, kind, 2, '{"body":"` + strings.Repeat("unavailable ", 20) + `"}' FROM runs WHERE state = 'failed'`,
		`INSERT INTO run_inputs (scheduled_at, trigger_id, kind, input)
		SELECT scheduled_at, trigger_id, kind, '{"payload":{"x":1}}' FROM runs WHERE state IN ('lost', 'timed_out')`,
		`DROP TABLE crowd_numbers`,
	}
	return c.tx(ctx, func(exec func(string, ...any) error) error {
		for _, statement := range append(statements, indexes...) {
			if err := exec(statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// dropIndexes drops the indexes of the history, and returns the statements that create them again.
func (c *Crowd) dropIndexes(ctx context.Context) (again []string, err error) {
	if c.postgres {
		return nil, nil
	}
	rows, err := c.db.QueryContext(ctx, `SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'runs' AND sql IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name, statement string
		if err := rows.Scan(&name, &statement); err != nil {
			return nil, err
		}
		names, again = append(names, name), append(again, statement)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := c.db.ExecContext(ctx, `DROP INDEX `+name); err != nil {
			return nil, err
		}
	}
	return again, nil
}

// liveRuns adds runs that wait for their next attempt or for a callback, until tomorrow.
func (c *Crowd) liveRuns(ctx context.Context) error {
	now := c.Now.UnixMilli()
	return c.tx(ctx, func(exec func(string, ...any) error) error {
		return exec(fmt.Sprintf(`INSERT INTO live_runs (app_id, scheduled_at, trigger_id, job_id, revision, node, token, claimed_at, started_at,
				next_attempt_at, retry_until, attempt, failures, http_status, kind, state, class, error)
			SELECT 1, %[1]d - c.n %% 100000, c.trigger_id, c.job_id, 1, 0, 0, %[1]d - 50000, NULL, %[1]d + 86400000 + c.n, %[1]d + 172800000,
				2, 1, 503, 1,
				'retrying', 'http_5xx', '503 Service Unavailable'
			FROM crowd AS c WHERE c.n %% 12 = 5`, now))
	})
}

// misfires adds two misfires per job in ninety days; one job in a hundred has them in the last day.
func (c *Crowd) misfires(ctx context.Context) error {
	return c.tx(ctx, func(exec func(string, ...any) error) error {
		return exec(`INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, node, decided_at)
			SELECT c.latest - c.n % 90 * 86400000 + 60000 * i.i, c.latest - c.n % 90 * 86400000 + 60000 * i.i, c.trigger_id, c.job_id, 1, 'skip',
				'late', 1, c.latest - c.n % 90 * 86400000 + 60000 * i.i + 90000
			FROM crowd AS c CROSS JOIN (SELECT 1 AS i UNION ALL SELECT 2) AS i`)
	})
}
