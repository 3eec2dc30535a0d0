package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// awaitFires waits for so many further requests.
func (r *receiver) awaitFires(t *testing.T, what string, more int) {
	t.Helper()
	before := len(r.all())
	r.await(t, what, func(all []arrival) bool { return len(all) >= before+more })
}

// checkOnce requires that no attempt of an event was sent more than once. Further attempts are
// those of nodes that were marked dead, perhaps only for lack of processor time.
func (r *receiver) checkOnce(t *testing.T, when string) {
	t.Helper()
	sent := map[string]int{}
	for _, a := range r.all() {
		sent[fmt.Sprint(a.event, " attempt ", a.attempt)]++
	}
	for event, n := range sent {
		if n > 1 {
			t.Errorf("%s: event %s was sent %d times", when, event, n)
		}
	}
}

// awaitListener waits until a connection that matches a condition listens for notifications.
func awaitListener(t *testing.T, s *postgres.Server, what string) {
	t.Helper()
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), s.URL("carillon")))
	defer conn.Close(t.Context())
	until(t, "notifications to be heard where "+what, func() bool {
		var ears int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN carillon' AND `+what).Scan(&ears)
		return err == nil && ears == 1
	})
}

// checkNotRolledBack requires that no rollback of the database was detected.
func (n *process) checkNotRolledBack() {
	n.t.Helper()
	out, errs, code := n.commandWith("", "rollback", "show")
	if code != 0 || !strings.Contains(out, "was not rolled back") {
		n.t.Errorf("rollback show: exit %d: %s%s", code, out, errs)
	}
}

// Behind a pooler that gives each transaction another connection, nodes work as without one: they
// migrate, fire and recover after an outage of node, pooler or database.
func TestNodesWorkBehindAPooler(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	server := startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) })
	sqlIn(t, server, "postgres", "CREATE DATABASE carillon")
	pooler := pgtest.NewPooler(t, server.URL("carillon"), "default_pool_size = 3", "server_login_retry = 1")
	database := pooler.URL()
	if _, errs, code := carillon(t, nil, "migrate", "--database", database); code != 0 {
		t.Fatal(errs)
	}
	token, r := newToken(t, database), newReceiver(t, nil)
	hears := append(quick(), "--notify-database="+server.URL("carillon")+"&application_name=ears")
	one, two := startNode(t, database, token, quick()...), startNode(t, database, token, hears...)
	awaitListener(t, server, "application_name = 'ears'")
	one.tick("pooled", r.URL)
	r.awaitFires(t, "fires", 3)
	r.checkOnce(t, "while all is well")

	one.kill()
	r.awaitFires(t, "fires after a node was killed", 4)
	for name, by := range map[string]syscall.Signal{"ended": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		if err := pooler.Stop(t.Context(), by); err != nil {
			t.Fatal(err)
		}
		if err := pooler.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.awaitFires(t, "fires after the pooler was "+name, 3)
	}
	for name, by := range map[string]syscall.Signal{"shut down": syscall.SIGINT, "crashed": syscall.SIGQUIT} {
		if err := server.Stop(t.Context(), by); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		r.awaitFires(t, "fires after the database had "+name, 3)
	}
	startNode(t, database, token, quick()...)
	two.checkVerify("pooled")
	two.checkNotRolledBack()
	two.terminate()
}

// orders sends commands to the pooler, one after the other.
func orders(t *testing.T, p *postgres.Pooler, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if err := p.Order(t.Context(), command); err != nil {
			t.Fatal(err)
		}
	}
}

// A pooler keeps the connections of nodes while it moves to another server, so no connection is
// new. Nodes that start then do not have to wait for one.
func TestNodeFollowsAPoolerToAnotherServer(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	primary, standby := startServers(t)
	pooler := pgtest.NewPooler(t, primary.URL("carillon"))
	database := pooler.URL()
	token, r := newToken(t, database), newReceiver(t, nil)
	n := startNode(t, database, token, quick()...)
	n.tick("led", r.URL)
	r.awaitFires(t, "fires", 3)

	orders(t, pooler, "PAUSE")
	if err := primary.Stop(t.Context(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	sqlIn(t, standby, "postgres", `SELECT pg_promote()`)
	if err := pooler.Lead(standby.URL("carillon")); err != nil {
		t.Fatal(err)
	}
	orders(t, pooler, "RELOAD", "RESUME")
	r.awaitFires(t, "fires from the other server", 3)
	startNode(t, database, token, quick()...)
	n.checkVerify("led")
	n.checkNotRolledBack()
	n.terminate()
}

// A pooler does not report that it leads to a standby: requests that fail there go to the other
// server of the URL.
func TestNodeLeavesAPoolerThatLeadsToAStandby(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	primary, standby := startServers(t)
	pooler := pgtest.NewPooler(t, primary.URL("carillon"))
	past := must[*pgx.ConnConfig](t)(pgx.ParseConfig(pooler.URL()))
	database := fmt.Sprintf("postgres://postgres@/carillon?host=%s,%s&port=%d,5432", past.Host, socketOf(t, standby), past.Port)
	token, r := newToken(t, database), newReceiver(t, nil)
	n := startNode(t, database, token, quick()...)
	n.tick("stuck", r.URL)
	r.awaitFires(t, "fires", 3)
	orders(t, pooler, "PAUSE")
	swap(t, primary, standby)
	orders(t, pooler, "RESUME")
	r.awaitFires(t, "fires past the pooler", 4)
	n.checkVerify("stuck")
	n.checkNotRolledBack()
	n.terminate()
}
