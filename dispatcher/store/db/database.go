// Package db is the kernel of the store: how PostgreSQL and SQLite are opened and watched, the SQL in which they
// differ, how statements are run and rows scanned, the columns of batches and tables, and notifications. It knows the
// tables of runs, but no definitions, claims or alerts.
package db

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
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

// apart is connections for requests.
type apart struct {
	Flavor
	write, read *sql.DB
	// gate, if not nil, lets one request at a time write: SQLite has one connection that writes, and serves waiting
	// callers in any order. A claim then waits for at most one request.
	gate chan struct{}
}

// Apart returns the same database over separate connections. It opens the first one at once, so that it has one
// even if the server has none to spare later.
func (d *DB) Apart(ctx context.Context) (*DB, error) {
	a, err := d.apart(ctx)
	if err != nil {
		return nil, err
	}
	own := *d
	own.Flavor, own.Write, own.Read, own.gate = a.Flavor, a.write, a.read, a.gate
	// Reading the clock for requests is not worth a separate connection for heartbeats.
	own.Heartbeats = a.read
	return &own, a.read.PingContext(ctx)
}

// Enter waits until a change may begin. The caller calls leave when it has ended.
func (d *DB) Enter(ctx context.Context) (leave func(), err error) {
	if d.gate == nil {
		return func() {}, nil
	}
	select {
	case d.gate <- struct{}{}:
		return func() { <-d.gate }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Postgres) apart(ctx context.Context) (apart, error) {
	config := p.config.Copy()
	config.MaxConns, config.MinConns = max(2, config.MaxConns*3/5), 0 // three for each five connections of a node
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return apart{}, err
	}
	p.requests = pool
	own := *p
	own.Pool, own.db = pool, overPool(pool)
	// A transaction reads triggers by a hot statement, which takes a second connection.
	own.db.SetMaxOpenConns(int(config.MaxConns) - 1)
	return apart{Flavor: &own, write: own.db, read: own.db}, nil
}

func (s *SQLite) apart(context.Context) (apart, error) {
	read, err := openReaders(s.File)
	if err != nil {
		return apart{}, err
	}
	own := &SQLite{write: s.write, Read: read, File: s.File, hub: s.hub, shared: s.shared, prepared: map[string]*sql.Stmt{}}
	return apart{Flavor: own, write: s.write, read: read, gate: make(chan struct{}, 1)}, nil
}

// tryChange runs do in a transaction that gives up where claims would wait for it. done is false if it gave up.
type tryChange func(ctx context.Context, do func(context.Context, *sql.Tx) error) (done bool, err error)

