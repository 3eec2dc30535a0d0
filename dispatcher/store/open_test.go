package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

func TestOpenNamesTheProblemWithoutThePassword(t *testing.T) {
	t.Parallel()
	for database, want := range map[string]string{
		"mysql://root:hunter2@db/x":  `"mysql://root:xxxxx@db/x" is neither`,
		"":                           `"" is neither`,
		"sqlite:":                    "names no file",
		"sqlite::memory:":            "names no file",
		"postgres:hunter2@db":        "is not a URL",
		"postgres://u:hun%ter2@db/x": "postgres://u:xxxxx@db/x",
		"postgres://u@db/x?password=hunter2&port=x":  "URL cannot be read",
		"postgres://u:hunter2@127.0.0.1:1/x":         "connect",
		"postgres://u:hunter2@127.0.0.1:1,[::1]:2/x": "dial tcp [::1]:2",
		"sqlite:/nowhere/at/all.db":                  "/nowhere/at/all.db.lock",
	} {
		for what, err := range map[string]error{
			"open":    openOnly(t.Context(), database),
			"migrate": store.Migrate(t.Context(), database),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: got error %v, want one that says %s", what, database, err, want)
			} else if strings.Contains(err.Error(), "ter2") {
				t.Errorf("%s %q: the error shows the password: %v", what, database, err)
			}
		}
	}
}

func openOnly(ctx context.Context, database string) error {
	s, err := store.Open(ctx, database, store.Options{})
	if err != nil {
		return err
	}
	return s.Close()
}

func TestSQLiteRefusesASecondProcess(t *testing.T) {
	t.Parallel()
	database := sqlitetest.New(t)
	s := open(t, database)
	want := fmt.Sprintf("%s.lock is locked: another process (pid %d)", strings.TrimPrefix(database, "sqlite:"), os.Getpid())
	for what, err := range map[string]error{"open": openOnly(t.Context(), database), "migrate": store.Migrate(t.Context(), database)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one that names the lock file", what, err)
		}
	}
	must(t, s.Close())
	must(t, openOnly(t.Context(), database))
}

func TestSchemaVersions(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testSchemaVersions(t, sqlitetest.New(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testSchemaVersions(t, pgtest.New(t)) })
}

func testSchemaVersions(t *testing.T, database string) {
	t.Helper()
	must(t, store.Migrate(t.Context(), database)) // nothing to do
	s := open(t, database)
	// A script of the same thousand only adds to the schema that this version knows.
	must(t, store.Exec(t.Context(), s, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, TRUE)`))
	must(t, s.Close())
	must(t, openOnly(t.Context(), database))
	must(t, store.Migrate(t.Context(), database))
	s = open(t, database)
	must(t, store.Exec(t.Context(), s, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, TRUE)`))
	must(t, s.Close())
	if err := openOnly(t.Context(), database); !errors.Is(err, dispatcher.ErrSchemaTooNew) {
		t.Errorf("open: got error %v, want ErrSchemaTooNew", err)
	}
	if err := store.Migrate(t.Context(), database); !errors.Is(err, dispatcher.ErrSchemaTooNew) {
		t.Errorf("migrate: got error %v, want ErrSchemaTooNew", err)
	}
}

func TestOpenAsksForMigration(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "with space & ?.db")
	if err := openOnly(t.Context(), "sqlite:"+empty); err == nil || !strings.Contains(err.Error(), "run carillon migrate") {
		t.Errorf("open an empty database: got error %v, want one that asks for migration", err)
	}
	if _, err := os.Stat(empty); err != nil {
		t.Errorf("the file has another name: %v", err)
	}
}

// Nodes that start together migrate together.
func TestConcurrentMigration(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := open(t, database)
	must(t, store.Exec(t.Context(), s, `DROP SCHEMA public CASCADE; CREATE SCHEMA public`))
	must(t, s.Close())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := store.Migrate(t.Context(), database); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	must(t, openOnly(t.Context(), database))
}

