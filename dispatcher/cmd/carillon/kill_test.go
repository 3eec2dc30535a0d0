package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// mortal builds a node that dies once, at the point in CHAOS.
var mortal = sync.OnceValues(func() (string, error) {
	program := filepath.Join(binaries, "carillon-chaos")
	build := exec.Command("go", "build", "-tags", "chaos", "-o", program, "./dispatcher/cmd/carillon")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build a node with failpoints: %w\n%s", err, out)
	}
	return program, nil
})

// A node is killed between every two steps of an attempt, at the first visit and at a later one, in
// first attempts and in retries. Each attempt is sent at most once, each run that may be repeated
// gets its response, and a run with delivery at most once is never sent twice.
func TestKillBetweenAnyTwoStepsOfAnAttemptSendsItOnce(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		var mu sync.Mutex
		hits := map[string]int{}
		r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			if a.path == "/once" { // so that some are in flight at later visits, which mostly belong to the other job
				elapse(500 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			if hits[a.event]++; a.path == "/flaky" && hits[a.event] < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		for _, name := range []string{"flaky", "once"} {
			job := patient(webhookJob("kill", name, r.URL+"/"+name,
				map[string]string{"a": "* * * * * ?", "b": "* * * * * ?", "c": "* * * * * ?"}))
			job.Retry.SetDefaults()
			job.Retry.Delays, job.Retry.MaxAttempts = []input.Duration{input.Duration(300 * time.Millisecond)}, 3
			if name == "once" {
				job.Delivery = dispatcher.AtMostOnce
			}
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		}
		n.kill()
		for _, at := range []failpoint.Point{
			failpoint.AfterClaim, failpoint.BeforeQueue, failpoint.InPool, failpoint.BeforeSend, failpoint.AfterSend,
			failpoint.AfterResponse, failpoint.AfterRecord,
		} {
			for _, visit := range []int{1, 7} {
				victim := launchNodeIn(t, surroundings{program: program}, database, token,
					[]string{fmt.Sprintf("CHAOS=%s:kill,nth=%d", at, visit)}, args...)
				victim.awaitDeath(t, fmt.Sprintf("its visit %d of %s", visit, at))
			}
		}
		last := startNode(t, database, token, args...)
		checkKilled(t, last, r, last.settled(t, "kill", time.Now()))
	})
}

// settled waits until all runs scheduled before an instant have ended, and returns them.
func (n *process) settled(t *testing.T, app string, before time.Time) []run.Run {
	t.Helper()
	var runs []run.Run
	t.Cleanup(func() {
		if t.Failed() {
			for _, run := range runs {
				if run.EndedAt == nil {
					t.Logf("has not ended: %+v", run)
				}
			}
		}
	})
	until(t, "all runs to end", func() bool {
		runs = slices.DeleteFunc(n.allRuns(app), func(run run.Run) bool { return !run.ScheduledAt.Before(before) })
		return !slices.ContainsFunc(runs, func(run run.Run) bool { return run.EndedAt == nil })
	})
	return runs
}

// awaitDeath waits until the node kills itself; any other exit fails the test.
func (n *process) awaitDeath(t *testing.T, where string) {
	t.Helper()
	select {
	case err := <-n.exited:
		if status, ok := n.command.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("at %s the node ended with %v, want by SIGKILL", where, err)
		}
	case <-time.After(patience):
		t.Fatalf("the node lived on, without %s", where)
	}
}

// checkKilled compares the requests with the runs in the ledger.
func checkKilled(t *testing.T, n *process, r *receiver, runs []run.Run) {
	t.Helper()
	sent, ofEvent := map[string]int{}, map[string]int{}
	for _, a := range r.all() {
		if !slices.ContainsFunc(runs, func(run run.Run) bool { return run.ID == a.run }) {
			continue
		}
		key := fmt.Sprint(a.run, " ", a.attempt)
		ofEvent[a.event]++
		if sent[key]++; sent[key] > 1 {
			t.Errorf("attempt %d of run %s was sent %d times", a.attempt, a.run, sent[key])
		}
	}
	states := map[string]int{}
	for _, one := range runs {
		entry := must[run.Run](t)(n.Run(t.Context(), one.ID))
		states[entry.Job+" "+string(entry.State)]++
		for i, attempt := range entry.Attempts {
			if attempt.Attempt != i+1 {
				t.Errorf("attempts of run %s = %+v, want them numbered from 1 on", entry.ID, entry.Attempts)
			}
			if attempt.State == run.Lost {
				states[entry.Job+" attempts lost"]++
			}
			delete(sent, fmt.Sprint(entry.ID, " ", attempt.Attempt))
		}
		switch hits := ofEvent[entry.EventID]; {
		case entry.Job == "flaky" && (entry.State != run.Succeeded || hits < 3):
			t.Errorf("run %s is %s after %d requests, want succeeded after three: %+v", entry.ID, entry.State, hits, entry.Attempts)
		case entry.Job == "once" && (hits > 1 || entry.State == run.Succeeded && hits != 1 ||
			entry.State != run.Succeeded && entry.State != run.Lost):
			t.Errorf("run %s, wanted once at most, is %s after %d requests: %+v", entry.ID, entry.State, hits, entry.Attempts)
		}
	}
	for attempt := range sent {
		t.Errorf("run and attempt %s were sent, and the ledger has no such attempt", attempt)
	}
	t.Logf("%d runs: %v", len(runs), states)
	if states["flaky attempts lost"] == 0 || states["once lost"] == 0 {
		t.Errorf("states = %v, want some attempts lost: the kills met none", states)
	}
}
