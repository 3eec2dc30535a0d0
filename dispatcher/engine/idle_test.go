package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A hundred nodes without work must not keep their database busy with queries for work. The intervals are a tenth of
// the defaults, so that a second is ten.
func TestNodesWithoutFiresSendFewStatements(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	database := pgtest.New(t)
	const nodes, tenth = 4, 10
	registry := prometheus.NewRegistry()
	s, err := store.Open(t.Context(), database, store.Options{Options: db.Options{Metrics: registry}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	over := make(chan struct{}, nodes)
	for range nodes {
		e := New(s, nil, Options{
			Logger: slog.New(slog.DiscardHandler), Window: 5 * time.Second / tenth, Handler: 15 * time.Second / tenth,
			Heartbeat: 5 * time.Second / tenth, DeadAfter: 60 * time.Second / tenth, Grace: time.Second / tenth, Drain: -1,
		})
		go func() { e.Run(ctx); over <- struct{}{} }()
	}
	// Only the last rounds count, when all nodes know each other and have the data that they read at the start.
	const span = 30 * time.Second / tenth
	ticker := time.NewTicker(2 * span)
	defer ticker.Stop()
	<-ticker.C
	begun, before := time.Now(), statementsOf(t, registry)
	ticker.Reset(span)
	<-ticker.C
	sent, ended := statementsOf(t, registry)-before, time.Now()
	// On a slow machine, nodes do less in the same time, and nothing more often.
	measured := sent / nodes / (ended.Sub(begun) * tenth).Seconds()
	end()
	for range nodes {
		<-over
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if measured > mostIdle {
		t.Errorf("a node without fires sends %.2f statements a second, want %.2f at most", measured, mostIdle)
	}
}

// mostIdle is more than a node of four was seen to send, 2.7: heartbeats 0.25, polls 0.2, its turns to sweep 0.55, its
// looks for ends to follow and backfills 0.1, its looks for leaks, for the chosen zones and for runs that began long
// ago 0.2, a quarter of the fleet's work 0.8, 0.2 for old claims in the first minutes, and its queries at the start.
const mostIdle = 3.0

// statementsOf returns how many statements a store has sent.
func statementsOf(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "carillon_database_statements_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("the store does not count its statements")
	return 0
}
