package db

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options tune how a database is opened. The zero value works.
type Options struct {
	// MaxConns is the maximum number of connections to PostgreSQL, in addition to those for heartbeats, listening and
	// Requests; default 5, or pool_max_conns of the URL.
	MaxConns int
	// Requests opens further connections for the API, three for each five of MaxConns; see ForRequests.
	Requests bool
	// Notify is the URL for receiving notifications if the database's own URL leads to a pooler that loses them;
	// empty: the database's URL.
	Notify string
	// Login is how connections to PostgreSQL log in, including those for notifications.
	Login Login
	// AlongsideNode is for tools that manage tokens or nodes: it opens a SQLite database that a node
	// may be using, and any database with secrets stored under other keys. A store that fires must not be opened this
	// way.
	AlongsideNode bool
	// Shared lets several nodes of this process use a SQLite database, as in simulations; otherwise a node that
	// registers is the only one. It has no effect on PostgreSQL.
	Shared bool
	// Without lists capabilities of PostgreSQL that are not used even if the database has them.
	Without Capabilities
	// ClockMargin is the maximum difference between the clocks of PostgreSQL's servers.
	ClockMargin time.Duration
	// Metrics registers the metrics of PostgreSQL's connections, of skipped runs and of rows set aside; nil: none are
	// registered.
	Metrics prometheus.Registerer
}

// Time limits of calls without a deadline in their context. A database that hangs must not hang a node: the node
// gives up and tries again at the next tick.
const (
	ClaimTimeout     = 3 * time.Second
	HeartbeatTimeout = 3 * time.Second
	RecordTimeout    = 10 * time.Second
	OtherTimeout     = 10 * time.Second
)

// DB is a database that is open: PostgreSQL or SQLite.
type DB struct {
	Write      *sql.DB // transactions; SQLite has one connection here
	Read       *sql.DB
	Heartbeats *sql.DB // heartbeats, which must not queue behind anything
	Flavor
	Margin  time.Duration          // between the clocks of the database's servers
	gate    chan struct{}          // of apart
	Metrics []prometheus.Collector // of a database that is open
}

// Open opens a database with any schema. watch is called for connections to PostgreSQL.
func Open(ctx context.Context, a Address, o Options, watch ConnectionWatch) (d *DB, err error) {
	if a.Path != "" {
		d, err = OpenSQLite(ctx, a, o)
	} else {
		d, err = openPostgres(ctx, a, o, watch)
	}
	if err == nil {
		d.Margin = o.ClockMargin
	}
	return d, err
}

// Close releases the database.
func (d *DB) Close() error {
	return errors.Join(d.Write.Close(), d.Read.Close(), d.Heartbeats.Close(), d.Flavor.close())
}

// Bound gives ctx a deadline unless it has one.
func Bound(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, most)
}
