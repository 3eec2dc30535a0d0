package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
)

// A pool that may have more connections asks the server for one rather than wait for one of its own.
// Of a server that has none to give, it would have each call fail that comes while all are in use.

// patiently repeats what the server had no connection for, until one of the pool's own has become
// free or ctx ends.
func patiently[T any](ctx context.Context, do func() (T, error)) (T, error) {
	for most := 20 * time.Millisecond; ; most = min(2*most, time.Second) {
		response, err := do()
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "53300" { // too_many_connections
			return response, err
		}
		pause := time.NewTimer(most/2 + rand.N(most/2))
		select {
		case <-ctx.Done():
			pause.Stop()
			return response, errors.Join(err, ctx.Err())
		case <-pause.C:
		}
	}
}

// patient is the connections of a pool.
type patient struct{ driver.Connector }

// Connect waits for a connection as patiently does.
func (p patient) Connect(ctx context.Context) (driver.Conn, error) {
	return patiently(ctx, func() (driver.Conn, error) { return p.Connector.Connect(ctx) })
}

// openDB returns a pool's connections as a database, which keeps none of them for itself.
func openDB(pool *pgxpool.Pool) *sql.DB {
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
