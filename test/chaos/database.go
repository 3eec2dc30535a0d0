package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/postgres"
)

// databaseName is the name of the nodes' database.
const databaseName = "chaos"

// database is the PostgreSQL of a run.
type database struct {
	*postgres.Server
	dir    string
	listen string
	// small is true if the data are on a separate file system that can be filled.
	small bool
}

// diskSize is the size of the small file system.
const diskSize = "size=512m"

// startDatabase starts a server in dir, where it mounts a file system in memory if it is permitted.
func startDatabase(ctx context.Context, parent string) (_ *database, err error) {
	bin, ok := postgres.Find()
	if !ok {
		return nil, errors.New("no PostgreSQL on this machine; install it: apt-get install -y postgresql")
	}
	d := &database{}
	// Not in the run's directory, because the path of a socket has at most 107 bytes.
	if d.dir, err = os.MkdirTemp("", "chaos-pg-"); err != nil {
		return nil, err
	}
	d.small = unix.Mount("tmpfs", d.dir, "tmpfs", 0, diskSize) == nil
	if err := os.Chmod(d.dir, 0o755); err != nil {
		return nil, err
	}
	if d.listen, err = freeport.Address(ctx); err != nil {
		return nil, err
	}
	host, port, _ := strings.Cut(d.listen, ":")
	d.Server = postgres.New(bin, d.dir, "listen_addresses="+host, "port="+port, "max_connections=200", "shared_buffers=64MB",
		"min_wal_size=32MB", "max_wal_size=64MB", "log_line_prefix=%m [%p] ")
	if err := d.Init(ctx); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	if err := d.Start(ctx, ""); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, d.Execute(ctx, "postgres", "CREATE DATABASE "+databaseName)
}

// URL returns the URL over TCP, without the proxies.
func (d *database) URL(name string) string {
	return "postgres://postgres@" + d.listen + "/" + name + "?sslmode=disable"
}

func (d *database) address() string { return d.listen }

// Execute runs a statement.
func (d *database) Execute(ctx context.Context, name, statement string) error {
	_, err := d.count(ctx, name, statement)
	return err
}

// count runs a statement, and returns the number that it selects, or 0.
func (d *database) count(ctx context.Context, name, statement string) (n int64, err error) {
	conn, err := pgx.Connect(ctx, d.URL(name))
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, statement).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return n, err
}

// script runs several statements.
func (d *database) script(ctx context.Context, name, text string) error {
	conn, err := pgx.Connect(ctx, d.URL(name))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, text)
	return err
}

// restart stops the server by a signal and starts it again after a while.
func (d *database) restart(ctx context.Context, by syscall.Signal, down time.Duration) error {
	if err := d.Stop(ctx, by); err != nil {
		return err
	}
	pause(ctx, down)
	return d.Start(context.WithoutCancel(ctx), "")
}

// copyTo cuts the connections to the nodes' database and copies it. It returns since when the copy lacks commits.
func (d *database) copyTo(ctx context.Context, name string) (at time.Time, err error) {
	if err := d.shut(ctx); err != nil {
		return at, err
	}
	at = time.Now()
	err = d.Execute(ctx, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+databaseName)
	return at, errors.Join(err, d.Execute(ctx, "postgres", "ALTER DATABASE "+databaseName+" ALLOW_CONNECTIONS true"))
}

// replaceBy replaces the nodes' database by a copy, and keeps the old one under another name. It
// returns the time from which no node can commit to the old one.
func (d *database) replaceBy(ctx context.Context, name, keep string) (at time.Time, err error) {
	if err := d.shut(ctx); err != nil {
		return at, err
	}
	at = time.Now()
	for _, statement := range []string{
		"ALTER DATABASE " + databaseName + " RENAME TO " + keep, "ALTER DATABASE " + keep + " ALLOW_CONNECTIONS true",
		"ALTER DATABASE " + name + " RENAME TO " + databaseName,
	} {
		if err := d.Execute(ctx, "postgres", statement); err != nil {
			return at, fmt.Errorf("%s: %w", statement, err)
		}
	}
	return at, nil
}

// shut cuts all connections to the nodes' database, and refuses new ones.
func (d *database) shut(ctx context.Context) error {
	err := d.Execute(ctx, "postgres", "ALTER DATABASE "+databaseName+" ALLOW_CONNECTIONS false")
	for left := int64(1); err == nil && left > 0; {
		if _, err = d.count(ctx, "postgres", fmt.Sprintf(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = '%s'`, databaseName)); err == nil {
			left, err = d.count(ctx, "postgres", fmt.Sprintf(`SELECT count(*) FROM pg_stat_activity WHERE datname = '%s'`, databaseName))
		}
	}
	return err
}

// fill fills the disk, and returns a function that frees it. The server's log is on the same disk,
// so the function also starts a server that has stopped.
func (d *database) fill() (empty func(context.Context) error, err error) {
	filler := filepath.Join(d.dir, "filler")
	file, err := os.Create(filler)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		n, err := file.Write(chunk)
		if n == 0 && err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	return func(ctx context.Context) error {
		if err := os.Remove(filler); err != nil {
			return err
		}
		for d.Running() {
			if err = d.Execute(ctx, "postgres", "SELECT 1"); err == nil {
				return nil
			}
			pause(ctx, 100*time.Millisecond)
		}
		return d.Start(ctx, "")
	}, nil
}

// remove stops the server and removes its files.
func (d *database) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) //nolint:forbidigo // that of the run may be over
	defer cancel()
	var err error
	if d.Running() {
		err = d.Stop(ctx, syscall.SIGQUIT)
	}
	if d.Started() {
		err = errors.Join(err, d.Close())
	}
	if d.small {
		// Ending processes still have their log open there.
		err = errors.Join(err, unix.Unmount(d.dir, unix.MNT_DETACH))
	}
	if removeErr := os.RemoveAll(d.dir); removeErr != nil {
		err = errors.Join(err, fmt.Errorf("remove %s: %w", d.dir, removeErr))
	}
	return err
}
