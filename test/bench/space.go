package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillon-dev/carillon/dispatcher/store"
)

// space is a throwaway schema of PostgreSQL, or a directory for SQLite, with Carillon's tables.
type space struct {
	database string        // as stores open it
	kind     string        // postgresql or sqlite
	pool     *pgxpool.Pool // in the schema; nil for SQLite
	dir      string        // for SQLite
	schema   string
}

func newSpace(ctx context.Context, database string) (*space, error) {
	name := "carillon_bench_" + strings.ToLower(rand.Text()[:8])
	s, err := newSQLite(database, name)
	if s == nil && err == nil {
		s, err = newSchema(ctx, database, name)
	}
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx, s.database); err != nil {
		return nil, errors.Join(err, s.remove(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// newSQLite returns nil for a database other than SQLite.
func newSQLite(database, name string) (*space, error) {
	path, ok := strings.CutPrefix(database, "sqlite:")
	if !ok {
		return nil, nil
	}
	dir := filepath.Join(filepath.Dir(path), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return &space{database: "sqlite:" + filepath.Join(dir, "carillon.db"), kind: "sqlite", dir: dir}, nil
}

func newSchema(ctx context.Context, database, name string) (*space, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, errors.New("the database's URL cannot be read") // its text may contain a password
	}
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	pool, err := pgxpool.New(ctx, u.String())
	if err != nil {
		return nil, errors.New("the database's URL cannot be read")
	}
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		pool.Close()
		return nil, fmt.Errorf("make a schema for the time of the benchmark: %w", err)
	}
	return &space{database: u.String(), kind: "postgresql", pool: pool, schema: name}, nil
}

// remove removes everything that was created.
func (s *space) remove(ctx context.Context) error {
	if s.pool == nil {
		return os.RemoveAll(s.dir)
	}
	defer s.pool.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := s.pool.Exec(ctx, "SET client_min_messages = warning; DROP SCHEMA "+s.schema+" CASCADE", pgx.QueryExecModeSimpleProtocol)
	return err
}

// wal returns the number of bytes in the server's log so far; 0 for SQLite.
func (s *space) wal(ctx context.Context) (bytes float64, err error) {
	if s.pool == nil {
		return 0, nil
	}
	err = s.pool.QueryRow(ctx, `SELECT CAST(pg_current_wal_insert_lsn() - '0/0' AS float8)`).Scan(&bytes)
	return bytes, err
}

// shift moves all triggers by a duration, as if they had been declared at that time.
func (s *space) shift(ctx context.Context, by time.Duration) error {
	// $1 milliseconds
	for _, shift := range []string{
		`UPDATE triggers SET start_at = start_at + $1, anchor_at = anchor_at + $1`,
		`UPDATE trigger_clock SET next_fire_time = next_fire_time + $1, due_at = due_at + $1`,
	} {
		if err := s.execute(ctx, shift, by.Milliseconds()); err != nil {
			return err
		}
	}
	return nil
}

// execute runs a statement outside of all stores.
func (s *space) execute(ctx context.Context, statement string, args ...any) error {
	if s.pool != nil {
		_, err := s.pool.Exec(ctx, statement, args...)
		return err
	}
	db, err := s.file()
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement, args...)
	return err
}

// file opens the SQLite file next to the store that uses it.
func (s *space) file() (*sql.DB, error) {
	return sql.Open("sqlite", s.dir+"/carillon.db?_pragma=busy_timeout(5000)")
}
