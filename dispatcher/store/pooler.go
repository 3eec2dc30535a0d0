package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A pooler in transaction mode lends a connection to a server for one transaction. What a session
// keeps there is then gone, or somebody else's. Carillon keeps there what it can do without, see
// session, and the statements that it has prepared by name, which spare the server the parsing.

// suitPooler looks whether a database is reached through a pooler, and has connections prepare no
// statement by name then.
func suitPooler(ctx context.Context, config *pgx.ConnConfig) error {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	// A pooler makes up the number by which requests can be cancelled, for it has clients that have no server.
	var server uint32
	err = conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&server)
	if err == nil && server != conn.PgConn().PID() {
		nameNothing(config)
	}
	if err != nil {
		err = fmt.Errorf("look for a pooler: %w", err)
	}
	return errors.Join(err, conn.Close(ctx))
}

// nameNothing has connections prepare no statement by name, unless their URL says how they are to
// (default_query_exec_mode).
func nameNothing(config *pgx.ConnConfig) {
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}
