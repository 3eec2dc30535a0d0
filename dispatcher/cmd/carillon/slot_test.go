package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// shownRun returns the page of a run.
func shownRun(t *testing.T, r run.Run) string {
	t.Helper()
	var page lines
	showRun(&page, r, false)
	var shown bytes.Buffer
	if err := page.show(console{out: &shown}); err != nil {
		t.Fatal(err)
	}
	return shown.String()
}

// The pages of a waiting run and of its job show what the run waits for, and why.
func TestRunShowsThatItWaitsForAnEndpoint(t *testing.T) {
	t.Parallel()
	r := run.Run{App: "shop", Job: "grouped", State: run.Queued, WaitsForEndpoint: "w-1"}
	for what, text := range map[string]string{"page": shownRun(t, r), "line": fmt.Sprint(runCells(r)...)} {
		if !strings.Contains(text, "for endpoint w-1, at which another run of the job is under way") {
			t.Errorf("the %s of a run that waits is %q", what, text)
		}
	}
	r = run.Run{Kind: run.KindSchedule, ScheduledAt: time.UnixMilli(0), Attempt: 1, StartedAt: new(time.UnixMilli(75_000)),
		State: run.Succeeded, Waited: run.WaitSlot}
	if shown := shownRun(t, r); !strings.Contains(shown, "1m15s for a slot of its job") {
		t.Errorf("a run that waited is shown without its wait:\n%s", shown)
	}
	job := dispatcher.Job{JobSpec: dispatcher.JobSpec{JobPolicies: dispatcher.JobPolicies{ConcurrencyPolicy: run.ConcurrencyAllow}}}
	job.Target.Group = &target.GroupTarget{Name: "workers", EndpointConcurrency: run.ConcurrencyQueue}
	if got := concurrencyOf(job); got != "allow; one at a time at each endpoint: queue" {
		t.Errorf("concurrency of the job = %q", got)
	}
}
