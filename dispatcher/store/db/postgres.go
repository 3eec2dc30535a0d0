package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Postgres is the flavor of PostgreSQL.
type Postgres struct {
	Pool, heartbeats *pgxpool.Pool
	requests         *pgxpool.Pool   // of the API; nil: it uses pool
	config           *pgxpool.Config // of pool
	notify           *pgxpool.Config // for receiving notifications
	connections      ConnectionWatch
	Has              Capabilities
	mode             pgx.QueryExecMode // of hot statements
	db               *sql.DB           // of pool
}

// channel is the channel of notifications. They reach one database only.
const channel = "carillon"

// session is the settings of each connection. Without it (as behind a pooler that drops it, see SessionSettings) all
// works, only less well: it limits how long a call waits for a lock that an administrator holds, how long a statement
// runs on after its caller gave up, and how long a machine suspended in the middle of a transaction keeps its locks.
// A batch is always small compared to the table that it joins, so it probes an index: up to some 30,000 triggers the
// planner would rather hash the whole table, which made a claim of 500 six times as slow. Compiling plans of such
// short statements never pays, and running one on several processors takes these from the claims of others. A
// statement that is prepared by name is parsed once and planned each time for the current tables: a plan kept from an
// empty table costs more than planning once per batch.
const session = `SET lock_timeout = '2s'; SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '10s';
	SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; SET max_parallel_workers_per_gather = 0;
	SET plan_cache_mode = force_custom_plan`

// ConnectionWatch has callbacks for connections to PostgreSQL, which may lead to a server that has lost commits.
type ConnectionWatch struct {
	// Opened is called for each new connection.
	Opened func()
	// Whole checks before a connection is used whether the server has all commits that this process knows of. inUse
	// is true if the process has a node in the database.
	Whole func(ctx context.Context, conn *pgx.Conn) (inUse bool, err error)
}

func openPostgres(ctx context.Context, a Address, o Options, watch ConnectionWatch) (*DB, error) {
	config, err := PoolConfig(a)
	if err != nil {
		return nil, err
	}
	limitConnections(config, a, o)
	pooled, has, err := tryOut(ctx, config, o.Without)
	if err != nil {
		return nil, err
	}
	p := &Postgres{notify: config.Copy(), Has: has, mode: config.ConnConfig.DefaultQueryExecMode, connections: watch}
	if p.mode == pgx.QueryExecModeCacheStatement && !has.Has(SessionSettings) {
		p.mode = pgx.QueryExecModeCacheDescribe // planned each time
	}
	if o.Notify != "" {
		if p.notify, err = PoolConfig(Address{url: o.Notify, Login: a.Login}); err != nil {
			return nil, fmt.Errorf("where notifications are heard: %w", err)
		}
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if p.Has.Has(SessionSettings) {
			if err := conn.PgConn().Exec(ctx, session).Close(); err != nil {
				return err
			}
		}
		p.connections.Opened()
		encodeArrays(conn.TypeMap())
		return p.check(ctx, conn)
	}
	statements := statementCounter{prometheus.NewCounter(prometheus.CounterOpts{
		Name: "carillon_database_statements_total", Help: "Statements that this node sent to PostgreSQL.",
	})}
	if o.Metrics != nil {
		config.ConnConfig.Tracer = statements
	}
	forHeartbeats := config.Copy()
	forHeartbeats.MaxConns, forHeartbeats.MinConns = 1, 0
	if pooled {
		forHeartbeats.PrepareConn = p.checkAgain()
	}
	if p.Pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if p.heartbeats, err = pgxpool.NewWithConfig(ctx, forHeartbeats); err != nil {
		p.Pool.Close()
		return nil, err
	}
	db := overPool(p.Pool)
	db.SetMaxOpenConns(max(1, int(config.MaxConns)-hotConns))
	p.db, p.config = db, config
	return &DB{
		Write: db, Read: db, Heartbeats: overPool(p.heartbeats), Flavor: p,
		Metrics: []prometheus.Collector{statements, poolGauge(p.Pool), requestsGauge(p)},
	}, nil
}

// check inspects the server of a connection and notes its identity if no commits are missing: failovers change it.
func (p *Postgres) check(ctx context.Context, conn *pgx.Conn) error {
	inUse, err := p.connections.Whole(ctx, conn)
	if err != nil || !inUse || !p.Has.Has(Identity) {
		return err
	}
	identity, err := identityOf(ctx, conn)
	if err == nil {
		_, err = conn.Exec(ctx, setIdentity, pgx.QueryExecModeExec, identity)
	}
	return err
}

// PoolConfig returns the settings of connections to an address.
func PoolConfig(a Address) (*pgxpool.Config, error) {
	a.url = a.Login.withTLS(a.url)
	config, err := pgxpool.ParseConfig(a.url)
	if err != nil {
		// The message of ParseConfig may hold the URL.
		return nil, errors.New("its URL cannot be read; write it as postgres://user:password@host:5432/name")
	}
	if err := a.Login.trust(a, config.ConnConfig); err != nil {
		return nil, err
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "carillon"
	}
	withKeepAlive(config)
	// The files named in a URL are read again for each connection, which also gets its password here: passwords that
	// are tokens, and certificates, last only hours.
	config.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		now, err := pgxpool.ParseConfig(a.url)
		if err != nil {
			return errors.New("files that the database's URL names cannot be read any more") // the message of ParseConfig may hold the URL
		}
		if err := a.Login.trust(a, now.ConnConfig); err != nil {
			return err
		}
		config.Password, config.TLSConfig, config.Fallbacks = now.ConnConfig.Password, now.ConnConfig.TLSConfig, now.ConnConfig.Fallbacks
		return a.Login.enter(ctx, config)
	}
	return config, nil
}

