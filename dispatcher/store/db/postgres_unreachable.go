package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// LockNotAvailable is the code of a statement that waited for a lock for too long.
const LockNotAvailable = "55P03"

// readOnly is the code of a write to a standby, or to a server that protects itself.
const readOnly = "25006"

// Unreachable tells whether an error means that a database is unreachable for now. Waiting does not
// mend other errors, such as a wrong password or a schema that is too new. A file is never
// unreachable.
func Unreachable(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
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
	// A net.Error would not do: the errors of system calls are such, also those of files.
	var network *net.OpError
	var connect *pgconn.ConnectError
	var login *loginError
	return errors.As(err, &network) || errors.As(err, &connect) || errors.As(err, &login) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

// connectionLost tells an error of a connection, or of a transaction, that had ended.
func connectionLost(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) || errors.Is(err, io.EOF)
}

// userTimeout is for how long sent data may stay unacknowledged before a connection counts as
// broken. Without it Linux takes a quarter of an hour to notice that a server has vanished.
const userTimeout = 10 * time.Second

// withKeepAlive makes connections notice servers that vanish, and refuse read-only servers: a standby
// may be behind, and takes no claim.
func withKeepAlive(config *pgxpool.Config) {
	dialer := &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control:         boundUnacknowledged,
	}
	config.ConnConfig.DialFunc = dialer.DialContext
	if config.ConnConfig.ValidateConnect == nil {
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	fatal := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnly && fatal(conn, err)
	}
	// The server says when its state changes, so that this costs nothing. A pooler, and a server
	// before PostgreSQL 14, keep it to themselves.
	config.AfterRelease = func(conn *pgx.Conn) bool {
		return conn.PgConn().ParameterStatus("in_hot_standby") != "on" && conn.PgConn().ParameterStatus("default_transaction_read_only") != "on"
	}
}
