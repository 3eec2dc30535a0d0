package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// Heartbeats have a connection of their own: a node that is busy to the last connection is alive.
func TestHeartbeatGoesOnWhileAllConnectionsAreTaken(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s, err := store.Open(t.Context(), database, store.Options{MaxConns: 2})
	must(t, err)
	defer s.Close()
	must(t, s.Register(t.Context(), dispatcher.Node{ID: 1}, time.Time{}))
	busy, end := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- store.Exec(busy, s, `SELECT pg_sleep(60)`) }()
	}
	for taken := int64(0); taken < 2; {
		watch := open(t, database)
		if taken, err = store.Count(t.Context(), watch,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'
				AND state = 'active'`); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := s.Clock(t.Context()); err != nil {
			t.Errorf("clock: %v", err)
		}
		heartbeat, err := s.Heartbeat(t.Context(), 1, dispatcher.NodeReport{}, time.Time{})
		if err != nil || len(heartbeat.Live) != 1 {
			t.Errorf("heartbeat: got %+v, %v", heartbeat, err)
		}
	}
	if len(ended) > 0 {
		t.Errorf("the connections were free: %v", <-ended)
	}
	end()
	for range 2 {
		<-ended
	}
}
