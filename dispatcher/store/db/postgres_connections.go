package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
)

const (
	// defaultConns is the size of a node's pool. A hundred nodes have 1,000 connections at most, with those for
	// requests of the API, heartbeats and notifications.
	defaultConns = 5
	// hotConns is how many of them only hot statements use. The rest is for all other statements, such as those of
	// the handler, so that claims and records do not wait for those who read long lists.
	hotConns = 2
	// idleTime is how long a connection may be idle. A node that has little to do keeps one or two.
	idleTime = 5 * time.Minute
)

// requestsGauge tells how many connections requests of the API use.
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

// limitConnections sets how many connections a pool has, unless the URL says it.
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

// A pool that may have more connections asks the server for one rather than wait for one of its own.
// Of a server that has none to give, it would have each call fail that comes while all are in use.

// patiently repeats what the server had no connection for, until one of the pool's own has become
// free or ctx ends.
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

// patient is the connections of a pool.
type patient struct{ driver.Connector }

// Connect waits for a connection as patiently does.
func (p patient) Connect(ctx context.Context) (driver.Conn, error) {
	return patiently(ctx, func() (driver.Conn, error) { return p.Connector.Connect(ctx) })
}

// openDB returns a pool's connections as a database, which keeps none of them for itself.
func overPool(pool *pgxpool.Pool) *sql.DB {
	db := sql.OpenDB(patient{stdlib.GetPoolConnector(pool)})
	db.SetMaxIdleConns(0)
	return db
}

// statementCounter counts what is sent to PostgreSQL: the database's share of a fire's cost.
type statementCounter struct{ prometheus.Counter }

func (s statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.Inc()
	return ctx
}

func (s statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// newStatementCounter returns the counter.
func newStatementCounter() statementCounter {
	return statementCounter{prometheus.NewCounter(prometheus.CounterOpts{
		Name: "carillon_database_statements_total", Help: "Statements that this node sent to PostgreSQL.",
	})}
}

// poolGauge tells how many connections are in use.
func poolGauge(pool *pgxpool.Pool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carillon_database_connections_in_use",
		Help: "Connections to PostgreSQL that are in use, besides those for heartbeats and to listen.",
	}, func() float64 { return float64(pool.Stat().AcquiredConns()) })
}