func (p *Postgres) Now(ctx context.Context, q Querier) (time.Time, error) {
	const clock = `SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000000) AS bigint)`
	micros, _, err := First(ctx, q, ScanInt, clock)
	return time.UnixMicro(micros).UTC(), err
}

func (p *Postgres) SendNotifications(ctx context.Context, tx *sql.Tx, notifications []dispatcher.Notification) error {
	if !p.Has.Has(Notifications) {
		for _, payload := range payloads(notifications) {
			if _, err := tx.ExecContext(ctx, leaveNotification, rand.Int64(), payload); err != nil {
				return fmt.Errorf("leave a notification: %w", err)
			}
		}
		return nil
	}
	for _, payload := range payloads(notifications) {
		// $1 channel, $2 payload. PostgreSQL sends it at commit.
		if _, err := tx.ExecContext(ctx, `SELECT pg_notify($1, $2)`, channel, payload); err != nil {
			return err
		}
	}
	return nil
}

func (p *Postgres) Committed([]dispatcher.Notification) {}

func (p *Postgres) Listen(ctx context.Context, notification func(dispatcher.Notification)) error {
	if !p.Has.Has(Notifications) {
		return p.watch(ctx, notification)
	}
	conn, err := connect(ctx, p.notify)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // nothing to lose: the connection only listened
	}()
	if err := p.subscribe(ctx, conn); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	// Changes before this moment were not heard.
	notification(dispatcher.Notification{})
	for {
		n, err := conn.WaitForNotification(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		for _, one := range notificationsIn(n.Payload) {
			notification(one)
		}
	}
}

// subscribe gives up on a server that hangs. Waiting for notifications has no time limit; keep-alives notice a server
// that vanished.
func (p *Postgres) subscribe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := Bound(ctx, OtherTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "LISTEN "+channel)
	return err
}

func (p *Postgres) Transient(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "40001", "40P01", LockNotAvailable: // serialization_failure, deadlock_detected, lock_not_available
		return true
	case "23514": // check_violation: a run was on its way to the default partition when its day got its own
		return true
	}
	return false
}

// dataErrors are the classes, or codes, of errors that the rows of a statement cause.
var dataErrors = []string{
	"21",             // a subquery returned several rows
	"22",             // data exceptions
	"23",             // constraints
	"54",             // limits, such as that of the size of an index entry
	"XX001", "XX002", // pages that cannot be read
}

func (p *Postgres) OfData(err error) bool {
	if e, is := errors.AsType[*pgconn.PgError](err); is {
		return slices.ContainsFunc(dataErrors, func(code string) bool { return strings.HasPrefix(e.Code, code) })
	}
	return !connectionLost(err) && !pgconn.SafeToRetry(err)
}

func (p *Postgres) Single() bool { return false }

// closePatience limits how long closing a store waits for connections to end. A connection with an abandoned
// statement asks the server to cancel it, and a server that hangs does not respond for 15 seconds.
const closePatience = 250 * time.Millisecond

func (p *Postgres) close() error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Pool.Close()
		p.heartbeats.Close()
		if p.requests != nil {
			p.requests.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(closePatience):
	}
	return nil
}

// Capability is a feature of PostgreSQL that other databases with its protocol may lack. Each has a fallback, which
// costs time but not correctness. Carillon tries the features of a database and ignores its name.
type Capability string

// The capabilities and their fallbacks.
const (
	// Notifications are LISTEN and NOTIFY. Without them each node polls once a second for changes.
	Notifications Capability = "notifications"
	// DayPartitions are the partitions of the history, one a day, which are made ahead and dropped as a whole.
	// Without them the history is plain tables with old rows deleted as on SQLite. The first migration decides.
	DayPartitions Capability = "partitions"
	// SkipLocked is SKIP LOCKED. Without it a node waits for rows that another node is about to take. Rows are
	// locked in the order of their keys, and after the wait their conditions are checked again.
	SkipLocked Capability = "skip-locked"
	// SessionSettings are the settings of session. Without them a wait for a lock ends with the deadline of its
	// call, which is shorter where other calls would wait behind it, see tryBriefly.
	SessionSettings Capability = "session-settings"
	// Identity is the server and the timeline of a database. Without it a rollback is noticed by missing heartbeats
	// and claims, but not while no node was running.
	Identity Capability = "identity"
)

// AllCapabilities returns all capabilities.
func AllCapabilities() Capabilities {
	return Capabilities{Notifications, DayPartitions, SkipLocked, SessionSettings, Identity}
}

// Capabilities are the capabilities that a database has, or that it is used without.
type Capabilities []Capability

// ParseCapabilities reads names.
func ParseCapabilities(names []string) (parsed Capabilities, err error) {
	for _, name := range names {
		one := Capability(strings.TrimSpace(name))
		if !AllCapabilities().Has(one) {
			return nil, fmt.Errorf("%q is none of %s", one, AllCapabilities())
		}
		parsed = append(parsed, one)
	}
	return parsed, nil
}

// Has reports whether one is among them.
func (c Capabilities) Has(one Capability) bool { return slices.Contains(c, one) }

// Without returns the capabilities that are not among others.
func (c Capabilities) Without(others Capabilities) Capabilities {
	return slices.DeleteFunc(slices.Clone(c), others.Has)
}

// String lists the names.
func (c Capabilities) String() string {
	names := make([]string, len(c))
	for i, one := range c {
		names[i] = string(one)
	}
	return strings.Join(names, ", ")
}

// Capabilities returns what the database has. SQLite has all it needs: its one process hears its own changes, no
// other process locks a row, and the lock file identifies the file.
func (d *DB) Capabilities() Capabilities {
	if p, ok := d.Flavor.(*Postgres); ok {
		return p.Has
	}
	return AllCapabilities()
}
