package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// tick declares a job that fires each second.
func (n *process) tick(app, url string) {
	n.t.Helper()
	must[access.App](n.t)(n.PutApp(n.t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[dispatcher.Job](n.t)(n.PutJob(n.t.Context(), patient(webhookJob(app, "ticks", url, map[string]string{"tick": "* * * * * ?"})),
		client.Condition{}))
}

// checkVerify requires that every fire of an app has a run or a decision.
func (n *process) checkVerify(app string) {
	n.t.Helper()
	out, errs, code := carillon(n.t, []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}, "verify", app)
	if code != 0 {
		n.t.Errorf("verify: exit %d: %s%s", code, out, errs)
	}
}

// hog takes all remaining connections of a database.
func hog(t *testing.T, database string) (taken []*pgx.Conn) {
	t.Helper()
	for {
		conn, err := pgx.Connect(t.Context(), database)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "53300" {
			return taken
		}
		taken = append(taken, must[*pgx.Conn](t)(conn, err))
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
	}
}

// A node waits for connections, works with few, and keeps its own.
func TestNodeWorksWithFewConnections(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	server := startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) }, "max_connections=12")
	sqlIn(t, server, "postgres", "CREATE ROLE carillon LOGIN", "CREATE DATABASE carillon OWNER carillon")
	database := strings.Replace(server.URL("carillon"), "postgres://postgres@", "postgres://carillon@", 1)
	if err := store.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	token, r := newToken(t, database), newReceiver(t, nil)
	taken := hog(t, database)
	n := launchNode(t, database, token, nil, quick()...)
	until(t, "the node to find no connection", func() bool { return strings.Contains(n.logs.String(), "waiting for the database") })
	if live, ready := n.status("/livez"), n.status("/readyz"); live != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("without a connection: /livez %d, /readyz %d, want 200 and 503", live, ready)
	}
	for _, conn := range taken[:4] {
		_ = conn.Close(t.Context())
	}
	until(t, "the node to be ready with four connections", func() bool { return n.status("/readyz") == http.StatusOK })
	n.tick("few", r.URL)
	r.await(t, "fires with few connections", func(all []arrival) bool { return len(all) >= 3 })
	hog(t, database)
	before := len(r.all())
	r.await(t, "fires with none left", func(all []arrival) bool { return len(all) >= before+5 })
	n.awaitReady()
	n.checkVerify("few")
	n.terminate()
}

// A table that an administrator locks for long delays only the statements that need it: no node is
// marked dead, and later every fire has a run or a decision.
func TestLongTableLockMarksNoNodeDead(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	database := pgtest.New(t)
	r := newReceiver(t, nil)
	n := startNode(t, database, newToken(t, database), append(quick(), "--dead-after=10s")...)
	n.tick("locked", r.URL)
	r.await(t, "fires", func(all []arrival) bool { return len(all) >= 2 })
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), database))
	defer conn.Close(t.Context())
	lock := must[pgx.Tx](t)(conn.Begin(t.Context()))
	if _, err := lock.Exec(t.Context(), `LOCK TABLE trigger_clock, runs IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	locked := time.Now()
	id, since := n.only(), n.lastHeartbeat()
	until(t, "heartbeats for longer than it takes to count as dead", func() bool {
		if live := n.status("/livez"); live != http.StatusOK {
			t.Fatalf("while the table is locked: /livez is %d, want 200", live)
		}
		return n.lastHeartbeat().Sub(since) > 15*time.Second
	})
	for _, a := range r.all() {
		if a.scheduled.After(locked.Add(claimLead)) {
			t.Errorf("instant %s was sent while no fire could be claimed, since %s", a.scheduled, locked)
		}
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(r.all())
	r.await(t, "fires after the lock", func(all []arrival) bool { return len(all) >= before+5 })
	if now := n.only(); now != id {
		t.Errorf("node %s is now %s: it was marked dead", id, now)
	}
	r.checkOnce(t, "around the lock")
	n.checkVerify("locked")
	n.terminate()
}

// only returns the id of the only node.
func (n *process) only() run.NodeID {
	n.t.Helper()
	all := must[client.List[dispatcher.Node]](n.t)(n.Nodes(n.t.Context())).Items
	if len(all) != 1 {
		n.t.Fatalf("%d nodes, want one", len(all))
	}
	return all[0].ID
}

// A node with too few files for its load catches up later.
func TestNodeWorksWithFewFiles(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	database := pgtest.New(t)
	token := newToken(t, database)
	r := newReceiver(t, func(w http.ResponseWriter, _ arrival) {
		elapse(200 * time.Millisecond) // so that requests accumulate
		w.WriteHeader(http.StatusNoContent)
	})
	n := launchNodeIn(t, surroundings{files: 64}, database, token, nil, quick()...)
	until(t, "the node to be ready", func() bool { return n.status("/readyz") == http.StatusOK })
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "narrow", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	job := webhookJob("narrow", "herd", r.URL, nil)
	job.Retry = run.Retry{MaxAttempts: run.MostAttempts, Base: input.Duration(time.Second),
		Cap: input.Duration(2 * time.Second), MaxAge: run.DefaultMaxAge}
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	const runs = 200
	for range runs {
		// Without a file for a database connection, the node tells the caller to try again.
		until(t, "the node to take a run", func() bool {
			_, err := n.RunJob(t.Context(), "narrow", "herd")
			return err == nil
		})
	}
	n.tick("further", r.URL)
	until(t, "all runs to succeed", func() bool {
		page, err := n.Runs(t.Context(), dispatcher.RunQuery{App: "narrow", Page: input.Page{Limit: 1000}})
		if err != nil {
			return false
		}
		succeeded := 0
		for _, one := range page.Items {
			if one.State == run.Succeeded {
				succeeded++
			}
		}
		return succeeded == runs
	})
	before := len(r.all())
	r.await(t, "further fires", func(all []arrival) bool { return len(all) >= before+2 })
	n.checkVerify("further")
	n.terminate()
}
