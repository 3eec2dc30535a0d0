package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres"
)

// world has everything that a soak needs and measures.
type world struct {
	options
	log        io.Writer // progress
	server     *postgres.Server
	dir        string
	old, young *database
	targets    *targets
	snapshot   *pgx.Conn // blocks vacuum in the old database
	admin      *pgx.Conn // reads statistics, in neither database
	begun      time.Time // before the first fleet
	figures    figures
}

// database is one of the two databases.
type database struct {
	name, url string
	pool      *pgxpool.Pool // for work outside of stores
}

// settings are server settings for benchmarks. Partitions that are made and filled in one transaction need no
// WAL at the minimal level, which halves the time for a history; nothing else depends on the level.
func (o options) settings() []string {
	buffers, sync := "shared_buffers=1GB", "fsync=on"
	if o.short { // a short run checks no speed
		buffers, sync = "shared_buffers=128MB", "fsync=off"
	}
	return []string{"listen_addresses=", "max_connections=300", buffers, sync, "max_wal_size=8GB", "wal_level=minimal",
		"max_wal_senders=0", "maintenance_work_mem=256MB", "log_min_messages=warning"}
}

// newWorld starts the server and migrates both databases.
func newWorld(ctx context.Context, o options, log io.Writer) (w *world, err error) {
	bin, ok := postgres.Find()
	if !ok {
		return nil, errors.New("no PostgreSQL on this machine; install it: apt-get install -y postgresql")
	}
	dir, err := os.MkdirTemp("", "carillon-soak-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user runs the server
		return nil, err
	}
	w = &world{options: o, log: log, dir: dir, server: postgres.New(bin, dir, o.settings()...)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := w.server.Init(ctx); err != nil {
		return nil, err
	}
	remove := dir
	if o.keep {
		remove = ""
	}
	if err := w.server.Start(ctx, remove); err != nil {
		return nil, err
	}
	if w.admin, err = pgx.Connect(ctx, w.server.URL("postgres")); err != nil {
		return nil, err
	}
	for name, database := range map[string]**database{"old": &w.old, "young": &w.young} {
		if *database, err = w.newDatabase(ctx, name); err != nil {
			return nil, err
		}
	}
	w.targets, err = newTargets()
	return w, err
}

func (w *world) newDatabase(ctx context.Context, name string) (*database, error) {
	if _, err := w.admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	url := w.server.URL(name)
	if err := store.Migrate(ctx, url); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4
	config.ConnConfig.RuntimeParams["application_name"] = "soak"
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off" // a crash ends the soak anyway
	config.ConnConfig.RuntimeParams["work_mem"] = "256MB"
	config.ConnConfig.RuntimeParams["default_statistics_target"] = "10" // of a thousand partitions
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return &database{name: name, url: url, pool: pool}, err
}

// both returns the databases in the order of their turns.
func (w *world) both() []*database { return []*database{w.old, w.young} }

// execute runs a statement outside of all stores.
func (d *database) execute(ctx context.Context, statement string, args ...any) error {
	if _, err := d.pool.Exec(ctx, statement, args...); err != nil {
		return fmt.Errorf("database %s: %w", d.name, err)
	}
	return nil
}

// number reads one number.
func (d *database) number(ctx context.Context, query string, args ...any) (n int64, err error) {
	if err := d.pool.QueryRow(ctx, query, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("database %s: %w", d.name, err)
	}
	return n, nil
}

// openSnapshot opens a snapshot of the old database for the whole soak, like a dump or a forgotten
// session. From now on vacuum removes nothing there.
func (w *world) openSnapshot(ctx context.Context) (err error) {
	if w.snapshot, err = pgx.Connect(ctx, w.old.url); err != nil {
		return err
	}
	_, err = w.snapshot.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM apps")
	return err
}

// vacuum leaves tables as autovacuum would after all those years.
func (w *world) vacuum(ctx context.Context) error {
	for _, d := range w.both() {
		if err := d.execute(ctx, "VACUUM ANALYZE"); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything.
func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) //nolint:forbidigo // that of the run may be over
	defer cancel()
	for _, conn := range []*pgx.Conn{w.snapshot, w.admin} {
		if conn != nil {
			_ = conn.Close(ctx)
		}
	}
	for _, d := range w.both() {
		if d != nil && d.pool != nil {
			d.pool.Close()
		}
	}
	if w.targets != nil {
		w.targets.close()
	}
	var problems []error
	if w.server.Started() {
		problems = append(problems, w.server.Stop(ctx, syscall.SIGQUIT), w.server.Close())
	}
	if w.keep {
		fmt.Fprintln(w.log, "the databases are in", filepath.Join(w.dir, "data"))
		return errors.Join(problems...)
	}
	return errors.Join(append(problems, os.RemoveAll(w.dir))...)
}
