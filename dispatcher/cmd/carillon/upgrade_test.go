package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// nextVersion is the version of the program that newer builds.
const nextVersion = "9.0.0"

// newer builds this program as a possible next version, with one more migration that adds columns
// to tables that every fire writes.
func newer(t *testing.T) (program string) {
	t.Helper()
	const script = `-- +goose Up
ALTER TABLE trigger_clock ADD COLUMN later TEXT NOT NULL DEFAULT 'as it was';
ALTER TABLE runs ADD COLUMN later TEXT NOT NULL DEFAULT 'as it was';
CREATE TABLE later (id BIGINT NOT NULL PRIMARY KEY);
-- +goose Down
DROP TABLE later;
`
	dir, root := t.TempDir(), must[string](t)(filepath.Abs(filepath.Join("..", "..", "..")))
	added := map[string]string{}
	for _, database := range []string{"postgres", "sqlite"} {
		file := filepath.Join(dir, database+".sql")
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		added[filepath.Join(root, "migrations", database, "00999_later.sql")] = file
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, must[[]byte](t)(json.Marshal(map[string]any{"Replace": added})), 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "carillon")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-ldflags",
		"-X main.version="+nextVersion, "-o", program, "./dispatcher/cmd/carillon")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the next version: %v\n%s", err, out)
	}
	return program
}

// roll starts a node of a program, and stops the old node once the new one is ready.
func roll(t *testing.T, program string, old *process, database string) *process {
	t.Helper()
	n := launchNodeIn(t, surroundings{program: program}, database, old.token, nil)
	n.awaitReady()
	old.terminate()
	return n
}

// ticks counts the arrivals of the job that fires each second.
func ticks(all []arrival) (count int) {
	for _, a := range all {
		if a.trigger == "tick" {
			count++
		}
	}
	return count
}

// further waits for so many further fires.
func (r *receiver) further(t *testing.T, count int, when string) {
	t.Helper()
	before := ticks(r.all())
	r.await(t, "fires "+when, func(all []arrival) bool { return ticks(all) >= before+count })
}

// checkEachOnce requires that every second of the job that fires each second arrived exactly once.
func (r *receiver) checkEachOnce(t *testing.T) {
	t.Helper()
	all := slices.DeleteFunc(r.all(), func(a arrival) bool { return a.trigger != "tick" })
	slices.SortFunc(all, func(a, b arrival) int { return a.scheduled.Compare(b.scheduled) })
	for i, a := range all[1:] {
		if step := a.scheduled.Sub(all[i].scheduled); step != time.Second {
			t.Errorf("after the instant %s came one %s later, want each second once", all[i].scheduled.Format(time.TimeOnly), step)
		}
	}
}

// busy declares a job that fires each second, and forty more such triggers.
func (n *process) busy(url string) {
	n.t.Helper()
	n.tick("busy", url)
	triggers := map[string]string{}
	for i := range 40 {
		triggers[fmt.Sprintf("load-%d", i)] = "* * * * * ?"
	}
	must[dispatcher.Job](n.t)(n.PutJob(n.t.Context(), patient(webhookJob("busy", "load", url, triggers)), client.Condition{}))
}

// Nodes are upgraded to the next version and downgraded again, while fires continue.
func TestUpgradeAndDowngradeMissNoFire(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program := newer(t)
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); rollFleet(t, program) })
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); replaceNode(t, program) })
}

// rollFleet upgrades node by node: the schema is migrated under nodes of the old version, which can
// still restart afterwards.
func rollFleet(t *testing.T, program string) {
	t.Helper()
	database := pgtest.New(t)
	r, token := newReceiver(t, nil), newToken(t, database)
	fleet := []*process{startNode(t, database, token), startNode(t, database, token)}
	fleet[0].busy(r.URL)
	r.further(t, 3, "of the old version")

	// A dump of the database reads all tables for a long time. A migration waits for it, even after
	// another migration was killed, and no claim waits for the migration.
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), database))
	defer conn.Close(t.Context())
	dump := must[pgx.Tx](t)(conn.Begin(t.Context()))
	if _, err := dump.Exec(t.Context(), `LOCK TABLE trigger_clock, runs IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 2)
	for _, killed := range []bool{true, false} {
		migrate := exec.CommandContext(t.Context(), program, "migrate", "--database", database)
		if err := migrate.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { migrated <- migrate.Wait() }()
		until(t, "the migration to wait for the dump", func() bool {
			var waiting bool
			err := dump.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'
				AND relation = CAST('trigger_clock' AS regclass))`).Scan(&waiting)
			return err == nil && waiting
		})
		if killed {
			_ = migrate.Process.Kill()
			_ = receive(t, migrated)
		}
	}
	r.further(t, 5, "while a migration waits")
	select {
	case err := <-migrated:
		t.Fatalf("the migration did not wait for the dump: %v", err)
	default:
	}
	if err := dump.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, migrated); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	r.further(t, 3, "of the old version under the new schema")

	for i := range fleet {
		fleet[i] = roll(t, program, fleet[i], database)
		r.further(t, 2, "of both versions")
	}
	for _, n := range must[client.List[dispatcher.Node]](t)(fleet[0].Nodes(t.Context())).Items {
		if alive := n.State != dispatcher.NodeDead; alive != (n.Version == nextVersion) {
			t.Errorf("a node of version %s is %s", n.Version, n.State)
		}
	}
	for i := range fleet {
		fleet[i] = roll(t, "", fleet[i], database)
		r.further(t, 2, "when the version is taken back")
	}
	fleet[0].checkVerify("busy")
	for _, n := range fleet {
		n.terminate()
	}
	r.checkEachOnce(t)
}

// replaceNode stops the only node of a file before the next one starts.
func replaceNode(t *testing.T, program string) {
	t.Helper()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	r, token := newReceiver(t, nil), newToken(t, database)
	n := startNode(t, database, token)
	n.busy(r.URL)
	for _, next := range []string{program, ""} {
		r.further(t, 2, "before")
		n.terminate()
		n = launchNodeIn(t, surroundings{program: next}, database, token, nil)
		n.awaitReady()
	}
	r.further(t, 2, "at the end")
	n.checkVerify("busy")
	n.terminate()
	r.checkEachOnce(t)
}

// A version refuses a schema that it cannot use, with a specific exit code.
func TestIncompatibleSchemaIsRefused(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), database))
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, TRUE)`); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"migrate"}} {
		if _, errs, code := carillon(t, nil, append(command, "--database", database)...); code != exitTooNew ||
			!strings.Contains(errs, "schema 1000, newest known") {
			t.Errorf("%q: exit %d, want %d, and what it found:\n%s", command, code, exitTooNew, errs)
		}
	}
}
