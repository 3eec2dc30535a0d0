package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestRequestedRunUsesTheJobAsRequested(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	change := input.Change{Actor: "test"}
	for _, url := range []string{"http://127.0.0.1/old", "http://127.0.0.1/new"} {
		job := dispatcher.Job{App: "app", Name: "edited", JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{}}}
		job.Target.Webhook = &target.Webhook{URL: url, Method: "POST", Timeout: target.DefaultTimeout}
		if _, _, err := r.store.PutJob(t.Context(), job, change); err != nil {
			t.Fatal(err)
		}
		if _, err := r.store.RequestRun(t.Context(), "app", "edited", nil, change); err != nil {
			t.Fatal(err)
		}
		if err := r.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.quiet()
		if last := r.calls[len(r.calls)-1]; last.Target.Webhook.URL != url {
			t.Errorf("the run called %s, want %s", last.Target.Webhook.URL, url)
		}
	}
}

// A claimed run is executed with the job as it was at its claim, however late its turn comes. A later attempt uses the
// job of its own time, and the run's revision shows that.
func TestClaimedRunUsesTheJobAsClaimed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	change := input.Change{Actor: "test"}
	began, end := make(chan struct{}, 8), make(chan struct{})
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		if strings.HasPrefix(call.Job, "busy") {
			began <- struct{}{}
			<-end
		}
		if call.Attempt == 1 && call.Job == "edited" {
			return run.Outcome{State: run.Failed, Class: run.ClassHTTP5xx, HTTPStatus: 500}
		}
		return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
	}
	declare := func(name, url string) dispatcher.Job {
		t.Helper()
		job := dispatcher.Job{App: "app", Name: name, JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{
			"only": {
				TriggerSpec: dispatcher.TriggerSpec{
					Schedule:     dispatcher.Schedule{Expression: "rate(10s)", StartAt: &r.now},
					MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true,
				},
			},
		}}}
		job.SetDefaults()
		job.Retry.Delays = []input.Duration{0}
		job.Target.Webhook = &target.Webhook{URL: url, Method: "POST", Timeout: target.DefaultTimeout}
		stored, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test", Now: r.now.Add(-time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	const workers = 6 // for one app
	for i := range workers {
		name := fmt.Sprint("busy", i)
		declare(name, fmt.Sprintf("http://127.0.0.%d/", i))
		if _, err := r.store.RequestRun(t.Context(), "app", name, nil, change); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range workers {
		<-began
	}
	old := declare("edited", "http://127.0.0.1:2/old")
	r.poll(0)
	for r.claimOnce(t.Context(), r.now) > 0 {
	}
	edited := declare("edited", "http://127.0.0.1:2/new")
	if err := r.plan.Jobs.Read(t.Context(), []int64{run.JobID("app", "edited")}); err != nil {
		t.Fatal(err)
	}
	close(end)
	var retried run.Run
	for _, one := range r.settled() {
		if one.Job == "edited" {
			if one.Revision != old.Revision || one.State != run.Retrying {
				t.Errorf("the run is %s at revision %d, want retrying at %d", one.State, one.Revision, old.Revision)
			}
			retried = r.retry(one.ID)
		}
	}
	var urls []string
	for _, call := range r.calls {
		if call.Job == "edited" {
			urls = append(urls, call.Target.Webhook.URL)
		}
	}
	if want := []string{"http://127.0.0.1:2/old", "http://127.0.0.1:2/new"}; !slices.Equal(urls, want) {
		t.Errorf("called %v, want %v", urls, want)
	}
	if retried.Revision != edited.Revision {
		t.Errorf("after the second attempt the run is of revision %d, want %d", retried.Revision, edited.Revision)
	}
}
