package db

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Probe tests the capabilities of a database, except those in without.
func Probe(ctx context.Context, conn *pgx.Conn, without Capabilities) (has Capabilities, err error) {
	for _, one := range []struct {
		Capability
		try func(context.Context, *pgx.Conn) (bool, error)
	}{
		{Notifications, hearsItself}, {DayPartitions, isPartitioned}, {SessionSettings, runs(session)}, {Identity, tellsIdentity},
		{SkipLocked, runs(`SELECT name FROM locks WHERE name = '' FOR UPDATE` + SkipLockedRows)},
	} {
		if without.Has(one.Capability) && one.Capability != DayPartitions { // the schema decides these
			continue
		}
		found, err := one.try(ctx, conn)
		if err != nil && !Lacks(err) {
			return nil, fmt.Errorf("try whether the database has %s: %w", one.Capability, err)
		}
		if err == nil && found {
			has = append(has, one.Capability)
		}
	}
	return has, nil
}

// Lacks reports whether an error means that the database lacks a tested feature permanently.
func Lacks(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && slices.Contains([]string{
		"0A000", // feature_not_supported
		"42601", // syntax_error
		"42883", // undefined_function
		"42704", // undefined_object, as of a setting
		"42703", // undefined_column
		"42P01", // undefined_table
		"42501", // insufficient_privilege
		"22023", // invalid_parameter_value
	}, refused.Code)
}

// hearTime is the maximum time for a notification that a connection sends to itself. PostgreSQL sends it with the
// response. Some databases accept LISTEN but deliver no notifications.
const hearTime = time.Second

// hearsItself listens and notifies in one exchange, which a pooler does not split.
func hearsItself(ctx context.Context, conn *pgx.Conn) (bool, error) {
	channel := "carillon_probe_" + strings.ToLower(rand.Text())
	err := conn.PgConn().Exec(ctx, "LISTEN "+channel+"; SELECT pg_notify('"+channel+"', '')").Close()
	if err != nil {
		return false, err
	}
	if heard, err := hears(ctx, conn, channel); err != nil || !heard {
		return false, err
	}
	return true, conn.PgConn().Exec(ctx, "UNLISTEN "+channel).Close()
}

// hears waits a moment for a notification on a channel.
func hears(ctx context.Context, conn *pgx.Conn, channel string) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, hearTime)
	defer cancel()
	for {
		heard, err := conn.WaitForNotification(waiting)
		switch {
		case err == nil && heard.Channel == channel:
			return true, nil
		case err == nil:
		case waiting.Err() != nil && ctx.Err() == nil:
			return false, nil
		default:
			return false, err
		}
	}
}

// kindOfRuns reads whether the table runs, if it exists, has partitions.
const kindOfRuns = `SELECT CASE WHEN relkind = 'p' THEN 1 ELSE 0 END FROM pg_class WHERE oid = to_regclass('runs')`

// isPartitioned reads the result of the first migration.
func isPartitioned(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var made int
	err := conn.QueryRow(ctx, kindOfRuns, pgx.QueryExecModeExec).Scan(&made)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return made == 1, err
}

// runs returns a probe that runs a statement, which may lock no row.
func runs(statement string) func(context.Context, *pgx.Conn) (bool, error) {
	return func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		return true, conn.PgConn().Exec(ctx, statement).Close()
	}
}

func tellsIdentity(ctx context.Context, conn *pgx.Conn) (bool, error) {
	identity, err := identityOf(ctx, conn)
	return identity != "", err
}

