package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// commandWith runs the built binary against the API of a node, with input.
func (n *process) commandWith(input string, args ...string) (stdout, stderr string, code int) {
	n.t.Helper()
	command := exec.CommandContext(n.t.Context(), filepath.Join(binaries, "carillon"), args...)
	command.Env = append(os.Environ(), "CARILLON_ENDPOINT="+n.endpoint, "CARILLON_TOKEN="+n.token)
	command.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	_ = command.Run() // the exit code shows failures
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// busy is a receiver that keeps some jobs of mover busy, and lets one fail at first.
func busy(t *testing.T) *receiver {
	t.Helper()
	return newReceiver(t, func(w http.ResponseWriter, a arrival) {
		switch {
		case a.job() == "slow":
			elapse(1500 * time.Millisecond) // so that it is in flight when the app is exported
		case a.job() == "queue":
			elapse(300 * time.Millisecond)
		case a.job() == "fails" && a.attempt == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// mover declares an app whose jobs fire each second, in all the ways that a run can be live.
func mover(t *testing.T, n *process, r *receiver) {
	t.Helper()
	mover := access.App{Name: "mover", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{Weight: 7}}}
	must[access.App](t)(n.PutApp(t.Context(), mover, client.Condition{}))
	for name, change := range map[string]func(*dispatcher.Job){
		"plain": func(*dispatcher.Job) {},
		"slow":  func(*dispatcher.Job) {},
		"once":  func(j *dispatcher.Job) { j.Delivery = dispatcher.AtMostOnce },
		"queue": func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 1 },
		"fails": func(j *dispatcher.Job) {
			j.Retry.SetDefaults()
			j.Retry.Delays = []input.Duration{input.Duration(2 * time.Second)}
		},
	} {
		job := webhookJob("mover", name, r.URL+"/"+name, map[string]string{"t": "rate(1s)"})
		tick := job.Triggers["t"]
		tick.MisfireAfter = input.Duration(time.Hour)
		job.Triggers["t"] = tick
		change(&job)
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	}
}

// An app moves between two installations while it fires: each of its seconds fires once, on either
// side, under the event id that it would have had without the move. If a node dies meanwhile, its
// runs in flight may be repeated as their next attempt.
func TestAppMovesWithoutAFireLostOrDoubled(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	postgres := func(t *testing.T) string { return pgtest.New(t) }
	sqlite := func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "carillon.db") }
	for name, route := range map[string]struct {
		from, to func(*testing.T) string
		dies     bool
	}{
		"from SQLite to PostgreSQL":                      {from: sqlite, to: postgres},
		"from PostgreSQL to SQLite":                      {from: postgres, to: sqlite},
		"from PostgreSQL to PostgreSQL, and a node dies": {from: postgres, to: postgres, dies: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			moveApp(t, route.from(t), route.to(t), route.dies)
		})
	}
}

func moveApp(t *testing.T, from, to string, dies bool) {
	r := busy(t)
	old := startNode(t, from, newToken(t, from), quick()...)
	cell := startNode(t, to, newToken(t, to), quick()...)
	var doomed *process
	if dies {
		doomed = startNode(t, from, old.token, quick()...)
	}
	mover(t, old, r)
	r.awaitFires(t, "fires before the move", 30)

	if _, errs, code := old.commandWith("", "app", "import"); code != 2 || !strings.Contains(errs, "names no app") {
		t.Errorf("import of nothing: exit %d, %s", code, errs)
	}
	const manual = 8
	for range manual {
		must[run.Run](t)(old.RunJob(t.Context(), "mover", "queue"))
	}
	if dies {
		doomed.kill()
	}
	export, errs, code := old.commandWith("", "app", "export", "mover", "--timeout="+patience.String())
	if code != 0 || !strings.Contains(errs, "is disabled here") {
		t.Fatalf("export: exit %d, %s", code, errs)
	}
	if out, errs, code := old.commandWith(export, "app", "import"); code != exitConflict || !strings.Contains(errs, "already exists") {
		t.Errorf("import where the app is: exit %d, %s%s", code, out, errs)
	}
	exported := time.Now()
	old.awaitHeartbeats(1500 * time.Millisecond) // neither installation fires some seconds
	if out, errs, code := cell.commandWith(export, "app", "import"); code != 0 || !strings.Contains(out, "is imported, and enabled") {
		t.Fatalf("import: exit %d, %s%s", code, out, errs)
	}
	imported := time.Now()
	all := r.await(t, "fires after the move", func(all []arrival) bool { return settledAfter(all, imported, manual) })
	checkSeconds(t, r, dies)
	if begun := old.begunAfter("mover", exported); len(begun) > 0 {
		t.Errorf("runs %v began at the old installation after the app had left it", begun)
	}
	var moves access.Export
	if err := json.Unmarshal([]byte(export), &moves); err != nil {
		t.Fatal(err)
	}
	if len(moves.Waiting) == 0 {
		t.Error("no run waited when the app moved, so this test shows less than it should")
	}
	for _, a := range all {
		if a.kind != string(run.KindSchedule) {
			continue
		}
		of := run.Origin{Installation: moves.Installation, App: "mover", Job: a.job(), Trigger: "t"}
		if want := moves.Salt.EventID(of, a.scheduled, run.KindSchedule); a.event != want {
			t.Errorf("%s of %s came under event id %s, want %s as without the move", a.path, a.scheduled, a.event, want)
		}
	}
	moved := must[access.App](t)(cell.App(t.Context(), "mover"))
	if moved.Bounds.Weight != 7 || !moved.Enabled {
		t.Errorf("the app came as %+v", moved)
	}
	cell.checkVerify("mover")
	old.checkVerify("mover")
}

