package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The place of a database is the server, its timeline, and the database and table in it. A dump
// that was restored is at another place than what it was taken from, and so is a server that was
// restored to a point in time or was a standby before.
// A server that does not tell of its system or timeline, as some managed ones, has a shorter place.
const (
	tablePlace  = `(SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || CAST('installation'::regclass AS oid)`
	serverPlace = `SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || '/' || ` + tablePlace
)

// placeOf returns where the database is that a connection leads to.
func placeOf(ctx context.Context, conn *pgx.Conn) (where string, err error) {
	err = conn.QueryRow(ctx, serverPlace, pgx.QueryExecModeExec).Scan(&where)
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code {
		case "42883", "42501", "0A000": // undefined_function, insufficient_privilege, feature_not_supported
			err = conn.QueryRow(ctx, `SELECT `+tablePlace, pgx.QueryExecModeExec).Scan(&where)
		}
	}
	if err != nil {
		return "", fmt.Errorf("read where the database is: %w", err)
	}
	return where, nil
}

// follow notes that the database which nodes use is at another place now, and whole.
func (p *postgres) follow(ctx context.Context, conn *pgx.Conn) error {
	where, err := placeOf(ctx, conn)
	if err != nil {
		return err
	}
	// $1 place
	_, err = conn.Exec(ctx, `UPDATE installation SET database_identity = $1 WHERE database_identity <> $1`, pgx.QueryExecModeExec, where)
	return err
}

// settlingTime is within how long of a failover the nodes that were at work have looked whether
// something is missing: they come back within five seconds, but for the jitter.
const settlingTime = 30 * time.Second

// errUnsettled says that it is too early to tell whether the database lost commits.
var errUnsettled = errors.New("the database is at another place than before, and the nodes that used it there have not said yet whether something is missing")

func (p *postgres) where(ctx context.Context) (where string, err error) {
	err = p.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		where, err = placeOf(ctx, conn.Conn())
		return err
	})
	return where, err
}

func (p *postgres) astray(ctx context.Context, t *tx, where string) (reason string, err error) {
	known, _, err := first(ctx, t, scanText, `SELECT database_identity FROM installation`)
	if err != nil || known == where {
		return "", err
	}
	// $1 now, $2 milliseconds
	var working, latest int64
	row := t.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE state <> 'dead' AND abs(heartbeat_at - CAST($1 AS bigint)) < $2), COALESCE(max(heartbeat_at), 0) FROM nodes`,
		t.now.UnixMilli(), settlingTime.Milliseconds())
	if err := row.Scan(&working, &latest); err != nil {
		return "", err
	}
	if known != "" && working > 0 {
		return "", errUnsettled
	}
	// $1 place
	if _, err := t.ExecContext(ctx, `UPDATE installation SET database_identity = $1`, where); err != nil {
		return "", err
	}
	if known == "" || latest == 0 {
		return "", nil
	}
	return fmt.Sprintf("it was at place %s when nodes used it last, and is at %s now; the latest heartbeat in it is of %s", known, where, instant(latest).Format(time.RFC3339)), nil
}
