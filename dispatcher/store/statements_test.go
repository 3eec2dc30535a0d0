package store_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// update writes the page and the goldens instead of comparing them:
// go test ./dispatcher/store -run 'PageShows|HotStatements' -update.
var update = flag.Bool("update", false, "write the hot statements into testdata and docs/why/architecture.md")

// golden compares a file with its wanted content, or writes it.
func golden(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		//nolint:gosec // files that all may read
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(want), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date; write it with make docs (-want +got):\n%s", path, diff)
	}
}

// shown is a statement on the page: a marker with its name, followed by its block.
var shown = regexp.MustCompile("(?s)<!-- statement: ([a-z_]+) -->\n```sql\n(.*?)```\n")

func TestPageShowsTheHotStatements(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "why", "architecture.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	statements := store.HotStatements("postgres", may1.UnixMilli())
	var found []string
	want := shown.ReplaceAllStringFunc(string(page), func(block string) string {
		name := shown.FindStringSubmatch(block)[1]
		found = append(found, name)
		hot, ok := statements[name]
		if !ok {
			t.Errorf("the page shows a statement %q, which does not exist", name)
			return block
		}
		return "<!-- statement: " + name + " -->\n```sql\n" + laidOut(hot.Parts[0]) + "```\n"
	})
	if got := strings.Join(found, " "); got != "due claim record adopt" {
		t.Errorf("the page shows %s, want due claim record adopt", got)
	}
	golden(t, path, want)
}

// testdata contains the text of each hot statement, one clause a line.
func TestHotStatementsAreInTestdata(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"postgres", "sqlite"} {
		var files []string
		for name, hot := range store.HotStatements(database, may1.UnixMilli()) {
			var text strings.Builder
			for i, part := range hot.Parts {
				if len(hot.Parts) > 1 {
					fmt.Fprintf(&text, "-- Part %d of %d, in one transaction\n", i+1, len(hot.Parts))
				}
				text.WriteString(laidOut(part))
			}
			if hot.OrElse != "" {
				text.WriteString("-- Instead, if that finds a run which exists\n" + laidOut(hot.OrElse))
			}
			golden(t, filepath.Join("testdata", database, name+".sql"), text.String())
			files = append(files, name+".sql")
		}
		onlyFiles(t, filepath.Join("testdata", database), ".sql", files)
	}
}

// onlyFiles fails if a folder has other files of this kind.
func onlyFiles(t *testing.T, folder, kind string, want []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*"+kind))
	must(t, err)
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("files in %s (-want +got):\n%s", folder, diff)
	}
}

// growing is a line of a plan that reads a table growing with the triggers or with the kept days: how, and which.
var growing = regexp.MustCompile(`-> +(.*Scan.*) on (trigger_clock|triggers|slots|runs|attempts|responses)(_[0-9]+|_default)?( |$)`)

// Plans differ from version to version. In all of them no hot statement reads the history, or all of a table of
// triggers or slots. TestLiveRunsAreFoundByKeyDuringALongSnapshot requires the same for the live runs.
func TestHotStatementsDoNotReadTheHistory(t *testing.T) {
	t.Parallel()
	s := openWithout(t, pgtest.New(t))
	fill(t, s)
	// These search for some runs by their keys.
	byKey := map[string]bool{"unfold": true, "record_late": true, "queue": true, "queue_recheck": true}
	read := map[string]bool{}
	for name, hot := range store.HotStatements("postgres", may1.UnixMilli()) {
		for _, part := range hot.Parts {
			plan, err := store.PostgresPlan(t.Context(), s, part, hot.Args)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			lines := strings.Split(plan, "\n")
			for i, line := range lines {
				found := growing.FindStringSubmatch(line)
				if found == nil {
					continue
				}
				how, table := found[1], found[2]
				read[table] = true
				history := slices.Contains([]string{"runs", "attempts", "responses"}, table)
				switch {
				case history && !byKey[name]:
					t.Errorf("%s reads the history: %s\n%s", name, line, plan)
				case strings.HasPrefix(how, "Seq Scan"), history && !strings.Contains(lines[i+1], "Index Cond"):
					t.Errorf("%s reads %s as a whole: %s\n%s", name, table, line, plan)
				}
			}
		}
	}
	for _, table := range []string{"trigger_clock", "triggers", "slots", "runs", "attempts"} {
		if !read[table] {
			t.Errorf("no plan reads %s, so this test does not understand them", table)
		}
	}
}

// changed is a change of a table in a statement.
var changed = regexp.MustCompile(`(?:(INSERT) INTO|UPDATE|DELETE FROM) ([a-z_]+)\s+(?:AS |SET |\(|WHERE )`)