// A failed export leaves the app enabled, even if only the response of its first step was lost.
func TestExportThatFailsLeavesTheAppEnabled(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	for name, test := range map[string]struct {
		fails   func(*http.Request) bool // a request whose response is lost
		timeout time.Duration
		want    string
	}{
		"the response is lost": {
			fails:   func(r *http.Request) bool { return r.Method == http.MethodPatch },
			timeout: patience,
			want:    "EOF",
		},
		"a run does not end": {timeout: time.Second, want: "gave up after 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			r := newReceiver(t, func(http.ResponseWriter, arrival) { <-release })
			t.Cleanup(func() { close(release) })
			database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
			n := startNode(t, database, newToken(t, database), quick()...)
			mover(t, n, r)
			r.awaitFires(t, "a run that hangs", 1)
			var patched atomic.Int32
			proxy := httputil.NewSingleHostReverseProxy(must[*url.URL](t)(url.Parse(n.endpoint)))
			proxy.ModifyResponse = func(response *http.Response) error {
				if test.fails != nil && test.fails(response.Request) && patched.Add(1) == 1 {
					panic(http.ErrAbortHandler)
				}
				return nil
			}
			front := httptest.NewServer(proxy)
			t.Cleanup(front.Close)
			through := *n
			through.endpoint = front.URL
			out, errs, code := through.commandWith("", "app", "export", "mover", "--timeout="+test.timeout.String())
			if code == 0 || out != "" || !strings.Contains(errs, test.want) {
				t.Errorf("export: exit %d, %s%s; want an error that says %q", code, out, errs, test.want)
			}
			if app := must[access.App](t)(n.App(t.Context(), "mover")); !app.Enabled {
				t.Error("the app stayed disabled")
			}
		})
	}
}

// settledAfter reports whether each job has fired for some seconds after an instant, and the manual runs have arrived.
func settledAfter(all []arrival, moved time.Time, manual int) bool {
	later, byHand := map[string]int{}, map[string]bool{}
	for _, a := range all {
		if a.kind == string(run.KindManual) {
			byHand[a.event] = true
		} else if a.scheduled.After(moved.Add(2 * time.Second)) {
			later[a.job()]++
		}
	}
	for _, name := range []string{"plain", "slow", "once", "queue", "fails"} {
		if later[name] < 4 {
			return false
		}
	}
	return len(byHand) == manual
}

// job returns the job of a request, which is its path.
func (a arrival) job() string { return strings.TrimPrefix(a.path, "/") }

// secondOf is a scheduled time of a job.
type secondOf struct {
	job string
	at  int64
}

// countSeconds counts the fires by scheduled time.
func countSeconds(all []arrival) map[secondOf]int {
	came := map[secondOf]int{}
	for _, a := range all {
		if a.kind == string(run.KindSchedule) {
			came[secondOf{a.job(), a.scheduled.Unix()}]++
		}
	}
	return came
}

// checkSeconds requires that each attempt of an event arrived once, and that each job fired every second between
// its first and last fire so far: by one attempt, or by two if the first failed. After the death of a node, its
// runs in flight may arrive more often, or not at all if they run at most once. It waits for runs in flight.
func checkSeconds(t *testing.T, r *receiver, dies bool) {
	t.Helper()
	least := map[string]int{"plain": 1, "slow": 1, "once": 1, "queue": 1, "fails": 2}
	if dies {
		least["once"], least["fails"] = 0, 1
	}
	wanted := map[secondOf]int{}
	fires := slices.DeleteFunc(r.all(), func(a arrival) bool { return a.kind != string(run.KindSchedule) })
	for job, count := range least {
		first, last := firstAndLast(on("/"+job, fires))
		for at := first; !at.After(last); at = at.Add(time.Second) {
			wanted[secondOf{job, at.Unix()}] = count
		}
	}
	all := r.await(t, "all seconds of all jobs", func(all []arrival) bool {
		came := countSeconds(all)
		for second, want := range wanted {
			if came[second] < want {
				return false
			}
		}
		return true
	})
	came := countSeconds(all)
	for second, want := range wanted {
		if got := came[second]; got != want && !dies {
			t.Errorf("job %s: instant %s came %d times, want %d", second.job, time.Unix(second.at, 0), got, want)
		}
	}
	attempts := map[string]int{}
	for _, a := range all {
		key := fmt.Sprint(a.event, " ", a.attempt)
		if attempts[key]++; attempts[key] > 1 {
			t.Errorf("attempt %d of event %s, %s of %s, came again", a.attempt, a.event, a.path, a.scheduled)
		}
	}
}
