package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres"
	"github.com/carillon-dev/carillon/test/program"
)

// world is the environment of the tasks: a database with jobs, the receiver of their requests, and the agent.
type world struct {
	database *postgres.Server
	receiver *receiver
	agent    *agent
	url      string
	from     time.Time // the first judged second
	dir      string    // of the database
}

// Names of declared objects.
const (
	databaseName = "rollout"
	appName      = "rollout"
	shortJobs    = 10
	longJobs     = 5
)

// newWorld starts everything but the tasks.
func newWorld(ctx context.Context, o options) (*world, error) {
	bin, ok := postgres.Find()
	if !ok {
		return nil, errors.New("no PostgreSQL on this machine; install it: apt-get install -y postgresql")
	}
	// Not in the run's directory, because the path of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "rollout-pg-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user runs the server
		return nil, err
	}
	w := &world{database: postgres.New(bin, dir, "listen_addresses=", "max_connections=200", "shared_buffers=64MB"), dir: dir}
	if err := w.database.Init(ctx); err != nil {
		return nil, err
	}
	if err := w.database.Start(ctx, ""); err != nil {
		return nil, err
	}
	if err := w.database.Execute(ctx, "postgres", "CREATE DATABASE "+databaseName); err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.url = w.database.URL(databaseName)
	if w.receiver, err = startReceiver(ctx, o.pace); err == nil {
		w.agent, err = startAgent(ctx)
	}
	if err == nil {
		err = w.declare(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// declare declares jobs with triggers that fire each second, and jobs with long attempts.
func (w *world) declare(ctx context.Context, o options) error {
	if err := store.Migrate(ctx, w.url); err != nil {
		return err
	}
	s, err := store.Open(ctx, w.url, store.Options{Options: db.Options{AlongsideNode: true}})
	if err != nil {
		return err
	}
	defer s.Close()
	change := input.Change{Actor: "rollout"}
	if _, _, err := s.PutApp(ctx, access.App{Name: appName, AppSpec: access.AppSpec{Enabled: true}}, change); err != nil {
		return err
	}
	for i := range shortJobs {
		job := newJob(fmt.Sprintf("short-%d", i), w.receiver.url+"/short", target.DefaultTimeout.Std())
		for trigger := i; trigger < o.fires; trigger += shortJobs {
			job.Triggers["t"+strconv.Itoa(trigger)] = newTrigger("* * * * * ?")
		}
		if _, _, err := s.PutJob(ctx, job, change); err != nil {
			return err
		}
	}
	rate := fmt.Sprintf("rate(%s)", input.Duration((longJobs * o.longEvery).Round(time.Second)))
	for i := range longJobs {
		job := newJob(fmt.Sprintf("long-%d", i), w.receiver.url+"/long", o.timeout)
		trigger := newTrigger(rate)
		start := time.Now().Add(time.Duration(i+1) * o.longEvery).UTC().Truncate(time.Second)
		trigger.StartAt = &start
		job.Triggers["only"] = trigger
		if _, _, err := s.PutJob(ctx, job, change); err != nil {
			return err
		}
	}
	w.from = time.Now().Truncate(time.Second).Add(2 * time.Second)
	return nil
}

func newJob(name, url string, timeout time.Duration) dispatcher.Job {
	job := dispatcher.Job{App: appName, Name: name, JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{}}}
	job.SetDefaults()
	hook := &target.Webhook{}
	hook.SetDefaults()
	hook.URL, hook.Method, hook.Timeout = url, "POST", input.Duration(timeout)
	job.Target.Webhook = hook
	return job
}

func newTrigger(expression string) dispatcher.Trigger {
	var trigger dispatcher.Trigger
	trigger.SetDefaults()
	trigger.Expression, trigger.Timezone = expression, "UTC"
	return trigger
}

// settle waits until all runs that were scheduled before an instant have ended.
func (w *world) settle(ctx context.Context, to time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		live, err := query(ctx, w.url, pgx.RowTo[int], `SELECT ((SELECT count(*) FROM live_runs WHERE scheduled_at < $1) +
			(SELECT count(*) FROM claims WHERE $1 > ANY (scheduled_at)))::int`, to.UnixMilli())
		if err != nil {
			return err
		}
		overdue, err := query(ctx, w.url, pgx.RowTo[int],
			`SELECT count(*)::int FROM triggers JOIN trigger_clock USING (id) WHERE deleted_at IS NULL AND due_at < $1`, to.UnixMilli())
		if err != nil {
			return err
		}
		if live[0]+overdue[0] == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d runs are not over and %d triggers not fired, a minute after the last rollout", live[0], overdue[0])
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// query returns the rows of a statement.
func query[T any](ctx context.Context, url string, row pgx.RowToFunc[T], statement string, args ...any) ([]T, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, row)
}

// close ends everything.
func (w *world) close() error {
	if w.receiver != nil {
		w.receiver.close()
	}
	if w.agent != nil {
		w.agent.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) //nolint:forbidigo // that of the run may be over
	defer cancel()
	err := w.database.Stop(ctx, syscall.SIGQUIT)
	return errors.Join(err, w.database.Close(), os.RemoveAll(w.dir))
}

// buildVersion builds a version in a tree, or in this one if tree is empty.
func buildVersion(ctx context.Context, tree string, v version) error {
	return program.Build(ctx, tree, v.program, "-ldflags", "-s -w -X main.version="+v.name, "./dispatcher/cmd/carillon")
}

// checkOut returns a directory with the sources of the older version.
func checkOut(ctx context.Context, o options) (string, error) {
	tree := filepath.Join(o.dir, "older")
	if err := os.MkdirAll(tree, 0o755); err != nil { //nolint:gosec // sources
		return "", err
	}
	archive := filepath.Join(o.dir, "older.tar")
	for _, command := range [][]string{{"git", "archive", "-o", archive, o.from}, {"tar", "-xf", archive, "-C", tree}} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil { //nolint:gosec // a ref of the caller's
			return "", fmt.Errorf("sources of -from %s: %w: %s", o.from, err, out)
		}
	}
	return tree, os.Remove(archive)
}
