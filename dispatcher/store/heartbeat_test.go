package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// sleepers takes connections of a store with statements that last, until the test ends, and returns when
// as many as want have one.
func sleepers(t *testing.T, s *store.Store, database string, count int, want int64) {
	t.Helper()
	busy, end := context.WithCancel(t.Context())
	ended := make(chan error, count)
	for range count {
		go func() { ended <- store.Exec(busy, s, `SELECT pg_sleep(3600)`) }()
	}
	t.Cleanup(func() {
		end()
		for range count {
			<-ended
		}
	})
	watch := open(t, database)
	for taken := int64(0); taken < want; {
		var err error
		if taken, err = store.Count(t.Context(), watch,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'
				AND state = 'active'`); err != nil {
			t.Fatal(err)
		}
	}
}

// Heartbeats have a connection of their own: a node that is busy to the last connection is alive.
func TestHeartbeatGoesOnWhileAllConnectionsAreTaken(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s, err := store.Open(t.Context(), database, store.Options{Options: db.Options{MaxConns: 1}})
	must(t, err)
	defer s.Close()
	must(t, s.Register(t.Context(), dispatcher.Node{ID: 1}, time.Time{}))
	t.Run("while they are taken", func(t *testing.T) {
		sleepers(t, s, database, 2, 1)
		for range 3 {
			if _, err := s.Clock(t.Context()); err != nil {
				t.Errorf("clock: %v", err)
			}
			heartbeat, err := s.Heartbeat(t.Context(), 1, dispatcher.NodeReport{}, time.Time{})
			if err != nil || len(heartbeat.Live) != 1 {
				t.Errorf("heartbeat: got %+v, %v", heartbeat, err)
			}
		}
	})
}

// People who read long lists take connections for seconds. Two are kept for what fires wait for.
func TestHotStatementsGoOnWhileOthersTakeConnections(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s, err := store.Open(t.Context(), database, store.Options{Options: db.Options{MaxConns: 3}})
	must(t, err)
	defer s.Close()
	t.Run("while the others are taken", func(t *testing.T) {
		sleepers(t, s, database, 5, 1)
		within, cancel := context.WithTimeout(t.Context(), waitLimit) // the others sleep for longer
		defer cancel()
		for range 3 {
			if _, err := s.Due(within, dispatcher.DueQuery{Until: may1, Limit: 10}); err != nil {
				t.Errorf("due: %v", err)
			}
			one := dispatcher.Advance{TriggerID: 1, JobID: 1, Next: may1}
			if _, err := s.Claim(within, dispatcher.ClaimBatch{Node: 1, Token: 1, Advances: []dispatcher.Advance{one}}); err != nil {
				t.Errorf("claim: %v", err)
			}
		}
	})
}

// A heartbeat that another server has stamped may lie in the future by the margin. One beyond it is of no clock.
func TestHeartbeatOfAServerThatIsAheadStands(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ margin, ahead, want time.Duration }{
		"one clock":         {ahead: 300 * time.Millisecond},
		"within the margin": {margin: 500 * time.Millisecond, ahead: 300 * time.Millisecond, want: 300 * time.Millisecond},
		"beyond the margin": {margin: 500 * time.Millisecond, ahead: 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s := t.Context(), openAs(t, pgtest.New(t), store.Options{Options: db.Options{ClockMargin: test.margin}})
			for _, node := range []run.NodeID{firstNode, secondNode} {
				must(t, s.Register(ctx, dispatcher.Node{ID: node, Name: node.String()}, may1))
			}
			_, err := s.Heartbeat(ctx, firstNode, dispatcher.NodeReport{}, may1.Add(test.ahead))
			must(t, err)
			_, err = s.MarkDead(ctx, secondNode, may1, time.Minute, may1)
			must(t, err)
			nodes, err := s.Nodes(ctx)
			must(t, err)
			for _, node := range nodes {
				if node.ID == firstNode && node.HeartbeatAt.Sub(may1) != test.want {
					t.Errorf("the heartbeat is %s ahead, want %s", node.HeartbeatAt.Sub(may1), test.want)
				}
			}
		})
	}
}

// Over SQLite there is one node at a time: one that registers takes the place of any before it, and no other process can.
// Over PostgreSQL nodes are many.
func TestNodeThatRegistersOverSQLiteIsAlone(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openAs(t, database, store.Options{})
		for _, id := range []run.NodeID{1, 2} {
			must(t, s.Register(t.Context(), dispatcher.Node{ID: id}, time.Time{}))
		}
		single := strings.HasPrefix(database, "sqlite:")
		_, err := s.Heartbeat(t.Context(), 1, dispatcher.NodeReport{}, time.Time{})
		if single != errors.Is(err, dispatcher.ErrNodeDead) || !single && err != nil {
			t.Errorf("heartbeat of the first node: %v", err)
		}
		reply, err := s.Heartbeat(t.Context(), 2, dispatcher.NodeReport{}, time.Time{})
		if err != nil || single != (len(reply.Live) == 1) {
			t.Errorf("heartbeat of the second node: %+v, %v", reply, err)
		}
		other, err := store.Open(t.Context(), database, store.Options{})
		if single != (err != nil && strings.Contains(err.Error(), "is locked")) {
			t.Errorf("another node opens the database: %v", err)
		}
		if err == nil {
			must(t, other.Close())
		}
	})
}