// Flavor is the part of the SQL that differs between the databases.
type Flavor interface {
	// Rows returns the common table expressions n(now) and b: the batch, one column per
	// name, with the columns' values in the parameters from $first on; now is the database's clock, or parameter $now
	// if that is not 0. extra is a list of expressions to add to b.
	Rows(now, first int, extra string, columns ...Column) string
	// Batch returns the parameters for Rows.
	Batch(columns ...any) []any
	// In is the condition that the number before it is in the batch of one column in parameter $n.
	In(n int) string
	// SameRun is the condition that joins the rows r of runs by their key, from left to right: the rest of the query
	// comes first.
	SameRun(r, at, trigger, kind string) string
	// RunsOf joins the preceding rows to the live runs r of a node that are not retrying and meet conditions: all
	// runs of each node, or those that cut selects.
	RunsOf(node, conditions, cut string) string
	// EachRun joins b to those of its live runs r that meet conditions, one after the other, before any other join.
	// It locks the runs, and skips runs locked by others.
	EachRun(conditions string) string
	// EachFirst selects columns of the first rows r, at most $3, of each a, in an order, from live runs r joined to
	// other tables, if they meet conditions.
	EachFirst(columns, joined, conditions, order string) string
	// EachFirstEnds selects the first pending ends e of each a, at most a.share, in an order, if they meet
	// conditions. ForUpdate is empty, or locks them.
	EachFirstEnds(conditions, order, ForUpdate string) string
	// ClaimColumns are the columns of claims that list fires.
	ClaimColumns() string
	ClaimValues() string
	// ClaimedFires is a query for the fires of claims, including recorded ones: token, node, claimed_at, trigger_id,
	// scheduled_at, job_id, revision.
	ClaimedFires() string
	// ClaimFence are common table expressions. f holds the claims in $1 and $2 that still exist, and keeps them until
	// the transaction ends. Either the fence or ThenClose, after the statement, deletes the claims in $2.
	ClaimFence() string
	ThenClose(Statement) Statement
	// Steps returns a statement that chooses live runs r as c and then takes steps with them, each a statement that
	// reads c. The last counted of them affect all chosen runs. ForUpdate is LockToDelete, SkipLocked, LockedThere or
	// empty; now is the number of the parameter that holds now.
	Steps(now int, with, choose, ForUpdate string, counted int, effects ...string) Statement
	// Edges is a query for the first and the last live runs of each of some jobs, as contenders.
	// $1 how many of each, from $2 on: IDColumns
	Edges() string
	// DeleteChosen is a step that deletes the rows of the chosen runs c that meet a condition.
	DeleteChosen(condition string) string
	// ForUpdate is the clause that locks selected rows until the transaction ends.
	ForUpdate() string
	LockRows(mode string) string
	// ForShare is the clause that protects selected rows from changes until the transaction ends, and lets others do
	// the same.
	ForShare() string
	// Now reads the database's clock.
	Now(ctx context.Context, q Querier) (time.Time, error)
	// Execute runs a hot statement and calls scan for each row of its result; scan may be nil if it returns no rows.
	// It returns the number of rows that the last part affected.
	Execute(ctx context.Context, hot Statement, args []any, scan func(Scanner) error) (int64, error)
	// apart returns connections for requests.
	apart(ctx context.Context) (apart, error)
	// OnOneConnection returns a context that runs hot statements on one connection until release.
	OnOneConnection(ctx context.Context) (on context.Context, release func(), err error)
	// SendNotifications notifies all nodes when tx is committed, or earlier.
	SendNotifications(ctx context.Context, tx *sql.Tx, notifications []dispatcher.Notification) error
	// Committed is called after a transaction with notifications was committed.
	Committed(notifications []dispatcher.Notification)
	// Listen calls notification for each change that concerns nodes, until ctx ends.
	Listen(ctx context.Context, notification func(dispatcher.Notification)) error
	// LimitLockWait lets a transaction of the clean-up wait only a moment for locks, if LimitsLockWait.
	LimitLockWait(ctx context.Context, tx *sql.Tx) error
	LimitsLockWait() bool
	// RotatePartitions makes partitions for the days around now and drops those that expired before horizon, with all
	// runs that ended in them. Both are Unix milliseconds. It changes tables through try.
	RotatePartitions(ctx context.Context, q Querier, try tryChange, now, horizon int64) (dropped int, err error)
	// DaysAhead returns for how many days after today all tables have partitions; nil: the history has none.
	DaysAhead(ctx context.Context, q Querier, now int64) (*int, error)
	// Unpartitioned is the table of the runs that RotatePartitions does not drop.
	Unpartitioned() string
	// ByDay reports whether the history has a partition for each day.
	ByDay() bool
	// ExpiredOfJobs selects expired runs of the jobs of a batch; see removeOf.
	ExpiredOfJobs() string
	// SeemingFew is a condition, with AND in front, that every number meets. The planner expects few rows from it.
	SeemingFew(column string) string
	// EndedOfEach selects from the history the latest runs of each job of a batch that meet conditions. limit orders
	// and limits them.
	EndedOfEach(conditions, limit string) string
	// EndedOfEachKey selects from the history the run of each key of a batch, found by the condition is.
	EndedOfEachKey(is string) string
	// LatestOfEach selects columns of the latest rows r of a table, by at, of each job of a batch: at most limit rows
	// that meet conditions, and further rows as late as the last of them.
	// $1 a time that is not after any of them
	LatestOfEach(columns, table, at, conditions string, limit int) string
	// DeadOfEach is EndedOfEach of dead letters.
	DeadOfEach(conditions, limit string) string
	// Identity returns the identity of the database: its location and its timeline.
	Identity(ctx context.Context) (string, error)
	// Mismatch returns, when a node registers, why the database seems to have lost commits; empty: it does not.
	Mismatch(ctx context.Context, tx *sql.Tx, now time.Time, Identity string) (reason string, err error)
	// Accept notes, while a rollback awaits a decision, that nodes continue with the database: no more Mismatch.
	Accept(ctx context.Context, tx *sql.Tx, identity string) error
	// Mark notes next to the database how many heartbeats of a node it contains, where that can be noted.
	Mark(node run.NodeID, heartbeats int64)
	// Transient reports whether the same transaction may succeed after this error.
	Transient(err error) bool
	// OfData reports whether the rows of a statement cause an error that is not transient or of the connection.
	OfData(err error) bool
	// Single reports whether only one node can use the database.
	Single() bool
	close() error
}
