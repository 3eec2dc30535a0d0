package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// The identity of a database is the server, its timeline, and the database and table in it. A restored dump has
// another identity than its source, and so has a server that was restored to a point in time or was a standby before.
// A server that does not show its system or timeline, like some managed ones, has a shorter identity.
const (
	tableIdentity  = `(SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || CAST('installation'::regclass AS oid)`
	serverIdentity = `SELECT (SELECT system_identifier
		FROM pg_control_system()) || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || '/' || ` + tableIdentity
)

// identityOf returns the identity of the database that a connection leads to.
func identityOf(ctx context.Context, conn *pgx.Conn) (identity string, err error) {
	err = conn.QueryRow(ctx, serverIdentity, pgx.QueryExecModeExec).Scan(&identity)
	if e, is := errors.AsType[*pgconn.PgError](err); is {
		switch e.Code {
		case "42883", "42501", "0A000": // undefined_function, insufficient_privilege, feature_not_supported
			err = conn.QueryRow(ctx, `SELECT `+tableIdentity, pgx.QueryExecModeExec).Scan(&identity)
		}
	}
	if err != nil {
		return "", fmt.Errorf("read the identity of the database: %w", err)
	}
	return identity, nil
}

// $1 identity
const setIdentity = `UPDATE installation SET database_identity = $1 WHERE database_identity <> $1`

// Accept notes the identity.
func (p *Postgres) Accept(ctx context.Context, tx *sql.Tx, identity string) error {
	if !p.Has.Has(Identity) {
		return nil
	}
	_, err := tx.ExecContext(ctx, setIdentity, identity)
	return err
}

// settlingTime is how soon after a failover the running nodes have checked for missing commits: they come back within
// five seconds, plus the jitter.
const settlingTime = 30 * time.Second

// errTooEarly means that it is too early to decide whether the database lost commits.
var errTooEarly = errors.New("the database has another identity than before, and the nodes that used it have " +
	"not said yet whether something is missing")

// Identity reads the identity of the database on a separate connection.
func (p *Postgres) Identity(ctx context.Context) (identity string, err error) {
	if !p.Has.Has(Identity) {
		return "", nil
	}
	err = p.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		identity, err = identityOf(ctx, conn.Conn())
		return err
	})
	return identity, err
}

// Mismatch compares the identity with the one that was noted last, and notes it.
func (p *Postgres) Mismatch(ctx context.Context, tx *sql.Tx, now time.Time, identity string) (reason string, err error) {
	if !p.Has.Has(Identity) {
		return "", nil
	}
	known, _, err := First(ctx, tx, ScanText, `SELECT database_identity FROM installation`)
	if err != nil || known == identity {
		return "", err
	}
	// $1 now, $2 milliseconds
	var working, latest int64
	row := tx.QueryRowContext(ctx,
		`SELECT count(*) FILTER (WHERE state <> 'dead' AND abs(heartbeat_at - CAST($1 AS bigint)) < $2),
			COALESCE(max(heartbeat_at), 0) FROM nodes`,
		now.UnixMilli(), settlingTime.Milliseconds())
	if err := row.Scan(&working, &latest); err != nil {
		return "", err
	}
	if known != "" && working > 0 {
		return "", errTooEarly
	}
	if err := p.Accept(ctx, tx, identity); err != nil {
		return "", err
	}
	if known == "" || latest == 0 {
		return "", nil
	}
	return fmt.Sprintf("its identity was %s when nodes last used it, and is %s now; the latest heartbeat in it is of %s",
		known, identity, Instant(latest).Format(time.RFC3339)), nil
}

// Identity is the content of the lock file: the node that used the database last, and how many of its heartbeats the
// database contains.
func (s *SQLite) Identity(context.Context) (string, error) {
	if s.guard == nil || s.shared {
		return "", nil
	}
	said := make([]byte, mostMark)
	n, err := s.guard.ReadAt(said, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read lock file: %w", err)
	}
	return strings.TrimRight(string(said[:n]), "\x00"), nil // a file without a mark has only the process id
}

// Accept marks the current state of the database.
func (s *SQLite) Accept(ctx context.Context, tx *sql.Tx, _ string) error {
	_, _, err := First(ctx, tx, func(row Scanner) (id run.NodeID, err error) {
		var heartbeats int64
		if err = row.Scan(&id, &heartbeats); err == nil {
			s.Mark(id, heartbeats)
		}
		return id, err
	}, `SELECT id, heartbeats FROM nodes ORDER BY heartbeat_at DESC LIMIT 1`)
	return err
}

// Mismatch compares the mark with the database. A copy put in its place has fewer heartbeats. A database without its
// lock file may be a copy of any age.
func (s *SQLite) Mismatch(ctx context.Context, tx *sql.Tx, _ time.Time, identity string) (string, error) {
	if s.guard == nil || s.shared {
		return "", nil
	}
	latest, _, err := First(ctx, tx, ScanInt, `SELECT COALESCE(max(heartbeat_at), 0) FROM nodes`)
	if err != nil || latest == 0 {
		return "", err
	}
	until := "; the latest heartbeat in it is of " + Instant(latest).Format(time.RFC3339)
	var id uint64
	var heartbeats int64
	if read, _ := fmt.Sscanf(identity, markFormat, &id, &heartbeats); read < 2 {
		return "the file came without the lock file of its last use" + until, nil
	}
	node := run.NodeID(id)
	// $1 id
	stored, found, err := First(ctx, tx, ScanInt, `SELECT heartbeats FROM nodes WHERE id = $1`, node)
	switch {
	case err != nil:
		return "", err
	case !found:
		return fmt.Sprintf("node %s has used it last, and it does not know that node", node) + until, nil
	case stored < heartbeats:
		return fmt.Sprintf("node %s has sent %d heartbeats, and the database knows of %d", node, heartbeats, stored) + until, nil
	}
	return "", nil
}

// Mark does nothing: the identity of a server is enough.
func (p *Postgres) Mark(run.NodeID, int64) {}

// markFormat has the same number of bytes for each node and count, so each mark overwrites the previous one
// completely.
const markFormat = "%016x %019d\n"

// Mark writes the lock file after the commit of the heartbeats that it notes, so that it never claims too many. A
// mark that fails or is lost in a power failure leaves a rollback unnoticed, without other harm.
func (s *SQLite) Mark(node run.NodeID, heartbeats int64) {
	if s.guard != nil && !s.shared {
		_, _ = s.guard.WriteAt(fmt.Appendf(nil, markFormat, uint64(node), heartbeats), 0)
	}
}
