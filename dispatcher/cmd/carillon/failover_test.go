package main

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
)

// socketOf returns the directory of a server's socket.
func socketOf(t *testing.T, s *postgres.Server) string {
	t.Helper()
	return must[*pgx.ConnConfig](t)(pgx.ParseConfig(s.URL("carillon"))).Host
}

// swap makes a standby the primary and the primary its standby, without losing commits.
func swap(t *testing.T, primary, standby *postgres.Server) {
	t.Helper()
	sqlIn(t, primary, "postgres", `ALTER SYSTEM SET primary_conninfo = 'user=postgres host=`+socketOf(t, standby)+`'`,
		`COPY (SELECT 1 LIMIT 0) TO '`+filepath.Join(socketOf(t, primary), "data", "standby.signal")+`'`)
	if err := primary.Stop(t.Context(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	sqlIn(t, standby, "postgres", `SELECT pg_promote()`)
	if err := primary.Start(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
}

// With both servers in the URL, nodes find the writable one wherever it is, and a swap without a
// loss is no rollback.
func TestNodesFollowThePrimary(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	a, b := startServers(t)
	database := "postgres://postgres@/carillon?host=" + socketOf(t, a) + "," + socketOf(t, b)
	token, r := newToken(t, database), newReceiver(t, nil)
	one, two := startNode(t, database, token, quick()...), startNode(t, database, token, quick()...)
	one.tick("swapped", r.URL)
	r.awaitFires(t, "fires", 3)
	swap(t, a, b)
	r.awaitFires(t, "fires after the swap", 4)
	startNode(t, database, token, quick()...)
	swap(t, b, a)
	r.awaitFires(t, "fires after the swap back", 4)
	startNode(t, database, token, quick()...)
	for _, n := range []*process{one, two} {
		n.checkVerify("swapped")
		n.checkNotRolledBack()
		n.terminate()
	}
}
