// Package crowd fills a database like an installation with many jobs after three months, so that tests and
// benchmarks measure the cost of pages and lists then. It declares one object of each kind through a store,
// and copies it in the database: the ids follow from the names, so copies look like declared objects.
package crowd

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx; the store imports that of SQLite

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The apps. Big has four fifths of the jobs. The frequent jobs of Flood have failed for a day.
const (
	apps  = 20
	Big   = "app00"
	Small = "app07"
	Flood = "app02"
)

const (
	// Days is the length of the history.
	Days = 90
	day  = 24 * time.Hour
	// portion is how many jobs one statement copies.
	portion = 500
	// ahead is the delay of the copies' first fire, so that nothing is due during a measurement.
	ahead = 2 * time.Hour
)

// Crowd is a filled database.
type Crowd struct {
	Jobs int
	Now  time.Time
	// Runs is the number of runs in the history.
	Runs int

	db       *sql.DB
	postgres bool
}

// App returns the app of a job by its number.
func (c *Crowd) App(n int) string {
	switch {
	case n%often == 0:
		return Flood
	case n%5 != 0:
		return Big
	}
	return fmt.Sprintf("app%02d", 1+n/5%(apps-1))
}

// Job returns the name of a job by its number.
func (c *Crowd) Job(n int) string { return fmt.Sprintf("job-%06d", n) }

// Of returns the number of a job of an app, a different one for each n; the app must have one.
func (c *Crowd) Of(app string, n int) int {
	for at := n * 997 % c.Jobs; ; at = (at + 1) % c.Jobs {
		if c.App(at) == app && at%often != 0 {
			return at
		}
	}
}

// Fill fills an empty, migrated database with so many jobs and some 40 times as many runs.
func Fill(ctx context.Context, database string, jobs int, now time.Time) (_ *Crowd, err error) {
	c := &Crowd{Jobs: jobs, Now: now.UTC().Truncate(time.Second)}
	if err := c.connect(database); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.db.Close()) }()
	if err := c.declare(ctx, database); err != nil {
		return nil, fmt.Errorf("declare what is copied: %w", err)
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"days", c.partitions}, {"jobs", c.jobs}, {"runs", c.runs}, {"live runs", c.liveRuns}, {"misfires", c.misfires},
		{"operations", c.operations}, {"statistics", c.analyze},
	} {
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("fill %s: %w", step.what, err)
		}
	}
	return c, c.db.QueryRowContext(ctx, `SELECT count(*) FROM runs`).Scan(&c.Runs)
}

// connect opens the only connection that fills a database. After a crash, the database is useless.
func (c *Crowd) connect(database string) (err error) {
	driver, address := "pgx", database
	if file, is := strings.CutPrefix(database, "sqlite:"); is {
		driver, address = "sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(30000)"
	}
	c.postgres = driver == "pgx"
	if c.db, err = sql.Open(driver, address); err == nil {
		c.db.SetMaxOpenConns(1)
	}
	return err
}

// model is the job to copy, and tick its trigger.
const (
	model = "model"
	tick  = "tick"
)

// declare declares apps, the model, and a few objects that are not copied.
func (c *Crowd) declare(ctx context.Context, database string) error {
	s, err := store.Open(ctx, database, store.Options{Options: db.Options{AlongsideNode: true}})
	if err != nil {
		return err
	}
	change := input.Change{Actor: "crowd", Operator: true, Now: c.Now.Add(-Days * day)}
	for n := range apps {
		_, _, err := s.PutApp(ctx, access.App{Name: fmt.Sprintf("app%02d", n), AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{
			Quotas: target.Quotas{Jobs: 1_000_000, Triggers: 1_000_000},
		}, Retention: input.Duration((Days + 10) * day)}}, change)
		if err != nil {
			return errors.Join(err, s.Close())
		}
	}
	job := dispatcher.Job{App: Big, Name: model, JobSpec: dispatcher.JobSpec{Enabled: true, Description: strings.Repeat("describes it ", 5),
		Labels: input.Labels{"team": model}, Payload: []byte(`{"x":"` + strings.Repeat("y", 300) + `"}`),
		Triggers: map[string]dispatcher.Trigger{tick: {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "rate(24h)",
			Timezone: "Europe/Berlin"}}}},
		Target: target.Target{Webhook: &target.Webhook{URL: "https://example.com/", Method: "POST"}}}}
	job.Target.Webhook.SetDefaults()
	job.SetDefaults()
	trigger := job.Triggers[tick]
	trigger.SetDefaults()
	job.Triggers[tick] = trigger
	_, _, err = s.PutJob(ctx, job, change)
	return errors.Join(err, c.declareOthers(ctx, s, change), s.Close())
}

// declareOthers declares calendars, groups, alerts and tokens.
func (c *Crowd) declareOthers(ctx context.Context, s *store.Store, change input.Change) error {
	for _, app := range []string{Big, Small} {
		for n := range 20 {
			calendar := dispatcher.Calendar{App: app, Name: fmt.Sprintf("calendar-%02d", n)}
			group := target.EndpointGroup{App: app, Name: fmt.Sprintf("group-%02d", n),
				EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{}}}
			for at := range 100 {
				group.Endpoints[fmt.Sprintf("endpoint-%03d", at)] = target.StaticEndpoint{URL: fmt.Sprintf("https://host%d.example.com", at)}
			}
			a := alert.Alert{App: app, Name: fmt.Sprintf("alert-%02d", n), Spec: alert.Spec{Jobs: []string{model}}}
			a.SetDefaults()
			a.Failure = &alert.Failures{After: 1}
			a.Destination.Webhook = &target.AlertWebhook{}
			a.Destination.Webhook.SetDefaults()
			a.Destination.Webhook.URL = "https://example.com/alerts"
			_, _, calendarErr := s.PutCalendar(ctx, calendar, change)
			_, _, groupErr := s.PutGroup(ctx, group, change)
			_, _, alertErr := s.PutAlert(ctx, a, change)
			if err := errors.Join(calendarErr, groupErr, alertErr); err != nil {
				return err
			}
		}
	}
	return nil
}

// tx runs statements in one transaction.
func (c *Crowd) tx(ctx context.Context, do func(exec func(statement string, args ...any) error) error) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after a commit
	if c.postgres {     // a crash makes the database useless anyway
		if _, err := tx.ExecContext(ctx, `SET LOCAL synchronous_commit = off`); err != nil {
			return err
		}
	}
	if err := do(func(statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}); err != nil {
		return err
	}
	return tx.Commit()
}

// analyze updates the database's statistics.
func (c *Crowd) analyze(ctx context.Context) error {
	statement := `PRAGMA optimize=0x10002`
	if c.postgres {
		statement = `VACUUM (ANALYZE)`
	}
	_, err := c.db.ExecContext(ctx, statement)
	return err
}
