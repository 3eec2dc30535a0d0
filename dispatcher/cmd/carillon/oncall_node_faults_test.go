package main

import (
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// nodeFaults are faults of the node b, or of all nodes.
func nodeFaults() []fault {
	silent := []string{"node b: silent", "CarillonNodeSilent"}
	down := []string{"node b: 0", "node b: dead", "CarillonNodeDown"}
	return []fault{
		{name: "node is killed", inject: killB, rings: down, may: silent},
		{name: "node is frozen", inject: freezeB, rings: down, may: silent},
		{name: "node loses its database", inject: cutOffB, rings: []string{"node b: 503 the database does not answer",
			"node b: dead", "CarillonDatabaseUnreachable"}, may: silent},
		{name: "node is paused", inject: setStateOfB(dispatcher.NodePaused), rings: []string{"node b: paused"}},
		{name: "node is drained", inject: setStateOfB(dispatcher.NodeDraining)},
		{name: "node has newer time zones", inject: newZonesOfB, rings: []string{"node a: zones"}},
		{name: "workers are saturated", inject: saturate, rings: []string{"node a: saturated", "node b: saturated", "CarillonSaturated"},
			may: []string{"calm: "}},
	}
}

func killB(w *vigil, _ string) (restore func()) {
	w.nodes["b"].kill()
	return func() { w.start("b") }
}

func freezeB(w *vigil, _ string) (restore func()) {
	w.nodes["b"].signal(syscall.SIGSTOP)
	return func() { w.nodes["b"].signal(syscall.SIGCONT) }
}

func cutOffB(w *vigil, _ string) (restore func()) {
	w.gates["b"].close()
	return w.gates["b"].open
}

// setStateOfB does what an operator does to a node.
func setStateOfB(state dispatcher.NodeState) func(*vigil, string) func() {
	return func(w *vigil, _ string) (restore func()) {
		set := func(state dispatcher.NodeState) {
			w.t.Helper()
			for _, n := range must[client.List[dispatcher.Node]](w.t)(w.nodes["a"].Nodes(w.t.Context())).Items {
				if n.Name == "b" && n.State != dispatcher.NodeDead {
					must[dispatcher.Node](w.t)(w.nodes["a"].SetNodeState(w.t.Context(), n.ID, state))
				}
			}
		}
		set(state)
		return func() { set(dispatcher.NodeActive) }
	}
}

// restart starts a node again with further arguments.
func (w *vigil) restart(name string, args ...string) {
	w.t.Helper()
	w.nodes[name].terminate()
	before := w.args
	w.args = append(before[:len(before):len(before)], args...)
	w.start(name)
	w.args = before
}

func newZonesOfB(w *vigil, _ string) (restore func()) {
	w.restart("b", "--zoneinfo="+newerZones(w.t))
	return func() { w.restart("b") }
}

// saturate leaves each node one worker, and gives it more to do.
func saturate(w *vigil, _ string) (restore func()) {
	few := []string{"--workers=1", "--min-workers=1", "--app-workers=1", "--host-workers=1", "--queue=1"}
	w.restart("a", few...)
	w.restart("b", few...)
	return func() {
		w.restart("a")
		w.restart("b")
	}
}

// databaseFaults are faults of the database.
func databaseFaults() []fault {
	unready := func(text string) []string { return []string{"node a: 503 " + text, "node b: 503 " + text} }
	// When the database is back, fires are owed for a moment, and nodes have to gain their leases again.
	owes := append([]string{"calm: overdue", "calm: misfires", "calm: alert missed", "calm: alerts", "calm: circuits",
		"CarillonMisfires"},
		unready("the node's lease has run out: its heartbeats do not reach the database")...)
	const gone, full = "the database does not answer", "the disk of the database is full; free space, and the node goes on by itself"
	const standby = "the database is read-only; make it writable, or lead the node to its primary, and the node goes on by itself"
	return []fault{
		{name: "database is away", inject: databaseGone, rings: append(unready(gone), "CarillonDatabaseUnreachable"), may: owes,
			doctor: "database"},
		{name: "database is started again", inject: restartDatabase, may: append(owes, unready(gone)...)},
		{name: "disk of the database is full", inject: fillDisk("INSERT OR UPDATE"), may: owes,
			rings: append(unready(full), "CarillonDatabaseUnreachable")},
		{name: "disk of the database has no room for new rows", inject: fillDisk("INSERT"),
			rings: append(unready(full), "CarillonOverdue"), may: owes},
		{name: "database is read-only", inject: readOnly, rings: unready(standby), may: append(owes, unready(gone)...), doctor: "read-only"},
		{name: "database lost commits", inject: rollBack, rings: []string{"fleet: rollback", "node a: paused", "node b: paused",
			"CarillonRolledBack"}, may: append(owes, unready(gone)...)},
		{name: "clock of the database is ahead", inject: shiftClock,
			rings: []string{"node a: clock", "node b: clock", "CarillonClock"}, may: owes},
	}
}

func databaseGone(w *vigil, _ string) (restore func()) {
	w.gates["a"].close()
	w.gates["b"].close()
	return func() {
		w.gates["a"].open()
		w.gates["b"].open()
	}
}

func restartDatabase(w *vigil, _ string) (restore func()) {
	if err := w.server.Stop(w.t.Context(), syscall.SIGINT); err != nil {
		w.t.Fatal(err)
	}
	if err := w.server.Start(w.t.Context(), ""); err != nil {
		w.t.Fatal(err)
	}
	return func() {}
}

// fillDisk makes writes to the tables of the ledger fail as on a full disk. Updates in place may still succeed.
func fillDisk(writes string) func(*vigil, string) func() {
	return func(w *vigil, _ string) (restore func()) {
		w.execute(`CREATE FUNCTION public.disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE 'could not extend file "base/1": No space left on device' USING ERRCODE = '53100', HINT = 'Check free disk space.';
			END $$;
			DO $$ DECLARE r record; BEGIN FOR r IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
				AND relkind IN ('r', 'p') AND NOT relispartition LOOP
			EXECUTE format('CREATE TRIGGER disk_full BEFORE %s ON %%I FOR EACH ROW EXECUTE FUNCTION public.disk_full()', r.relname);
			END LOOP; END $$`, writes)
		return func() { w.execute(`DROP FUNCTION public.disk_full() CASCADE`) }
	}
}

func readOnly(w *vigil, _ string) (restore func()) {
	const connections = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	w.execute(`ALTER DATABASE ` + watchedDatabase + ` SET default_transaction_read_only = on`)
	w.execute(connections)
	return func() {
		w.execute(`SET default_transaction_read_only = off; ALTER DATABASE ` + watchedDatabase + ` RESET default_transaction_read_only`)
		w.execute(connections)
	}
}

// rollBack restores an old copy of the database under the nodes. Its choice is to skip.
func rollBack(w *vigil, _ string) (restore func()) {
	databaseGoneFor := func(from, to string) {
		w.t.Helper()
		open := databaseGone(w, "")
		defer open()
		until(w.t, "the copy of the database", func() bool {
			_ = w.server.Execute(w.t.Context(), "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname IN ('`+watchedDatabase+`', '`+dumped+`') AND pid <> pg_backend_pid()`)
			return w.server.Execute(w.t.Context(), "postgres", `DROP DATABASE IF EXISTS `+to+` WITH (FORCE)`) == nil &&
				w.server.Execute(w.t.Context(), "postgres", `CREATE DATABASE `+to+` TEMPLATE `+from) == nil
		})
	}
	databaseGoneFor(watchedDatabase, dumped)
	from := w.nodes["a"].lastHeartbeat()
	until(w.t, "some commits that are lost", func() bool { return w.nodes["a"].lastHeartbeat().Sub(from) > 3*time.Second })
	databaseGoneFor(dumped, watchedDatabase)
	return func() {
		until(w.t, "the choice to be carried out", func() bool {
			rollback, err := w.nodes["a"].Rollback(w.t.Context())
			if err == nil && rollback.Choice == "" {
				must[dispatcher.Rollback](w.t)(w.nodes["a"].ResolveRollback(w.t.Context(), dispatcher.RollbackSkip))
			}
			return err != nil
		})
	}
}

// shiftClock sets the clock of the database ahead of that of the nodes.
func shiftClock(w *vigil, _ string) (restore func()) {
	set := clockOf(w.root, w.server.URL(watchedDatabase))
	set(20 * time.Second)
	return func() { set(0) }
}
