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
	// MaxConns is the most connections to PostgreSQL, besides one for heartbeats, one to
	// listen and those of Requests; default 5, or pool_max_conns of the URL.
	MaxConns int
	// Requests opens further connections for the API, three for each five of MaxConns; see ForRequests.
	Requests bool
	// Notify is the URL by which notifications are heard, where that of the database leads to a
	// pooler which loses them; empty: that of the database.
	Notify string
	// Login is how connections to PostgreSQL log in, those for notifications too.
	Login Login
	// AlongsideNode is for tools that manage tokens or nodes: it opens a SQLite database that a node
	// may be using, and any database whose secrets are stored under other keys. A store that fires
	// must not be opened this way.
	AlongsideNode bool
	// Shared says that several nodes of this process use a SQLite database, as simulations have
	// it; otherwise a node that registers is the only one. PostgreSQL makes no difference.
	Shared bool
	// Without is what PostgreSQL is to be used without, whether it has that or not.
	Without Capabilities
	// ClockMargin is how far the clocks of PostgreSQL's servers differ at most.
	ClockMargin time.Duration
	// Metrics is where the metrics of PostgreSQL's connections, of runs that are skipped and of rows that are set aside are
	// registered; nil: nowhere.
	Metrics prometheus.Registerer
}

// How long a call may take whose context sets no deadline. A database that hangs must not
// hang a node: it gives up, and the next tick tries again.
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
	gate    chan struct{}          // that of apart
	Metrics []prometheus.Collector // of a database that is open
}

// Open opens a database of whatever schema. watch is told of connections to PostgreSQL.
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
