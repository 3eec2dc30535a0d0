package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// A node is killed while some of its runs await their next attempt, some are in flight, and some
// have failed and are not recorded yet. Each of them still gets its third response.
func TestKilledNodeLosesNoRetry(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		const runs, tries = 60, 3
		var mu sync.Mutex
		hits := map[string]int{} // by event id
		r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			mu.Lock()
			defer mu.Unlock()
			if hits[a.event]++; hits[a.event] < tries {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		token := newToken(t, database)
		args := append(quick(), "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "retry", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := webhookJob("retry", "flaky", r.URL, nil)
		job.Retry.SetDefaults()
		job.Retry.Delays, job.Retry.MaxAttempts = []input.Duration{input.Duration(time.Second)}, tries
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		var ids []string
		for range runs {
			ids = append(ids, must[run.Run](t)(n.RunJob(t.Context(), "retry", "flaky")).ID)
		}
		r.await(t, "half of the second attempts", func(all []arrival) bool { return len(all) >= runs+runs/2 })
		next := n
		if strings.HasPrefix(database, "postgres") {
			next = startNode(t, database, token, args...) // this one survives
		}
		n.kill()
		if next == n {
			next = startNode(t, database, token, args...)
		}
		until(t, "every run to succeed", func() bool {
			return !slices.ContainsFunc(next.allRuns("retry"), func(one run.Run) bool { return one.State != run.Succeeded })
		})
		sent := map[string]bool{}
		for _, a := range r.all() {
			key := fmt.Sprint(a.run, a.attempt)
			if sent[key] {
				t.Errorf("attempt %d of run %s was sent twice", a.attempt, a.run)
			}
			sent[key] = true
		}
		for _, id := range ids {
			one := must[run.Run](t)(next.Run(t.Context(), id))
			failed := 0
			for i, attempt := range one.Attempts {
				if attempt.Attempt != i+1 {
					t.Errorf("attempts of run %s = %+v, want them numbered from 1 on", id, one.Attempts)
				}
				if attempt.State != run.Failed {
					continue
				}
				failed++
				wait := one.Attempts[i+1].StartedAt.Sub(attempt.EndedAt) - job.Retry.Delays[0].Std()
				if wait < 0 && one.Attempts[i+1].State != run.Lost {
					t.Errorf("attempt %d of run %s came %s early", i+2, id, -wait)
				}
			}
			if failed > tries-1 || hits[one.EventID] < tries {
				t.Errorf("run %s failed %d times under %d requests, want at most %d failures", id, failed, hits[one.EventID], tries-1)
			}
		}
	})
}

func TestTriggerDisabledByStatus410IsShownAndResumed(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, func(w http.ResponseWriter, _ arrival) { w.WriteHeader(http.StatusGone) })
		n := startNode(t, database, newToken(t, database), quick()...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "gone", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		must[dispatcher.Job](t)(n.PutJob(t.Context(),
			webhookJob("gone", "job", r.URL, map[string]string{"tick": "* * * * * ?"}), client.Condition{}))
		tick := func() dispatcher.Trigger {
			return must[dispatcher.Job](t)(n.Job(t.Context(), "gone", "job")).Triggers["tick"]
		}
		until(t, "the trigger to be silenced", func() bool { return tick().State == dispatcher.TriggerError })
		if reason := tick().Error; !strings.Contains(reason, "410") {
			t.Errorf("reason = %q, want the response", reason)
		}
		hits := len(r.all())
		must[dispatcher.Job](t)(n.ResumeJob(t.Context(), client.Pausable{App: "gone", Job: "job", Trigger: "tick"}, client.Condition{}))
		until(t, "another answer", func() bool { return len(r.all()) > hits && tick().State == dispatcher.TriggerError })
	})
}