// A poll reads the index in its order, even if the planner has alternatives and knows little of the tables.
func TestDueTriggersAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testDuePlan(t, open(t, sqlitetest.New(t)), "SEARCH t USING INDEX trigger_clock_due", "TEMP B-TREE",
			"SCAN t USING INDEX trigger_clock_delayed")
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testDuePlan(t, open(t, pgtest.New(t)), "Index Scan using trigger_clock_due", "Sort", "Index Scan using trigger_clock_delayed")
	})
}

func testDuePlan(t *testing.T, s *store.Store, want, unwanted, wantEnded string) {
	t.Helper()
	const fill = `INSERT INTO apps (id, name, description, enabled, retention, revision, created_at,
		updated_at) SELECT 1, 'a', '', TRUE, 1, 1, 0, 0;
		INSERT INTO jobs (id, app_id, name, description, enabled, paused, priority, node_labels, delivery, retry,
		concurrency_policy, max_concurrency, queue_limit, target, payload, trigger_names, revision, created_at, updated_at)
			SELECT 1, 1, 'j', '', TRUE, FALSE, 0, '', '', '{}', 'allow', 0, 0, '{}', '', '[]', 1, 0, 0;
		INSERT INTO triggers (id, job_id, app_id, revision, misfire_after, anchor_at, jitter, repeat_count, fired, enabled, paused,
			job_paused, delayed, drift_hour, name, expression, dialect, timezone, gap, overlap, calendar, on_excluded, error, node_labels)
		WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20000)
		SELECT n, 1, 1, 1, 60000, 0, 0, 0, 0, TRUE, FALSE, FALSE, FALSE, FALSE, '', '', '', '', '', '', '', '', '', '' FROM s;
		INSERT INTO trigger_clock (id, app_id, revision, calendar_revision, next_fire_time, due_at, misfire_after, off, delayed, state,
			node_labels)
		SELECT id, app_id, 1, 0, id * 10, id * 10, 60000, 0, FALSE, 'waiting', '' FROM triggers`
	must(t, store.Exec(t.Context(), s, fill))
	for _, statistics := range []string{"none", "fresh"} {
		if statistics == "fresh" {
			must(t, store.Exec(t.Context(), s, "ANALYZE"))
		}
		for _, until := range []int64{1000, 100_000, 1_000_000} {
			plan, err := store.ExplainDue(t.Context(), s, dispatcher.DueQuery{
				Until: time.UnixMilli(until), Now: time.UnixMilli(1), IDFrom: 1, IDTo: 10_000, Limit: 500,
			})
			must(t, err)
			if !strings.Contains(plan, want) || strings.Contains(plan, unwanted) {
				t.Errorf("until %d, statistics %s: got plan\n%s", until, statistics, plan)
			}
		}
		// A look at late fires reads those that nodes poll by that index, and those that no node serves by one of their own.
		late, err := store.ExplainUnclaimed(t.Context(), s, 1_000_000)
		must(t, err)
		if !strings.Contains(late, "trigger_clock_due") || !strings.Contains(late, "trigger_clock_unserved") ||
			strings.Contains(late, "Seq Scan") {
			t.Errorf("late, statistics %s: got plan\n%s", statistics, late)
		}
		// The same holds for the search for fixed delays.
		plan, err := store.ExplainEnded(t.Context(), s)
		must(t, err)
		if !strings.Contains(plan, wantEnded) || strings.Contains(plan, unwanted) {
			t.Errorf("ended, statistics %s: got plan\n%s", statistics, plan)
		}
	}
}

// The search for runs that no node works on reads the runs of dead nodes and the queue, but not retrying runs or the
// history.
func TestAbandonedRunsAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	for index, database := range map[string]string{"INDEX live_runs_node": sqlitetest.New(t), "live_runs_node": pgtest.New(t)} {
		look, failLost, err := store.ExplainAbandoned(t.Context(), open(t, database))
		must(t, err)
		for _, plan := range []string{look, failLost} {
			if !strings.Contains(plan, index) || strings.Contains(plan, "PRIMARY KEY (scheduled_at>") ||
				strings.Contains(plan, "Seq Scan on live_runs") {
				t.Errorf("got a plan without %s:\n%s", index, plan)
			}
		}
	}
}

