package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// expiredDays is the number of days of history beyond every retention.
const expiredDays = 5

// ageHistory makes the runs of all days, each day in separate partitions, like the clean-up. One
// run in ten belongs to the app with the short retention; one in fifty was repeated, one in twenty
// has a response, and one in two hundred failed for good.
func (w *world) ageHistory(ctx context.Context) error {
	// The triggers of the history, by number.
	const sample = `CREATE UNLOGGED TABLE soak_sample AS
		SELECT row_number() OVER () - 1 AS n, id, job_id FROM (
			(SELECT t.id, t.job_id FROM triggers AS t WHERE t.app_id = $1 LIMIT 9000)
			UNION ALL (SELECT t.id, t.job_id FROM triggers AS t WHERE t.app_id = $2 LIMIT 1000)) AS s`
	statement := strings.NewReplacer("$1", fmt.Sprint(run.AppID(idle)), "$2", fmt.Sprint(run.AppID(brief))).Replace(sample)
	if err := w.old.execute(ctx, statement); err != nil {
		return err
	}
	samples, err := w.old.number(ctx, "SELECT count(*) FROM soak_sample")
	if err != nil {
		return err
	}
	if err := w.old.execute(ctx, "ALTER TABLE soak_sample ADD PRIMARY KEY (n); ANALYZE soak_sample"); err != nil {
		return err
	}
	today := time.Now().UTC().Truncate(dayLength)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for n := range w.days + expiredDays {
		// The store makes the partitions of yesterday and today.
		day := today.Add(-time.Duration(n+2) * dayLength)
		group.Go(func() error { return w.fillDay(within, day, w.runs/w.days, samples) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return w.old.execute(ctx, "DROP TABLE soak_sample")
}

// fillDay makes the partitions and the history of a day in one transaction, so that the server writes no WAL for them.
func (w *world) fillDay(ctx context.Context, day time.Time, runs int, samples int64) error {
	tx, err := w.old.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // no effect after a commit
	from, step := day.UnixMilli(), dayLength.Milliseconds()/int64(runs)
	const picked = ` FROM generate_series(0, %[3]d - 1) AS i JOIN soak_sample AS s ON s.n = i * 7919 %% %[5]d`
	for _, table := range []struct{ name, fill string }{
		{"runs", `INSERT INTO %[1]s (scheduled_at, trigger_id, job_id, revision, node, ended_at, claimed_ms, started_ms, attempt, http_status,
				kind, state, class)
			SELECT %[2]d + i * %[4]d, s.id, s.job_id, 1, 1 + i %% 20, %[2]d + i * %[4]d + 40 + i %% 100, 50 + i %% 100, 30 + i %% 100,
				1 + CAST(i %% 50 = 0 AS integer), CASE WHEN i %% 200 = 0 THEN 503 ELSE 204 END, 1,
				CASE WHEN i %% 200 = 0 THEN 'failed' END, CASE WHEN i %% 200 = 0 THEN 'http_5xx' END` + picked},
		{"attempts", `INSERT INTO %[1]s (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status, state, class, error)
			SELECT %[2]d + i * %[4]d, s.id, 1, 1, 1, %[2]d + i * %[4]d, %[2]d + i * %[4]d + 9, 503, 'failed', 'http_5xx', ''` + picked +
			` WHERE i %% 50 = 0`},
		{"responses", `INSERT INTO %[1]s (scheduled_at, trigger_id, kind, attempt, response)
			SELECT %[2]d + i * %[4]d, s.id, 1, 1, '{"body":"` + strings.Repeat("x", 200) + `"}'` + picked + ` WHERE i %% 20 = 1`},
	} {
		name := table.name + "_" + day.Format("20060102")
		fill := fmt.Sprintf(table.fill, name, from, runs, step, samples)
		_, err := tx.Exec(ctx, fmt.Sprintf(`CREATE TABLE %[1]s (LIKE %[2]s INCLUDING ALL); %[3]s;
			ALTER TABLE %[2]s ATTACH PARTITION %[1]s FOR VALUES FROM (%[4]d) TO (%[5]d)`,
			name, table.name, fill, from, day.Add(dayLength).UnixMilli()))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return tx.Commit(ctx)
}