// Some databases refuse a statement that updates or deletes rows of one table in two places.
// docs/reference/databases.md names the one that does.
func TestHotStatementsChangeEachTableOnce(t *testing.T) {
	t.Parallel()
	var twice []string
	for name, hot := range store.HotStatements("postgres", may1.UnixMilli()) {
		for _, part := range hot.Parts {
			count := map[string]int{}
			for _, found := range changed.FindAllStringSubmatch(part, -1) {
				if found[1] == "" || strings.Contains(part, "ON CONFLICT") {
					count[found[2]]++
				}
			}
			if len(count) == 0 && (name == "claim" || name == "record_live") {
				t.Errorf("%s changes nothing, so this test does not understand it:\n%s", name, part)
			}
			for table, n := range count {
				if n > 1 {
					twice = append(twice, name+" "+table)
				}
			}
		}
	}
	slices.Sort(twice)
	if diff := cmp.Diff([]string{"record_live_retry live_runs"}, twice); diff != "" {
		t.Errorf("statements that change a table twice (-want +got):\n%s", diff)
	}
}

// The plans are those of a small database on Debian's version of PostgreSQL. Other versions differ in unimportant
// details; TestHotStatementsDoNotReadTheHistory checks the important ones.
func TestHotStatementsKeepTheirPlans(t *testing.T) {
	t.Parallel()
	const version = 15
	s := openWithout(t, pgtest.New(t))
	if got := count(t, s, `SELECT current_setting('server_version_num')::int / 10000`); got != version {
		t.Skipf("SKIPPED: PostgreSQL %d plans otherwise than %d", got, version) // even with CI=true
	}
	fill(t, s)
	statements := store.HotStatements("postgres", may1.UnixMilli())
	var files []string
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		hot := statements[name]
		var plans []string
		for _, part := range hot.Parts {
			plan, err := store.PostgresPlan(t.Context(), s, part, hot.Args)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			plans = append(plans, plan)
		}
		golden(t, filepath.Join("testdata", "postgres", name+".plan"), strings.Join(plans, "\n"))
		files = append(files, name+".plan")
	}
	onlyFiles(t, filepath.Join("testdata", "postgres"), ".plan", files)
}

// fill declares some jobs, gives them a few days of history and live runs, and updates PostgreSQL's statistics.
func fill(t *testing.T, s *store.Store) {
	t.Helper()
	ctx, change := t.Context(), input.Change{Actor: "test", Now: may1}
	for node := range run.NodeID(3) {
		must(t, s.Register(ctx, dispatcher.Node{ID: node + 1}, may1))
	}
	_, _, err := s.PutApp(ctx, access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	purge(t, s, may1)
	triggers := map[string]dispatcher.Trigger{}
	for i := range 50 {
		triggers[fmt.Sprintf("t%d", i)] = dispatcher.Trigger{
			TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "rate(1m)"}, MisfireAfter: dispatcher.DefaultMisfireAfter,
				Enabled: true},
		}
	}
	for i := range 20 {
		name := fmt.Sprintf("job%d", i)
		_, _, err := s.PutJob(ctx, dispatcher.Job{
			App: "app", Name: name, JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: triggers,
				Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}},
		}, change)
		must(t, err)
		for day := range 3 {
			insertRuns(t, s, run.JobID("app", name), may1.Add(days(day)).Add(time.Duration(i)*time.Hour), 100, false)
		}
		insertRuns(t, s, run.JobID("app", name), may1.Add(time.Duration(i)*time.Hour).Add(time.Minute), 20, true)
	}
	must(t, store.Exec(ctx, s, `INSERT INTO slots (job_id, scheduled_at, trigger_id, kind, endpoint, node, token, since)
		SELECT job_id, scheduled_at, trigger_id, kind, '', 1, 1, scheduled_at FROM live_runs`))
	must(t, store.Exec(ctx, s, `VACUUM (ANALYZE)`))
}