// Partitioned reports whether the history of a database has partitions: as the first migration made it, else as the
// database supports it.
func Partitioned(ctx context.Context, db *sql.DB, without Capabilities) (bool, error) {
	made, found, err := First(ctx, db, ScanInt, kindOfRuns)
	switch {
	case err != nil && !Lacks(err):
		return false, fmt.Errorf("look for the table runs: %w", err)
	case err == nil && found:
		return made == 1, nil
	case without.Has(DayPartitions):
		return false, nil
	}
	// As the clean-up does, it makes a partition and removes it.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	table := "carillon_probe_" + strings.ToLower(rand.Text())
	for _, statement := range []string{
		`CREATE TABLE %[1]s (day BIGINT NOT NULL PRIMARY KEY) PARTITION BY RANGE (day)`,
		`CREATE TABLE %[1]s_0 PARTITION OF %[1]s DEFAULT`,
		`CREATE TABLE %[1]s_1 (LIKE %[1]s INCLUDING ALL)`,
		`ALTER TABLE %[1]s ATTACH PARTITION %[1]s_1 FOR VALUES FROM (1) TO (2)`,
		`LOCK TABLE %[1]s_1, %[1]s_0 IN ACCESS EXCLUSIVE MODE`,
		`DROP TABLE %[1]s_1`,
	} {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(statement, table)); err != nil {
			var refused *pgconn.PgError
			privilege := errors.As(err, &refused) && refused.Code == "42501" // which another user may have
			if !Lacks(err) || privilege {
				return false, fmt.Errorf("try whether the database has %s: %w", DayPartitions, err)
			}
			_ = tx.Rollback() // frees the connection
			// Some databases commit each change of a table at once.
			_, err := db.ExecContext(ctx, fmt.Sprintf(`DROP TABLE IF EXISTS %[1]s_1, %[1]s`, table))
			return false, err
		}
	}
	return true, nil
}

// LockNotAvailable is the code of a statement that waited for a lock for too long.
const LockNotAvailable = "55P03"

// readOnly is the code of a write to a standby, or to a server that protects itself.
const readOnly = "25006"

// Unreachable reports whether an error means that a database is unreachable for now. Waiting does not fix other
// errors, such as a wrong password or a schema that is too new. A file is never unreachable.
func Unreachable(err error) bool {
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		for _, class := range []string{
			"08",  // connection exceptions
			"53",  // too many connections, disk full
			"57P", // shutting down, starting up
			readOnly,
			LockNotAvailable,
		} {
			if strings.HasPrefix(refused.Code, class) {
				return true
			}
		}
		return false
	}
	// net.Error would match too much: errors of system calls, including those of files, implement it.
	var network *net.OpError
	var connect *pgconn.ConnectError
	var login *loginError
	return errors.As(err, &network) || errors.As(err, &connect) || errors.As(err, &login) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

// connectionLost reports whether an error means that a connection or a transaction had ended.
func connectionLost(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) || errors.Is(err, io.EOF)
}

// userTimeout is how long sent data may stay unacknowledged before a connection counts as broken. Without it Linux
// takes a quarter of an hour to notice that a server has vanished.
const userTimeout = 10 * time.Second

// errReadOnly is how a connection to a read-only server ends.
var errReadOnly = errors.New("the server is read-only")

// withKeepAlive makes connections notice servers that vanish, and refuse read-only servers: a standby
// may be behind, and accepts no claims.
func withKeepAlive(config *pgxpool.Config) {
	dialer := &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control:         boundUnacknowledged,
	}
	config.ConnConfig.DialFunc = dialer.DialContext
	if config.ConnConfig.ValidateConnect == nil {
		config.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			result, err := conn.Exec(ctx, "SHOW transaction_read_only").ReadAll()
			if err == nil && string(result[0].Rows[0][0]) == "on" {
				err = errReadOnly
			}
			return err
		}
	}
	fatal := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnly && fatal(conn, err)
	}
	// The server reports changes of its state, so this costs nothing. A pooler, and a server before PostgreSQL 14, do
	// not.
	config.AfterRelease = func(conn *pgx.Conn) bool {
		return conn.PgConn().ParameterStatus("in_hot_standby") != "on" && conn.PgConn().ParameterStatus("default_transaction_read_only") != "on"
	}
}
