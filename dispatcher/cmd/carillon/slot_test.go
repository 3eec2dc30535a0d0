package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The pages of a waiting run and of its job show what the run waits for, and why.
func TestRunShowsThatItWaitsForAnEndpoint(t *testing.T) {
	t.Parallel()
	r := run.Run{App: "shop", Job: "grouped", State: run.Queued, WaitsForEndpoint: "w-1"}
	var page lines
	showRun(&page, r, false)
	var shown bytes.Buffer
	if err := page.show(console{out: &shown}); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"page": shown.String(), "line": fmt.Sprint(runCells(r)...)} {
		if !strings.Contains(text, "for endpoint w-1, at which another run of the job is under way") {
			t.Errorf("the %s of a run that waits is %q", what, text)
		}
	}
	job := dispatcher.Job{JobSpec: dispatcher.JobSpec{JobPolicies: dispatcher.JobPolicies{ConcurrencyPolicy: run.ConcurrencyAllow}}}
	job.Target.Group = &target.GroupTarget{Name: "workers", EndpointConcurrency: run.ConcurrencyQueue}
	if got := concurrencyOf(job); got != "allow; one at a time at each endpoint: queue" {
		t.Errorf("concurrency of the job = %q", got)
	}
}
