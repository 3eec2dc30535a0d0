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

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// update writes the page and the goldens instead of comparing them:
// go test ./dispatcher/store -run 'PageShows|HotStatements' -update.
var update = flag.Bool("update", false, "write the hot statements into testdata and docs/why/architecture.md")

// golden compares a file with what it is to be, or writes it.
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

// shown is a statement on the page: a marker with its name, and the block behind it.
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

// The whole text of each hot statement stands in testdata, a clause a line.
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

// onlyFiles fails if a folder has other files of a kind than these.
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

// growing is a line of a plan that reads a table which grows with the triggers or with the days kept: how, and which.
var growing = regexp.MustCompile(`-> +(.*Scan.*) on (trigger_clock|triggers|slots|runs|attempts|responses)(_[0-9]+|_default)?( |$)`)

// Plans differ from version to version. What holds with each: no hot statement reads the history, nor a table of
// triggers or slots as a whole. TestLiveRunsAreFoundByKeyDuringALongSnapshot says the same of the live runs.
func TestHotStatementsLeaveTheHistoryAlone(t *testing.T) {
	t.Parallel()
	s := openWithout(t, pgtest.New(t))
	fill(t, s)
	// These look for some runs, by their keys.
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

// Some databases refuse a statement that updates or deletes rows of one table in two places. docs/reference/databases.md
// names the one that does.
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

// The plans are those of a small database, on the version of PostgreSQL that Debian has. Those of others differ in
// what does not matter; TestHotStatementsLeaveTheHistoryAlone tells what does.
func TestHotStatementsKeepTheirPlans(t *testing.T) {
	t.Parallel()
	const version = 15
	s := openWithout(t, pgtest.New(t))
	if got := count(t, s, `SELECT current_setting('server_version_num')::int / 10000`); got != version {
		t.Skipf("SKIPPED: PostgreSQL %d plans otherwise than %d", got, version) // also with CI=true
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

// fill declares some jobs and gives them a few days of history and live runs, and lets PostgreSQL
// see how many there are.
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
