package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
)

// startServer starts a PostgreSQL for the test, in a directory that made fills.
func startServer(t *testing.T, made func(*postgres.Server) error, settings ...string) *postgres.Server {
	t.Helper()
	bin, ok := postgres.Find()
	if !ok {
		need.Missing(t, "no initdb on this machine; install PostgreSQL: apt-get install -y postgresql")
	}
	dir := must[string](t)(os.MkdirTemp("", "carillon-pg-"))
	s := postgres.New(bin, dir, append(settings, "listen_addresses=", "shared_buffers=32MB", "fsync=off")...)
	if err := made(s); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Running() {
			_ = s.Stop(context.WithoutCancel(t.Context()), syscall.SIGQUIT)
		}
		_ = s.Close()
		_ = os.RemoveAll(dir)
	})
	return s
}

// startServers starts a PostgreSQL with a migrated database, and a standby of it.
func startServers(t *testing.T) (primary, standby *postgres.Server) {
	t.Helper()
	primary = startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) })
	sqlIn(t, primary, "postgres", "CREATE DATABASE carillon")
	if err := store.Migrate(t.Context(), primary.URL("carillon")); err != nil {
		t.Fatal(err)
	}
	return primary, startServer(t, func(s *postgres.Server) error { return s.Follow(t.Context(), primary) })
}

// sqlIn runs statements one by one, each in its own transaction.
func sqlIn(t *testing.T, s *postgres.Server, database string, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if err := s.Execute(t.Context(), database, statement); err != nil {
			t.Fatal(err)
		}
	}
}

// checkPaused requires that nothing fires and no node can be resumed before an operator has chosen.
func checkPaused(t *testing.T, n *process, r *receiver) {
	t.Helper()
	n.awaitHeartbeats(time.Second) // all nodes have noticed, and begin no more attempts
	since := n.lastHeartbeat()
	n.awaitHeartbeats(3 * time.Second)
	if begun := n.begunAfter("tail", since); len(begun) > 0 {
		t.Errorf("attempts of runs %v began while nodes were to wait", begun)
	}
	for _, a := range r.all() {
		if a.scheduled.After(since) {
			t.Errorf("instant %s was sent while nodes were to wait", a.scheduled)
		}
	}
	for _, node := range must[client.List[dispatcher.Node]](t)(n.Nodes(t.Context())).Items {
		if node.State == dispatcher.NodeDead {
			continue
		}
		if _, err := n.SetNodeState(t.Context(), node.ID, dispatcher.NodeActive); err == nil ||
			!strings.Contains(err.Error(), "carillon rollback") {
			t.Errorf("resume node %s: got error %v, want one that says how to choose", node.ID, err)
		}
	}
}

// events counts the requests of each event id.
func events(all []arrival) map[string]int {
	count := map[string]int{}
	for _, a := range all {
		count[a.event]++
	}
	return count
}

// A failover that lost commits of nodes pauses them. Replay repeats the lost runs under their event
// ids, and none is missing then.
func TestFailoverThatLostCommitsWaitsForAChoice(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	for name, without := range map[string]string{
		"the servers have identities":      "",
		"the servers have no identities":   "identity",
		"they have the least capabilities": "identity,notifications,skip-locked,session-settings",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failOverWithLoss(t, "--database-without="+without)
		})
	}
}