// A database that hangs does not hang its caller.
func TestCallsHaveDeadlines(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.New(t))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := store.Exec(ctx, s, `SELECT pg_sleep(3600)`); err == nil { // it would outlast the test
		t.Error("a statement outlived its deadline")
	}
	if _, err := s.Installation(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A file damaged by a crash is refused; an undamaged one is not.
func TestSQLiteIsCheckedAfterACrash(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		harm func(page []byte)
		want string
	}{
		"whole":   {func([]byte) {}, ""},
		"damaged": {func(page []byte) { clear(page) }, "is damaged: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := sqlitetest.New(t)
			file := strings.TrimPrefix(database, "sqlite:")
			s := open(t, database)
			insertRuns(t, s, declareApp(t, s, "app", days(10)), may1, 2000, false)
			must(t, s.Close())
			s = open(t, database)
			must(t, s.Register(t.Context(), dispatcher.Node{ID: 1}, may1)) // writes to the log
			left := map[string][]byte{}
			for _, part := range []string{"", "-wal"} {
				text, err := os.ReadFile(file + part)
				must(t, err)
				left[part] = text
			}
			must(t, s.Close())
			last := left[""][len(left[""])-4096*8:]
			test.harm(last[:4096*4])
			for part, text := range left {
				must(t, os.WriteFile(file+part, text, 0o600))
			}
			if err := openOnly(t.Context(), database); test.want == "" && err != nil || test.want != "" &&
				(err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

// The file contains headers, payloads and responses, so other users of the machine must not read it.
func TestFilesOfSQLiteAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	database := sqlitetest.New(t)
	s := openAs(t, database, store.Options{})
	if _, _, err := s.PutApp(t.Context(), access.App{Name: "demo", AppSpec: access.AppSpec{Enabled: true}}, input.Change{}); err != nil {
		t.Fatal(err)
	}
	file := strings.TrimPrefix(database, "sqlite:")
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		info, err := os.Stat(file + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("the file %q of the database has mode %o, want 600", suffix, mode)
		}
	}
	if exposed := db.ExposedFiles(database); len(exposed) != 0 {
		t.Errorf("exposed files are %v, want none", exposed)
	}
}

func TestExposedFilesAreListed(t *testing.T) {
	t.Parallel()
	database := sqlitetest.New(t)
	openAs(t, database, store.Options{})
	file := strings.TrimPrefix(database, "sqlite:")
	for name, mode := range map[string]os.FileMode{file: 0o640, file + "-wal": 0o604, file + "-shm": 0o600} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{file, file + "-wal"}, db.ExposedFiles(database)); diff != "" {
		t.Errorf("exposed files (-want +got):\n%s", diff)
	}
	if exposed := db.ExposedFiles("postgres://localhost/x"); exposed != nil {
		t.Errorf("exposed files of PostgreSQL are %v", exposed)
	}
}

// A failed start leaves no file that the next start would take for a database that lost everything.
func TestFailedCreationLeavesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	begun := t.Context()
	ended, end := context.WithCancel(begun)
	end()
	for name, tt := range map[string]struct {
		path string
		want string
	}{
		"a directory":       {dir, "is a directory; name a file in it, such as " + filepath.Join(dir, "carillon.db")},
		"a socket":          {filepath.Join(dir, "socket"), "is not a regular file"},
		"no such directory": {filepath.Join(dir, "missing", "carillon.db"), "no such file or directory"},
		"a start that ends": {filepath.Join(dir, "carillon.db"), "context canceled"},
	} {
		ctx := begun
		if name == "a start that ends" {
			ctx = ended
		}
		if err := store.Migrate(ctx, "sqlite:"+tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Migrate = %v, want %q", name, err, tt.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "carillon.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the start that was ended left a database: %v", err)
	}
	if _, err := os.Stat(dir + ".lock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("next to the directory is a lock file: %v", err)
	}
	if got := db.ExposedFiles("sqlite:" + dir); got != nil {
		t.Errorf("ExposedFiles of a directory = %v, want none", got)
	}
}
