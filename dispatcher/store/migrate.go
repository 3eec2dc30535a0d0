package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/migrations"
)

// Migrate brings the schema of a database up to date. Any number of nodes may call it at the same time. The error is
// ErrSchemaTooNew if a newer version has migrated the database.
func Migrate(ctx context.Context, database string) error { return MigrateAs(ctx, database, db.Login{}) }

// MigrateAs is Migrate for a database with a login outside its URL, or without some capabilities.
func MigrateAs(ctx context.Context, database string, login db.Login, without ...db.Capability) error {
	a, err := db.ParseAddress(database)
	if err != nil {
		return err
	}
	a.Login = login
	if err := migrate(ctx, a, without); err != nil {
		return fmt.Errorf("migrate database %s: %w", a, err)
	}
	return nil
}

func migrate(ctx context.Context, a db.Address, without db.Capabilities) error {
	database, options, done, err := migrator(ctx, a, without)
	if err != nil {
		return err
	}
	dialect, scripts := scriptsOf(a)
	byDay := false
	if a.Path == "" {
		if byDay, err = db.Partitioned(ctx, database, without); err != nil {
			return errors.Join(err, done())
		}
		if !byDay {
			scripts = migrations.Plain(scripts)
		}
	}
	provider, err := goose.NewProvider(dialect, database, scripts, append(options, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return errors.Join(err, done())
	}
	failpoint.During(failpoint.DuringMigration)
	if err = up(ctx, provider); err == nil {
		err = checkSchema(ctx, database, a)
	}
	if err == nil && byDay {
		d := &db.DB{Write: database, Read: database, Flavor: &db.Postgres{Has: db.AllCapabilities().Without(without)}}
		err = assembled(dispatch.New(slog.Default()), d, Options{}).FirstDays(ctx)
	}
	return errors.Join(err, done())
}

// How long a script waits for a lock, how often it is tried, and the pause between tries.
const (
	scriptLocks = "SET lock_timeout = '1s'"
	scriptTries = 20
	scriptPause = 3 * time.Second
)

// up runs the scripts that have not run. A script that waits for a lock, as while the database is dumped, delays every
// claim after it; so it soon gives up, and is tried again after waiting claims.
func up(ctx context.Context, p *goose.Provider) error {
	locked := func(err error) bool {
		var refused *pgconn.PgError
		return errors.As(err, &refused) && refused.Code == db.LockNotAvailable
	}
	err := backoff.Pauses{First: scriptPause, Most: scriptPause}.Repeat(ctx, func() error {
		_, err := p.Up(ctx)
		return err
	}, func(f backoff.Failure) bool { return locked(f.Err) && f.Tries < scriptTries })
	if locked(err) && ctx.Err() == nil {
		return fmt.Errorf("another transaction goes on that uses what is to be changed, such as a dump: %w", err)
	}
	return err
}

// migrator opens the database for migration. On PostgreSQL a row with a lease excludes other nodes that start at the
// same time; on SQLite the lock file does.
func migrator(ctx context.Context, a db.Address, without db.Capabilities) (*sql.DB, []goose.ProviderOption, func() error, error) {
	if a.Path != "" {
		s, err := db.OpenSQLite(ctx, a, db.Options{})
		if err != nil {
			return nil, nil, nil, err
		}
		return s.Write, nil, s.Close, nil
	}
	config, err := db.PoolConfig(a)
	if err != nil {
		return nil, nil, nil, err
	}
	db.NameNothing(config.ConnConfig) // for a few statements it is not worth finding out whether a pooler needs this
	db := stdlib.OpenDB(*config.ConnConfig, stdlib.OptionBeforeConnect(config.BeforeConnect),
		stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			if without.Has(db.SessionSettings) {
				return nil
			}
			if err := conn.PgConn().Exec(ctx, scriptLocks).Close(); err != nil && !db.Lacks(err) {
				return err
			}
			return nil
		}))
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableLockTimeout(200*time.Millisecond, 1500),
		// A node that starts after another was killed during a migration waits until its lease ends.
		lock.WithTableLeaseDuration(5*time.Second),
		lock.WithTableHeartbeatInterval(time.Second),
		lock.WithTableUnlockTimeout(200*time.Millisecond, 50),
		lock.WithTableLogger(slog.New(slog.DiscardHandler)), // the error contains all that matters
	)
	if err != nil {
		return nil, nil, nil, errors.Join(err, db.Close())
	}
	return db, []goose.ProviderOption{goose.WithLocker(locker)}, db.Close, nil
}

func scriptsOf(a db.Address) (goose.Dialect, fs.FS) {
	dialect, scripts, dir := goose.DialectPostgres, migrations.Postgres, "postgres"
	if a.Path != "" {
		dialect, scripts, dir = goose.DialectSQLite3, migrations.SQLite, "sqlite"
	}
	sub, err := fs.Sub(scripts, dir)
	if err != nil {
		panic(err) // dir is a constant
	}
	return dialect, sub
}

// family is how many script numbers belong together. The scripts of a family only add to the schema, and their
// additions may be left out: a program that knows one of them can use the schema of a later one. So nodes of two
// versions run side by side, and an upgrade can be reverted.
const family = 1000

// checkSchema compares the schema's version with the newest script.
func checkSchema(ctx context.Context, db *sql.DB, a db.Address) error {
	have, err := appliedVersion(ctx, db)
	if err != nil {
		if pingErr := db.PingContext(ctx); pingErr != nil {
			return pingErr
		}
		return fmt.Errorf("it has no schema; run carillon migrate: %w", err)
	}
	_, scripts := scriptsOf(a)
	switch want, err := newest(scripts); {
	case err != nil:
		return err
	case SchemaVersion{have, want}.TooNew():
		return fmt.Errorf("schema %d, newest known %d: %w", have, want, dispatcher.ErrSchemaTooNew)
	case have < want:
		return fmt.Errorf("schema %d is older than %d; run carillon migrate", have, want)
	}
	return nil
}

// appliedVersion returns the number of the newest script that has been run.
func appliedVersion(ctx context.Context, db *sql.DB) (version int64, err error) {
	const applied = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`
	err = db.QueryRowContext(ctx, applied).Scan(&version)
	return version, err
}

func newest(scripts fs.FS) (int64, error) {
	names, err := fs.Glob(scripts, "*.sql")
	if err != nil {
		return 0, err
	}
	var most int64
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("script %s has no number: %w", name, err)
		}
		most = max(most, n)
	}
	return most, nil
}
