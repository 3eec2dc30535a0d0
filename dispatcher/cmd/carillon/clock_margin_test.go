package main

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// skewed gives a PostgreSQL database two clocks, as if its connections led to two servers: one is
// ahead, the other is this machine's.
func skewed(t *testing.T, by time.Duration) (database string) {
	t.Helper()
	database = pgtest.New(t)
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), database))
	defer conn.Close(t.Context())
	install := `CREATE FUNCTION public.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE SQL VOLATILE AS
		'SELECT pg_catalog.clock_timestamp() + CASE WHEN pg_backend_pid() % 2 = 0 THEN interval ''` + by.String() + `'' ELSE interval ''0'' END';
		DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET search_path = public, pg_catalog'; END $$`
	if _, err := conn.Exec(t.Context(), install); err != nil {
		t.Fatal(err)
	}
	return database
}

// No fire comes before its instant by the slower clock, and no live node is marked dead, as long as
// the difference of the clocks is within the margin.
func TestNoFireIsEarlyByEitherServersClock(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	database := skewed(t, 600*time.Millisecond)
	token, r := newToken(t, database), newReceiver(t, nil)
	// A live node on a busy machine may send no heartbeat for many seconds.
	settings := []string{"--handler-interval=100ms", "--heartbeat=400ms", "--dead-after=60s", "--poll-window=300ms",
		"--share-grace=100ms", "--database-clock-margin=600ms"}
	n := startNode(t, database, token, settings...)
	startNode(t, database, token, settings...)
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "skew", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("skew", name, r.URL, map[string]string{"t": "rate(1s)"}), client.Condition{}))
	}
	r.awaitFires(t, "fires", 60)
	r.checkOnce(t, "between two clocks")
	for _, a := range r.all() {
		if a.at.Before(a.scheduled) {
			t.Errorf("instant %s came at %s, %s early", a.scheduled, a.at, a.scheduled.Sub(a.at))
		}
	}
	nodes := must[client.List[dispatcher.Node]](t)(n.Nodes(t.Context())).Items
	for _, node := range nodes {
		if node.State != dispatcher.NodeActive || len(nodes) != 2 {
			t.Errorf("node %s is %s, of %d nodes; want both active, and registered once", node.ID, node.State, len(nodes))
		}
	}
}
