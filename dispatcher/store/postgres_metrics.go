package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

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
