package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
)

const (
	// defaultConns is the size of a node's pool. A hundred nodes have at most 1,000 connections, including those for
	// requests of the API, heartbeats and notifications.
	defaultConns = 5
	// hotConns is how many of them only hot statements use. The rest is for all other statements, such as those of
	// the handler, so that claims and records do not wait for long lists.
	hotConns = 2
	// idleTime is how long a connection may be idle. A node that has little to do keeps one or two.
	idleTime = 5 * time.Minute
)

// requestsGauge counts the connections in use by requests of the API.
func requestsGauge(p *Postgres) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carillon_database_request_connections_in_use",
		Help: "Connections to PostgreSQL that requests of the API use.",
	}, func() float64 {
		if p.requests == nil {
			return 0
		}
		return float64(p.requests.Stat().AcquiredConns())
	})
}

// limitConnections sets the size of a pool, unless the URL sets it.
func limitConnections(config *pgxpool.Config, a Address, o Options) {
	switch {
	case o.MaxConns > 0:
		config.MaxConns = int32(o.MaxConns)
	case !strings.Contains(a.url, "pool_max_conns"):
		config.MaxConns = defaultConns
	}
	if !strings.Contains(a.url, "pool_max_conn_idle_time") {
		config.MaxConnIdleTime = idleTime
	}
}

// A pool below its maximum asks the server for a new connection rather than wait for one of its own. If the server
// has none left, each call would fail while all connections are in use.

// patiently repeats a call that the server had no connection for, until one of the pool becomes free or ctx ends.
func patiently[T any](ctx context.Context, do func() (T, error)) (response T, err error) {
	err = backoff.Pauses{First: 20 * time.Millisecond, Most: time.Second}.Repeat(ctx, func() (err error) {
		response, err = do()
		return err
	}, func(f backoff.Failure) bool {
		var refused *pgconn.PgError
		return errors.As(f.Err, &refused) && refused.Code == "53300" // too_many_connections
	})
	return response, err
}

// patient makes the connections of a pool.
type patient struct{ driver.Connector }

// Connect waits for a connection as patiently does.
func (p patient) Connect(ctx context.Context) (driver.Conn, error) {
	return patiently(ctx, func() (driver.Conn, error) { return p.Connector.Connect(ctx) })
}

// overPool returns a pool's connections as a database, which keeps none of them for itself.
func overPool(pool *pgxpool.Pool) *sql.DB {
	db := sql.OpenDB(patient{stdlib.GetPoolConnector(pool)})
	db.SetMaxIdleConns(0)
	return db
}

// statementCounter counts the statements sent to PostgreSQL: the database's share of a fire's cost.
type statementCounter struct{ prometheus.Counter }

func (s statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.Inc()
	return ctx
}

func (s statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// poolGauge counts the connections in use.
func poolGauge(pool *pgxpool.Pool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carillon_database_connections_in_use",
		Help: "Connections to PostgreSQL that are in use, besides those for heartbeats and to listen.",
	}, func() float64 { return float64(pool.Stat().AcquiredConns()) })
}

// A pooler in transaction mode lends a connection to a server for one transaction. Session state is then lost or
// belongs to another client. Carillon keeps only optional state there: the settings of session, and named prepared
// statements, which spare the server the parsing.

// tryOut finds out the capabilities of a database and whether a pooler is in front of it. Behind a pooler connections
// prepare no statement by name.
func tryOut(ctx context.Context, config *pgxpool.Config, without Capabilities) (pooled bool, has Capabilities, err error) {
	ctx, cancel := Bound(ctx, OtherTimeout)
	defer cancel()
	conn, err := connect(ctx, config)
	if err != nil {
		return false, nil, err
	}
	defer conn.Close(ctx) // no change to commit
	// A pooler invents the process id used for cancelling, because its clients have no server of their own.
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

// checkedFor is how long a result of check stays valid behind a pooler.
const checkedFor = settlingTime / 3

// checkAgain returns a function that checks the connection for heartbeats at each use: a pooler may lead it to
// another server at any time without a new connection.
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

// NameNothing makes connections prepare no statement by name, unless their URL chooses (default_query_exec_mode).
func NameNothing(config *pgx.ConnConfig) {
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}

// Without notifications of the database, a change writes its own to a table in the same transaction, and each node
// polls that table. Otherwise both work the same: notifications have the same content and may be lost.

const (
	// watchInterval is how often a node polls. A change takes effect that much later.
	watchInterval = time.Second
	// watchOverlap is the maximum time from writing a notification to its commit, including the difference between
	// the clocks of servers.
	watchOverlap = OtherTimeout + 5*time.Second
	// watchLimit bounds one poll. More notifications mean that anything may have changed.
	watchLimit = 1000
	// watchKept is how long a notification is kept: longer than nodes look back.
	watchKept = time.Minute
)

// PostgresMillis is the clock of the database.
const PostgresMillis = `CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)`

const (
	// $1 random id, $2 payload
	leaveNotification = `INSERT INTO notifications (at, id, payload) VALUES (` + PostgresMillis + `, $1, $2)`
	// $1 milliseconds, $2 limit
	leftNotifications = `SELECT id, payload FROM notifications WHERE at >= ` + PostgresMillis + ` - $1 ORDER BY at DESC, id LIMIT $2`
	// $1 milliseconds
	removeNotifications = `DELETE FROM notifications WHERE at < ` + PostgresMillis + ` - $1`
)

// watcher polls for left notifications.
type watcher struct {
	db *sql.DB
	// told are the ids of the latest poll: the next one can find only these and new ones.
	told map[int64]bool
}

// look returns the notifications that are new.
func (w *watcher) look(ctx context.Context) (found []dispatcher.Notification, err error) {
	type left struct {
		id      int64
		payload string
	}
	all, err := Collect(ctx, w.db, func(row Scanner) (l left, err error) {
		return l, row.Scan(&l.id, &l.payload)
	}, leftNotifications, watchOverlap.Milliseconds(), watchLimit)
	if err != nil {
		return nil, fmt.Errorf("look for notifications: %w", err)
	}
	told := make(map[int64]bool, len(all))
	for _, one := range all {
		told[one.id] = true
		if !w.told[one.id] {
			found = append(found, notificationsIn(one.payload)...)
		}
	}
	if len(all) == watchLimit {
		found = append(found, dispatcher.Notification{})
	}
	w.told = told
	return Coalesced(found), nil
}

// watch is listen without notifications.
func (p *Postgres) watch(ctx context.Context, notification func(dispatcher.Notification)) error {
	w := &watcher{db: p.db}
	if _, err := w.look(ctx); err != nil {
		return err
	}
	// Changes before this moment were not seen.
	notification(dispatcher.Notification{})
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for looks := rand.IntN(int(watchKept / watchInterval)); ; looks++ { // nodes take turns
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		found, err := w.look(ctx)
		if err == nil && looks%int(watchKept/watchInterval) == 0 {
			err = RemoveLeft(ctx, p.db)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, one := range found {
			notification(one)
		}
		notification(dispatcher.Notification{Adopt: true}) // runs may wait without a notification
	}
}

// RemoveLeft removes notifications that no node reads any more.
func RemoveLeft(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, removeNotifications, watchKept.Milliseconds()); err != nil {
		return fmt.Errorf("remove notifications: %w", err)
	}
	return nil
}
