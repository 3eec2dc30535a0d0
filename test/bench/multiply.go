package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// later is how far ahead multiplied triggers are due until makeDue moves them.
const later = 6 * time.Hour

// multiply declares one job with one trigger, and copies both in the database: a million jobs
// through the API would take minutes. The ids of the copies follow from their names, so copies look
// like declared ones. Rows are due in random order.
func (b *bench) multiply(ctx context.Context, app string, triggers int, target func(int) target.Target) error {
	start := nextSecond(later)
	schedule := dispatcher.Schedule{Expression: fmt.Sprintf("rate(%ds)", scalePeriod), StartAt: &start}
	d := declaration{
		app: app, triggers: 1, perJob: 1, target: target,
		schedule: func(int, time.Time) dispatcher.Schedule { return schedule },
	}
	if err := declare(ctx, b.database, d); err != nil {
		return err
	}
	// As run.JobID and TriggerID: 63 bits of a hash of the names.
	const id = `((('x' || encode(substring(sha256(convert_to(%s, 'UTF8')) FROM 1 FOR 8), 'hex'))::bit(64)::bigint
		>> 1) & 9223372036854775807) | 1`
	job, trigger := fmt.Sprintf(id, `'job/' || $2 || '/job-' || n`), fmt.Sprintf(id, `'trigger/' || $2 || '/job-' || n || '/t0'`)
	// $1 the job's id, $2 app, $3 how many
	jobs := `INSERT INTO jobs SELECT x.* FROM jobs AS t CROSS JOIN generate_series(1, $3::bigint - 1) AS n
		CROSS JOIN LATERAL jsonb_populate_record(t, jsonb_build_object('id', ` + job + `, 'name', 'job-' || n)) AS x
		WHERE t.id = $1 AND $2::text <> ''`
	// The prime scatters consecutive due times over the table.
	copies := func(table, moved string) string {
		return `INSERT INTO ` + table + ` SELECT x.* FROM ` + table + ` AS t CROSS JOIN generate_series(1, $3::bigint - 1) AS n
			CROSS JOIN LATERAL (SELECT (SELECT start_at FROM triggers WHERE job_id = $1)
				+ (n * 7919 % $3) * ` + fmt.Sprint(scalePeriod*1000) + ` / $3 AS at) AS d
			CROSS JOIN LATERAL jsonb_populate_record(t, jsonb_build_object('id', ` + trigger + `, ` + moved + `)) AS x
			WHERE t.id = (SELECT id FROM triggers WHERE job_id = $1)`
	}
	group, ctx := errgroup.WithContext(ctx)
	for table, statement := range map[string]string{
		"jobs":          jobs,
		"triggers":      copies("triggers", `'job_id', `+job+`, 'start_at', d.at, 'anchor_at', d.at`),
		"trigger_clock": copies("trigger_clock", `'next_fire_time', d.at, 'due_at', d.at`),
	} {
		group.Go(func() error {
			if _, err := b.pool.Exec(ctx, statement, run.JobID(app, "job-0"), app, triggers); err != nil {
				return err
			}
			_, err := b.pool.Exec(ctx, "VACUUM ANALYZE "+table)
			return err
		})
	}
	return group.Wait()
}

// makeDue makes the first triggers of an app, as many as a benchmark can fire, due from an instant
// on.
func (b *bench) makeDue(ctx context.Context, app string, from time.Time) error {
	// $1 app, $2 the instant, $3 how long from there on, milliseconds
	const move = `WITH f AS (SELECT min(due_at) AS first FROM trigger_clock WHERE app_id = $1),
		c AS (UPDATE trigger_clock AS t SET next_fire_time = t.next_fire_time - f.first + $2, due_at = t.due_at - f.first + $2
			FROM f WHERE t.app_id = $1 AND t.due_at < f.first + $3 RETURNING t.id)
		UPDATE triggers AS t SET start_at = t.start_at - f.first + $2, anchor_at = t.anchor_at - f.first + $2
		FROM f, c WHERE t.id = c.id`
	_, err := b.pool.Exec(ctx, move, run.AppID(app), from.UnixMilli(), (b.Time + time.Minute).Milliseconds())
	return err
}

// silence stops the fires of an app.
func (b *bench) silence(ctx context.Context, app string) error {
	// $1 app, $2 when the rest is due, which nothing reads before the benchmark ends
	const disable = `WITH a AS (UPDATE apps SET enabled = FALSE WHERE id = $1)
		UPDATE trigger_clock SET off = off | 1 WHERE app_id = $1 AND due_at < $2`
	_, err := b.pool.Exec(ctx, disable, run.AppID(app), time.Now().Add(time.Hour).UnixMilli())
	return err
}