// A dump, or another long snapshot, protects the rows of ended runs from removal, while statistics show no rows:
// PostgreSQL then estimates that reading the whole table costs less than looking up each run of a batch.
func TestLiveRunsAreFoundByKeyDuringALongSnapshot(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := openWithout(t, database)
	conn, err := pgx.Connect(t.Context(), database)
	must(t, err)
	defer conn.Close(t.Context())
	const rows = `INSERT INTO live_runs
		(app_id, scheduled_at, trigger_id, job_id, revision, node, token, attempt, kind, state, next_attempt_at, retry_until)
		SELECT 1, %[1]d + i, i, i %% 100, 1, 1, 1, 1, 1, CASE WHEN i %% 2 = 0 THEN 'claimed' ELSE 'retrying' END, %[1]d, %[1]d
		FROM generate_series(1, 40000) AS i`
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(rows, may1.UnixMilli())))
	snapshot, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	_, err = snapshot.Exec(t.Context(), `SELECT count(*) FROM live_runs`)
	must(t, err)
	must(t, store.Exec(t.Context(), s, `DELETE FROM live_runs`))
	must(t, store.Exec(t.Context(), s, `VACUUM live_runs`))
	const misled = `SELECT count(*) FROM pg_class WHERE relname = 'live_runs' AND reltuples = 0 AND relpages > 100`
	if count(t, s, misled) != 1 {
		t.Fatal("the table has not become what this test is about")
	}
	// These concern all live runs, all broadcasts and all shards.
	all := map[string]bool{"rollback_skip": true, "broadcasts_done": true, "broadcasts_orphaned": true}
	for name, hot := range store.HotStatements("postgres", may1.UnixMilli()) {
		for _, part := range hot.Parts {
			plan, err := store.PostgresPlan(t.Context(), s, part, many(hot.Args))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if line := readsAll(plan); line != "" && !all[name] {
				t.Errorf("%s reads all live runs: %s\n%s", name, line, plan)
			}
		}
	}
}

// readsAll returns the line of a plan that reads the live runs other than by their whole key, or by an index for a
// node, job or time. Reading the first entry of an index is allowed: from there, a statement searches for the next app.
// PostgreSQL 15 gives that a condition (IS NOT NULL); 18 knows that it always holds.
func readsAll(plan string) string {
	lines := strings.Split(plan, "\n")
	for i, line := range lines {
		switch {
		case !strings.Contains(line, " on live_runs") || !strings.Contains(line, "Scan"):
		case strings.Contains(line, "using live_runs_pkey"):
			if cond := lines[i+1]; !strings.Contains(cond, "Index Cond") || !strings.Contains(cond, "kind = ") {
				return line
			}
		case strings.Contains(line, "Seq Scan"):
			return line
		case strings.Contains(lines[i+1], "Index Cond"), strings.Contains(lines[i+1], "Recheck Cond"):
		case strings.Contains(line, "Index Only Scan") && strings.HasSuffix(lines[i-1], "->  Limit") && !strings.Contains(lines[i+1], "Filter"):
		default:
			return line
		}
	}
	return ""
}

// many makes batches of 500 rows from the examples.
func many(args []any) []any {
	all := make([]any, len(args))
	for i, arg := range args {
		switch column := arg.(type) {
		case []int64:
			all[i] = repeated(column)
		case []int32:
			all[i] = repeated(column)
		case []bool:
			all[i] = repeated(column)
		case []string:
			all[i] = repeated(column)
		default:
			all[i] = arg
		}
	}
	return all
}

func repeated[T any](column []T) []T {
	all := make([]T, 500)
	for i := range all {
		all[i] = column[i%len(column)]
	}
	return all
}

// Calls that every node makes all the time, whether it fires or not, are one statement each: a hundred nodes send each
// a hundred times.
func TestPeriodicCallsOfNodesAreOneStatementEach(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s, err := store.Open(t.Context(), pgtest.New(t), store.Options{Options: db.Options{Metrics: registry}})
	must(t, err)
	defer s.Close()
	for id := range run.NodeID(3) {
		must(t, s.Register(t.Context(), dispatcher.Node{ID: id + 1}, time.Time{}))
	}
	_, err = s.Clock(t.Context()) // makes the connection for heartbeats, which is checked first
	must(t, err)
	var locks []dispatcher.Lock
	var beat dispatcher.HeartbeatReply
	for _, one := range []struct {
		name string
		do   func() error
	}{
		{"a heartbeat", func() (err error) {
			beat, err = s.Heartbeat(t.Context(), 1, dispatcher.NodeReport{}, time.Time{})
			return err
		}},
		{"to mark no node dead", func() error {
			_, err := s.MarkDead(t.Context(), 1, beat.At, time.Minute, time.Time{})
			return err
		}},
		{"to take locks", func() (err error) {
			names := []string{dispatcher.LockFleet, dispatcher.LockStates}
			locks, err = s.Lock(t.Context(), dispatcher.LockRequest{Node: 1, Names: names, AtMost: time.Minute})
			return err
		}},
		{"to give locks back", func() error { return s.Unlock(t.Context(), locks) }},
	} {
		before := sent(t, registry)
		must(t, one.do())
		if got := sent(t, registry) - before; got != 1 {
			t.Errorf("%s took %v statements, want 1", one.name, got)
		}
	}
	if len(beat.Live) != 3 || len(locks) != 2 {
		t.Errorf("got %d live nodes and %d locks, want 3 and 2", len(beat.Live), len(locks))
	}
}

// sent returns how many statements a store has sent.
func sent(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == "carillon_database_statements_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("the store does not count its statements")
	return 0
}
