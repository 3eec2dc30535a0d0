package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A pooler in transaction mode lends a connection to a server for one transaction. What a session
// keeps there is then gone, or somebody else's. Carillon keeps there what it can do without, see
// session, and the statements that it has prepared by name, which spare the server the parsing.

// tryOut tells what a database has, and whether it is reached through a pooler; then connections prepare no
// statement by name.
func tryOut(ctx context.Context, config *pgxpool.Config, without Capabilities) (pooled bool, has Capabilities, err error) {
	ctx, cancel := Bound(ctx, OtherTimeout)
	defer cancel()
	conn, err := connect(ctx, config)
	if err != nil {
		return false, nil, err
	}
	defer conn.Close(ctx) // it has changed nothing
	// A pooler makes up the number by which requests can be cancelled, for it has clients that have no server.
	var server uint32
	if err = conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&server); err != nil {
		return false, nil, fmt.Errorf("look for a pooler: %w", err)
	}
	if pooled = server != conn.PgConn().PID(); pooled {
		NameNothing(config.ConnConfig)
	}
	has, err = Probe(ctx, conn, without)
	return pooled, has, err
}

// connect makes a connection outside the pool.
func connect(ctx context.Context, pool *pgxpool.Config) (*pgx.Conn, error) {
	config := pool.ConnConfig.Copy()
	if err := pool.BeforeConnect(ctx, config); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config)
}

// checkedFor is how long what check has found holds behind a pooler.
const checkedFor = settlingTime / 3

// checkAgain returns what checks the connection for heartbeats when it is used, for a pooler may
// lead it to another server at any time, and nobody then has a new one.
func (p *Postgres) checkAgain() func(context.Context, *pgx.Conn) (bool, error) {
	var checked time.Time // guarded by the connection, which is the only one
	return func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		now := WallClock()
		if now.Sub(checked).Abs() < checkedFor {
			return true, nil
		}
		if err := p.check(ctx, conn); err != nil {
			return false, err
		}
		checked = now
		return true, nil
	}
}

// NameNothing has connections prepare no statement by name, unless their URL says how they are to
// (default_query_exec_mode).
func NameNothing(config *pgx.ConnConfig) {
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}
