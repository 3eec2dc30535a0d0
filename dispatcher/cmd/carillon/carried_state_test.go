package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// counting is a target that gets a count from the previous run and returns the next one.
type counting struct {
	*httptest.Server
	mu    sync.Mutex
	given map[string]int // the count that the latest attempt of each run got
}

func newCounting(t *testing.T) *counting {
	t.Helper()
	c := &counting{given: map[string]int{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var state struct{ N int }
		if text := r.Header.Get(run.HeaderState); text != "" {
			if err := json.Unmarshal([]byte(text), &state); err != nil {
				t.Errorf("state %q: %v", text, err)
			}
		}
		c.mu.Lock()
		c.given[r.Header.Get("carillon-run")] = state.N
		c.mu.Unlock()
		_, _ = fmt.Fprintf(w, `{"carillon": {"state": {"n": %d}}}`, state.N+1)
	}))
	t.Cleanup(c.Close)
	return c
}

// Each run adds one to the count of the previous run. Nodes are killed before and after the request and the
// record, and another node continues if the database allows it. No count is lost or repeated.
func TestCarriedCountLosesNoUpdate(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	const fires = 200
	onBothDatabases(t, func(t *testing.T, database string) {
		c := newCounting(t)
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		triggers := map[string]string{}
		for i := range 8 {
			triggers[fmt.Sprint("t", i)] = "* * * * * ?"
		}
		job := webhookJob("kill", "count", c.URL, triggers)
		job.ConcurrencyPolicy, job.CarryState, job.QueueLimit = run.ConcurrencyQueue, true, dispatcher.MaxQueueLimit
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		if strings.HasPrefix(database, "sqlite:") { // one process at a time
			n.kill()
		}
		for _, at := range []failpoint.Point{failpoint.BeforeSend, failpoint.AfterSend, failpoint.AfterResponse, failpoint.AfterRecord} {
			victim := launchNodeIn(t, surroundings{program: program}, database, token, []string{fmt.Sprintf("CHAOS=%s:kill,nth=5", at)}, args...)
			victim.awaitDeath(t, "its visit 5 of "+string(at))
		}
		last := n
		if strings.HasPrefix(database, "sqlite:") {
			last = startNode(t, database, token, args...)
		}
		until(t, fmt.Sprint(fires, " runs"), func() bool { return len(last.allRuns("kill")) >= fires })
		must[dispatcher.Job](t)(last.PauseJob(t.Context(), client.Pausable{App: "kill", Job: "count"}, dispatcher.PauseRequest{},
			client.Condition{}))
		c.check(t, last, last.settled(t, "kill", time.Now().Add(time.Minute)))
	})
}

// check compares the counts that the runs got with the ledger, and the state with both.
func (c *counting) check(t *testing.T, n *process, runs []run.Run) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var given []int
	for _, r := range runs {
		switch r.State {
		case run.Succeeded:
			given = append(given, c.given[r.ID])
		case run.Skipped:
		default:
			t.Errorf("run %s is %s, want succeeded: %s", r.ID, r.State, r.Error)
		}
	}
	slices.Sort(given)
	for i, count := range given {
		if count != i {
			t.Fatalf("the run that got count %d is the one after %d others: an update was lost, or came twice", count, i)
		}
	}
	state := must[run.CarriedState](t)(n.CarriedState(t.Context(), "kill", "count"))
	if want := fmt.Sprintf(`{"n":%d}`, len(given)); string(state.State) != want || state.Revision != int64(len(given)) {
		t.Errorf("state is %s of revision %d after %d runs, want %s", state.State, state.Revision, len(given), want)
	}
}
