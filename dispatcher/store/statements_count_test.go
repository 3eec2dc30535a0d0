package store_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// What every node sends all the time, whether it fires or not, is one statement each: a hundred nodes send it a
// hundred times.
func TestWhatEveryNodeSendsIsOneStatement(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s, err := store.Open(t.Context(), pgtest.New(t), store.Options{Options: db.Options{Metrics: registry}})
	must(t, err)
	defer s.Close()
	for id := range run.NodeID(3) {
		must(t, s.Register(t.Context(), dispatcher.Node{ID: id + 1}, time.Time{}))
	}
	_, err = s.Clock(t.Context()) // makes the connection for heartbeats, which is checked first
	must(t, err)
	var locks []dispatcher.Lock
	var beat dispatcher.HeartbeatReply
	for _, one := range []struct {
		name string
		do   func() error
	}{
		{"a heartbeat", func() (err error) {
			beat, err = s.Heartbeat(t.Context(), 1, dispatcher.NodeReport{}, time.Time{})
			return err
		}},
		{"to mark no node dead", func() error {
			_, err := s.MarkDead(t.Context(), 1, beat.At, time.Minute, time.Time{})
			return err
		}},
		{"to take locks", func() (err error) {
			names := []string{dispatcher.LockFleet, dispatcher.LockStates}
			locks, err = s.Lock(t.Context(), dispatcher.LockRequest{Node: 1, Names: names, AtMost: time.Minute})
			return err
		}},
		{"to give locks back", func() error { return s.Unlock(t.Context(), locks) }},
	} {
		before := sent(t, registry)
		must(t, one.do())
		if got := sent(t, registry) - before; got != 1 {
			t.Errorf("%s took %v statements, want 1", one.name, got)
		}
	}
	if len(beat.Live) != 3 || len(locks) != 2 {
		t.Errorf("got %d live nodes and %d locks, want 3 and 2", len(beat.Live), len(locks))
	}
}

// sent returns how many statements a store has sent.
func sent(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == "carillon_database_statements_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("the store does not count its statements")
	return 0
}
