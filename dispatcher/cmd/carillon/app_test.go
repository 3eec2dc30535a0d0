package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// commandWith runs the built binary against the API of a node, with some input.
func (n *node) commandWith(input string, args ...string) (stdout, stderr string, code int) {
	n.t.Helper()
	command := exec.CommandContext(n.t.Context(), filepath.Join(binaries, "carillon"), args...)
	command.Env = append(os.Environ(), "CARILLON_ENDPOINT="+n.endpoint, "CARILLON_TOKEN="+n.token)
	command.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	_ = command.Run() // the exit code tells
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// An app moves between two installations while it fires: each of its seconds comes once, on one side or the other,
// under the event id that it would have had without the move.
func TestAppMovesWithoutAFireLostOrDoubled(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	from, to := pgtest.New(t), "sqlite:"+filepath.Join(t.TempDir(), "carillon.db")
	old := startNode(t, from, newToken(t, from), quick()...)
	cell := startNode(t, to, newToken(t, to), quick()...)
	must[dispatcher.App](t)(old.PutApp(t.Context(), dispatcher.App{Name: "mover", Enabled: true, Weight: 7}, client.Condition{}))
	for _, name := range []string{"a", "b", "c"} {
		job := webhookJob("mover", name, r.URL+"/"+name, map[string]string{"t": "rate(1s)"})
		must[dispatcher.Job](t)(old.PutJob(t.Context(), job, client.Condition{}))
	}
	r.awaitFires(t, "fires before the move", 9)

	if _, errs, code := old.commandWith("", "app", "import"); code != 2 || !strings.Contains(errs, "names no app") {
		t.Errorf("import of nothing: exit %d, %s", code, errs)
	}
	export, errs, code := old.commandWith("", "app", "export", "mover")
	if code != 0 || !strings.Contains(errs, "is disabled here") {
		t.Fatalf("export: exit %d, %s", code, errs)
	}
	if out, errs, code := old.commandWith(export, "app", "import"); code != 1 || !strings.Contains(errs, "already exists") {
		t.Errorf("import where the app is: exit %d, %s%s", code, out, errs)
	}
	before := len(r.all())
	elapse(1500 * time.Millisecond) // some seconds are nobody's for now
	if now := len(r.all()); now != before {
		t.Errorf("%d fires came while the app was on its way", now-before)
	}
	if out, errs, code := cell.commandWith(export, "app", "import"); code != 0 || !strings.Contains(out, "is imported, and enabled") {
		t.Fatalf("import: exit %d, %s%s", code, out, errs)
	}
	all := r.await(t, "fires after the move", func(all []arrival) bool { return len(all) >= before+18 })
	checkSeconds(t, all)
	var moves dispatcher.Export
	if err := json.Unmarshal([]byte(export), &moves); err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if want := dispatcher.EventID(moves.Installation, "mover", a.job(), "t", a.scheduled, dispatcher.KindSchedule); a.event != want {
			t.Errorf("%s of %s came under event id %s, want %s as without the move", a.path, a.scheduled, a.event, want)
		}
	}
	moved := must[dispatcher.App](t)(cell.App(t.Context(), "mover"))
	if moved.Weight != 7 || !moved.Enabled {
		t.Errorf("the app came as %+v", moved)
	}
	cell.checkVerify("mover")
	old.checkVerify("mover")
}

// job is the job that a request is of: its path.
func (a arrival) job() string { return strings.TrimPrefix(a.path, "/") }

// checkSeconds requires each second of each job between its first and last fire exactly once.
func checkSeconds(t *testing.T, all []arrival) {
	t.Helper()
	count := map[string]map[time.Time]int{}
	events := map[string]int{}
	for _, a := range all {
		if count[a.job()] == nil {
			count[a.job()] = map[time.Time]int{}
		}
		count[a.job()][a.scheduled]++
		events[a.event]++
	}
	for name, instants := range count {
		var first, last time.Time
		for at, n := range instants {
			if n != 1 {
				t.Errorf("job %s: instant %s came %d times", name, at, n)
			}
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
		for at := first; !at.After(last.Add(-2 * time.Second)); at = at.Add(time.Second) { // the last may be under way
			if instants[at] == 0 {
				t.Errorf("job %s: instant %s is lost", name, at)
			}
		}
	}
	for event, n := range events {
		if n > 1 {
			t.Errorf("event %s came %d times", event, n)
		}
	}
}
