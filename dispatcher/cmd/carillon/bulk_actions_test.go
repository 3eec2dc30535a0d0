package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/test/need"
)

// A node is killed in the middle of a bulk action. Other nodes finish it, and each job runs once.
func TestKillInABulkActionRunsEachJobOnce(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, func(w http.ResponseWriter, _ arrival) { w.WriteHeader(http.StatusNoContent) })
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		const jobs = 60 // more than one step
		for i := range jobs {
			job := webhookJob("kill", fmt.Sprintf("job-%02d", i), r.URL, map[string]string{"a": "0 0 0 1 1 ?"})
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		}
		n.kill()
		victim := launchNodeIn(t, surroundings{program: program}, database, token,
			[]string{fmt.Sprintf("CHAOS=%s:kill,nth=30", failpoint.InBulkAction)}, args...)
		victim.awaitReady()
		begun := must[repeat.BulkAction](t)(victim.CreateBulkAction(t.Context(), "kill", repeat.BulkRequest{
			BulkSpec: repeat.BulkSpec{Action: repeat.BulkRunJobs}}))
		victim.awaitDeath(t, "the middle of the bulk action")
		last := startNode(t, database, token, args...)
		var ended repeat.BulkAction
		until(t, "the bulk action to end", func() bool {
			ended = must[repeat.BulkAction](t)(last.BulkAction(t.Context(), "kill", begun.ID))
			return ended.State.Ended()
		})
		if ended.State != repeat.BulkComplete || ended.Done != jobs || ended.Skipped != 0 {
			t.Errorf("ended as %+v, want %d jobs done", ended, jobs)
		}
		runs := map[string]int{}
		for _, run := range last.allRuns("kill") {
			runs[run.Job]++
		}
		for i := range jobs {
			if name := fmt.Sprintf("job-%02d", i); runs[name] != 1 {
				t.Errorf("job %s has %d runs, want 1", name, runs[name])
			}
		}
	})
}