func failOverWithLoss(t *testing.T, without string) {
	settings := append(quick(), without)
	primary, standby := startServers(t)
	token := newToken(t, primary.URL("carillon"))
	g, database := newGate(t, primary.URL("carillon"))
	g.open()
	r := newReceiver(t, nil)
	one, two := startNode(t, database, token, settings...), startNode(t, database, token, settings...)
	must[access.App](t)(one.PutApp(t.Context(), access.App{Name: "tail", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[dispatcher.Job](t)(one.PutJob(t.Context(),
		webhookJob("tail", "ticks", r.URL, map[string]string{"tick": "* * * * * ?"}), client.Condition{}))
	r.await(t, "fires", func(all []arrival) bool { return len(all) >= 2 })

	// From here on the standby receives no changes.
	sqlIn(t, standby, "postgres", `ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`)
	r.await(t, "fires that will be lost", func(all []arrival) bool { return len(all) >= 8 })
	if err := primary.Stop(t.Context(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	g.close()
	sqlIn(t, standby, "postgres", `SELECT pg_promote()`)
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig(standby.URL("carillon")))
	network, address := "unix", filepath.Join(config.Host, ".s.PGSQL.5432")
	g.server = func() (net.Conn, error) { return config.DialFunc(t.Context(), network, address) }
	g.open()

	until(t, "the rollback to be noticed", func() bool {
		rollback, err := one.Rollback(t.Context())
		return err == nil && rollback.Reason != ""
	})
	startNode(t, database, token, settings...) // it waits like the others
	checkPaused(t, two, r)
	out, errs, code := one.commandWith("", "rollback", "replay")
	if code != 0 || !strings.Contains(out, "replay was chosen") {
		t.Fatalf("rollback replay: exit %d: %s%s", code, out, errs)
	}
	before := len(r.all())
	all := r.await(t, "fires after the choice", func(all []arrival) bool { return len(all) >= before+12 })
	twice := 0
	for _, n := range events(all) {
		if n > 1 {
			twice++
		}
	}
	if twice == 0 {
		t.Error("no fire that was lost has come again under its id")
	}
	first, last := firstAndLast(all)
	r.await(t, "every instant between the first and one after the choice", func(all []arrival) bool {
		return len(holes(all, first, last, time.Second)) == 0
	})
	if _, err := one.Rollback(t.Context()); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("after the choice: got %v, want no rollback", err)
	}
}

// A restored file pauses its node. Skip repeats nothing, and the ledger then accounts for all
// scheduled times.
func TestRestoredFileWaitsForAChoice(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	file := filepath.Join(t.TempDir(), "carillon.db")
	database := "sqlite:" + file
	copyFile := func(from, to string) {
		t.Helper()
		if err := os.WriteFile(to, must[[]byte](t)(os.ReadFile(from)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, errs, code := carillon(t, nil, "migrate", "--database", database); code != 0 {
		t.Fatal(errs)
	}
	token := newToken(t, database)
	r := newReceiver(t, nil)
	n := startNode(t, database, token, quick()...)
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "tail", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[dispatcher.Job](t)(n.PutJob(t.Context(),
		webhookJob("tail", "ticks", r.URL, map[string]string{"tick": "* * * * * ?"}), client.Condition{}))
	r.await(t, "fires", func(all []arrival) bool { return len(all) >= 2 })
	n.terminate()
	copyFile(file, file+".backup")
	n = startNode(t, database, token, quick()...)
	before := len(r.all())
	r.await(t, "fires that will be lost", func(all []arrival) bool { return len(all) >= before+4 })
	n.terminate()
	copyFile(file+".backup", file)

	n = startNode(t, database, token, quick()...)
	checkPaused(t, n, r)
	if out, errs, code := n.commandWith("", "rollback", "show"); code != 0 ||
		!strings.Contains(out, "until you choose skip or replay") {
		t.Errorf("rollback show: exit %d: %s%s", code, out, errs)
	}
	chosen := time.Now()
	if _, err := n.ResolveRollback(t.Context(), dispatcher.RollbackSkip); err != nil {
		t.Fatal(err)
	}
	before = len(r.all())
	all := r.await(t, "fires after the choice", func(all []arrival) bool { return len(all) >= before+3 })
	for event, count := range events(all) {
		if count > 1 {
			t.Errorf("event %s was sent %d times", event, count)
		}
	}
	for _, a := range all[before:] {
		if a.scheduled.Before(chosen.Add(-time.Second)) {
			t.Errorf("instant %s was sent after skip was chosen", a.scheduled)
		}
	}
	out, errs, code := carillon(t, []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + token}, "verify", "tail")
	if code != 0 {
		t.Errorf("audit: exit %d: %s%s", code, out, errs)
	}
	if out, errs, code := n.commandWith("", "rollback", "show"); code != 0 ||
		!strings.Contains(out, "was not rolled back") {
		t.Errorf("rollback show: exit %d: %s%s", code, out, errs)
	}
	if _, errs, code := n.commandWith("", "rollback", "replay"); code == 0 ||
		!strings.Contains(errs, "was not rolled back") {
		t.Errorf("rollback replay: exit %d: %s, want a refusal", code, errs)
	}
}
