package main

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// A node is killed between every two steps of a replay of dead letters, and the request is
// repeated. Each dead letter is retried once, however often it was requested, and none is lost.
func TestKillBetweenAnyTwoStepsOfAReplayRetriesEachDeadLetterOnce(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		var repaired atomic.Bool
		var mu sync.Mutex
		sent := map[string]int{}
		r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			mu.Lock()
			sent[fmt.Sprint(a.run, " attempt ", a.attempt)]++
			mu.Unlock()
			if !repaired.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := webhookJob("kill", "broken", r.URL+"/broken", nil)
		job.Retry.SetDefaults()
		// A run that is lost with its node is attempted again, and does not become another dead letter.
		job.Retry.Delays, job.Retry.MaxAttempts = []input.Duration{input.Duration(100 * time.Millisecond)}, 5
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		const letters = 12
		for range letters {
			must[run.Run](t)(n.RunJob(t.Context(), "kill", "broken"))
		}
		n.settled(t, "kill", time.Now().Add(time.Hour))
		repaired.Store(true)
		n.kill()
		replay := repeat.DeadLetterReplay{Limit: letters}
		for _, at := range []failpoint.Point{failpoint.InRetryRequest, failpoint.AfterRetryRequest} {
			for _, visit := range []int{1, 3} {
				victim := launchNodeIn(t, surroundings{program: program}, database, token,
					[]string{fmt.Sprintf("CHAOS=%s:kill,nth=%d", at, visit)}, args...)
				victim.awaitReady()
				if done, err := victim.ReplayDeadLetters(t.Context(), "kill", replay); err == nil {
					t.Errorf("the node replayed %+v, want it to die over that", done)
				}
				victim.awaitDeath(t, fmt.Sprintf("its visit %d of %s", visit, at))
			}
		}
		last := startNode(t, database, token, args...)
		must[repeat.Replayed](t)(last.ReplayDeadLetters(t.Context(), "kill", replay))
		runs := last.settled(t, "kill", time.Now().Add(time.Hour))
		if len(runs) != letters {
			t.Errorf("%d runs, want %d", len(runs), letters)
		}
		for _, one := range runs {
			asked := must[client.List[access.AuditEntry]](t)(last.Audit(t.Context(),
				access.AuditQuery{Subject: "run " + one.ID, Action: "retry", Page: input.Page{Limit: 10}}))
			if one.State != run.Succeeded || len(asked.Items) != 1 {
				t.Errorf("run %s is %s and was retried %d times, want it succeeded, and once", one.ID, one.State, len(asked.Items))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for attempt, times := range sent {
			if times > 1 {
				t.Errorf("run %s was sent %d times", attempt, times)
			}
		}
	})
}
