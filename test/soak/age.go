package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Times in the distant past.
const (
	dayLength = 24 * time.Hour
	longAgo   = 400 * dayLength // beyond every retention
)

// kept is the longest retention, and briefly the shorter one of one app.
func (o options) kept() time.Duration    { return time.Duration(o.days) * dayLength }
func (o options) briefly() time.Duration { return max(o.kept()/4, input.MinRetention) }

// kind is an app with one job that stands for many.
type kind struct {
	app       string
	retention time.Duration
	triggers  int
	perJob    int
	due       string                      // SQL: when the triggers of copy n are due; empty for the job's times
	change    func(*dispatcher.Job)       // changes the job before its declaration
	finish    func(context.Context) error // runs before the copies are made
}

func (w *world) kinds() []kind {
	rest := w.triggers - w.overdue - w.labelled
	return []kind{
		{app: idle, retention: w.kept(), triggers: rest * 9 / 10, perJob: perJob, due: tomorrow(rest)},
		{app: brief, retention: w.briefly(), triggers: rest / 10, perJob: perJob, due: tomorrow(rest)},
		{app: disabled, triggers: w.overdue, perJob: perJob, due: overdue(), finish: w.disable},
		{app: labelled, triggers: w.labelled, perJob: 1, due: overdue(), change: requireLabels, finish: w.switchOffLabelled},
		{app: gone, triggers: w.deleted * perJob, perJob: perJob, finish: w.deleteGone},
		{app: idle + "-removed", retention: w.kept(), triggers: w.removed, perJob: perJob, finish: w.removeTriggers},
		{app: churning, triggers: churnTriggers, perJob: perJob, due: overdue()},
	}
}

// ageDefinitions declares one job of each kind through the store, and multiplies its rows: a million triggers
// through the API would take an hour. The ids of copies follow from their names, so copies look like declared jobs.
func (w *world) ageDefinitions(ctx context.Context) error {
	if err := w.declareNeighbours(ctx); err != nil {
		return err
	}
	for _, k := range w.kinds() {
		if err := w.declareKind(ctx, k); err != nil {
			return fmt.Errorf("app %s: %w", k.app, err)
		}
	}
	return errors.Join(w.varyLabels(ctx), w.retire(ctx))
}

func (w *world) declareKind(ctx context.Context, k kind) error {
	job := newJob(k.app, 0, w.targets.working)
	for i := range k.perJob {
		job.Triggers[fmt.Sprintf("t%d", i)] = newTrigger(dayLength, far())
	}
	if k.change != nil {
		k.change(&job)
	}
	app := access.App{Name: k.app, AppSpec: access.AppSpec{Retention: input.Duration(k.retention)}}
	if err := w.old.declare(ctx, app, []dispatcher.Job{job}); err != nil {
		return err
	}
	if k.finish != nil {
		if err := k.finish(ctx); err != nil {
			return err
		}
	}
	return w.old.multiply(ctx, k.app, k.triggers/k.perJob, k.due)
}

// declareNeighbours declares the apps that fill the database.
func (w *world) declareNeighbours(ctx context.Context) error {
	for _, crowd := range []struct {
		app    string
		jobs   int
		url    string
		every  time.Duration
		change func(*dispatcher.Job)
	}{
		{neighbour, neighbourJobs, w.targets.shared + "/working", beat, func(*dispatcher.Job) {}},
		{broken, brokenJobs, w.targets.shared + "/broken", time.Second, func(job *dispatcher.Job) { job.Retry.StopAtNextFire = true }},
		{hanging, w.hangingJobs(), w.targets.hanging, beat, func(*dispatcher.Job) {}},
	} {
		jobs := singles(crowd.app, crowd.jobs, crowd.url, crowd.every, crowd.change)
		if err := w.old.declare(ctx, access.App{Name: crowd.app}, jobs); err != nil {
			return fmt.Errorf("app %s: %w", crowd.app, err)
		}
	}
	return nil
}

func (o options) hangingJobs() int {
	if o.short {
		return hangingJobs / 10
	}
	return hangingJobs
}

// tomorrow spreads copies over the day that begins an hour from now. The prime scatters consecutive
// due times over the table.
func tomorrow(copies int) string {
	return fmt.Sprintf("%d + (n * 7919 %% %[2]d) * %d / %[2]d", time.Now().Add(time.Hour).UnixMilli(), copies, dayLength.Milliseconds())
}

// overdue makes copies due in the hour before now, one after the other.
func overdue() string {
	return fmt.Sprintf("%d + n * 7919 %% %d", time.Now().Add(-time.Hour).UnixMilli(), (50 * time.Minute).Milliseconds())
}

// multiply copies the job job-0 of an app with its triggers, until the app has so many jobs.
func (d *database) multiply(ctx context.Context, app string, jobs int, due string) error {
	// As run.JobID and TriggerID: 63 bits of a hash of the names.
	id := func(kind, names string) string {
		return fmt.Sprintf(`((('x' || encode(substring(sha256(convert_to('%s/%s/job-' || n%s, 'UTF8')) FROM 1 FOR 8), 'hex'))::bit(64)::bigint
			>> 1) & 9223372036854775807) | 1`, kind, app, names)
	}
	job, trigger := id("job", ""), id("trigger", ` || '/' || t.name`)
	moved := func(column string) string {
		if due == "" {
			return "r." + column
		}
		return fmt.Sprintf("CASE WHEN r.%s IS NULL THEN NULL ELSE %s END", column, due)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, table := range []struct {
		name, from string
		set        map[string]string
	}{
		{"jobs", "jobs AS r", map[string]string{"id": job, "name": "'job-' || n"}},
		{"triggers", "triggers AS r JOIN triggers AS t ON t.id = r.id", map[string]string{
			"id": trigger, "job_id": job, "start_at": moved("start_at"), "anchor_at": moved("anchor_at")}},
		{"trigger_clock", "trigger_clock AS r JOIN triggers AS t ON t.id = r.id", map[string]string{
			"id": trigger, "next_fire_time": moved("next_fire_time"), "due_at": moved("due_at")}},
		{"trigger_revisions", "trigger_revisions AS r JOIN triggers AS t ON t.id = r.id", map[string]string{
			"id": trigger, "job_id": job, "next_fire_time": moved("next_fire_time")}},
	} {
		group.Go(func() error {
			of := "t.job_id"
			if table.name == "jobs" {
				of = "r.id"
			}
			columns, values, err := d.columns(ctx, table.name, table.set)
			if err != nil {
				return err
			}
			// $1 the job, $2 copies
			return d.execute(ctx, fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM %s CROSS JOIN generate_series(1, $2::bigint - 1) AS n
				WHERE %s = $1`, table.name, columns, values, table.from, of), run.JobID(app, "job-0"), jobs)
		})
	}
	return group.Wait()
}

// columns returns the columns of a table, and the values of a row r with some replaced.
func (d *database) columns(ctx context.Context, table string, set map[string]string) (names, values string, err error) {
	// $1 table
	const list = `SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum`
	rows, err := d.pool.Query(ctx, list, table)
	if err != nil {
		return "", "", err
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", "", err
	}
	all := make([]string, len(columns))
	for i, column := range columns {
		if all[i] = "r." + column; set[column] != "" {
			all[i] = set[column]
		}
	}
	return strings.Join(columns, ", "), strings.Join(all, ", "), nil
}
