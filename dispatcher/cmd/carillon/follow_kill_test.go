package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// A node is killed between every two steps from the end of a run to the end of its followers. Each
// run has exactly one run of each follower, also through two links of a chain.
func TestKillBetweenAnyTwoStepsOfAChainFollowsEachRunOnce(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			if a.path == "/bad" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		for _, job := range chainedJobs(r.URL) {
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		}
		n.kill()
		for _, at := range []failpoint.Point{
			failpoint.AfterResponse, failpoint.AfterRecord, failpoint.InFollow, failpoint.AfterFollow, failpoint.InPool, failpoint.BeforeSend,
			failpoint.AfterSend,
		} {
			for _, visit := range []int{1, 4} {
				victim := launchNodeIn(t, surroundings{program: program}, database, token,
					[]string{fmt.Sprintf("CHAOS=%s:kill,nth=%d", at, visit)}, args...)
				victim.awaitDeath(t, fmt.Sprintf("its visit %d of %s", visit, at))
			}
		}
		last := startNode(t, database, token, args...)
		for _, name := range []string{"good", "bad"} {
			must[dispatcher.Job](t)(last.PauseJob(t.Context(), client.Pausable{App: "kill", Job: name}, dispatcher.PauseRequest{},
				client.Condition{}))
		}
		checkFollowed(t, last)
	})
}

// chainedJobs are a job that succeeds, followed by a chain of two, and a job that fails, followed
// by the end of the chain and by a delivery.
func chainedJobs(url string) []dispatcher.Job {
	once := run.Retry{MaxAttempts: 1, Base: run.DefaultBase, Cap: run.DefaultCap, MaxAge: run.DefaultMaxAge}
	end := webhookJob("kill", "end", url+"/end", nil)
	middle := webhookJob("kill", "middle", url+"/middle", nil)
	middle.OnSuccess = &dispatcher.Follow{Jobs: []string{"end"}}
	good := webhookJob("kill", "good", url+"/good", map[string]string{"a": "* * * * * ?"})
	good.OnSuccess = &dispatcher.Follow{Jobs: []string{"middle"}, Payload: dispatcher.FollowResult}
	bad := webhookJob("kill", "bad", url+"/bad", map[string]string{"a": "* * * * * ?"})
	bad.Retry = once
	bad.OnFailure = &dispatcher.Follow{Jobs: []string{"end"},
		FollowDestination: target.FollowDestination{Webhook: &target.FollowWebhook{URL: url + "/delivery"}}}
	return []dispatcher.Job{end, middle, good, bad}
}

// checkFollowed waits until all runs have ended, and compares the followers of each run with the declared ones.
func checkFollowed(t *testing.T, n *process) {
	t.Helper()
	followers := map[string]string{
		"good succeeded": "middle", "middle succeeded": "end", "bad failed": "bad.on_failure end", "bad lost": "bad.on_failure end",
	}
	var wrong []string
	var runs []run.Run
	t.Cleanup(func() {
		for _, text := range wrong {
			t.Log(text)
		}
	})
	until(t, "all runs to be followed", func() bool {
		wrong, runs = nil, n.allRuns("kill")
		followed := 0
		for _, one := range runs {
			run := must[run.Run](t)(n.Run(t.Context(), one.ID))
			var got []string
			for _, ref := range run.FollowedBy {
				got = append(got, ref.Job)
			}
			slices.Sort(got)
			followed += len(got)
			if text := strings.Join(got, " "); run.EndedAt == nil || text != followers[run.Job+" "+string(run.State)] {
				wrong = append(wrong, fmt.Sprintf("run %s of %s is %s and followed by %q", run.ID, run.Job, run.State, text))
			}
		}
		children := 0
		for _, r := range runs {
			if r.Kind == run.KindChain || r.Kind == run.KindFollow {
				children++
			}
		}
		if children != followed {
			wrong = append(wrong, fmt.Sprintf("%d runs follow others, and %d are known to", children, followed))
		}
		return len(wrong) == 0
	})
	states := map[string]int{}
	for _, run := range runs {
		states[run.Job+" "+string(run.State)]++
	}
	t.Logf("%d runs: %v", len(runs), states)
	for _, want := range []string{"end succeeded", "bad.on_failure succeeded"} {
		if states[want] == 0 {
			t.Errorf("states = %v, want some %s", states, want)
		}
	}
}
