package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// fired declares a job that is attempted again, fires it once, and returns the run.
func (r *rig) fired(name string) run.Run {
	r.t.Helper()
	job := dispatcher.Job{App: "app", Name: name, JobSpec: dispatcher.JobSpec{Enabled: true}}
	job.SetDefaults()
	var trigger dispatcher.Trigger
	trigger.SetDefaults()
	trigger.Expression, trigger.MisfireAfter = "rate(5s)", input.Duration(time.Hour)
	job.Triggers = map[string]dispatcher.Trigger{"only": trigger}
	job.Target.Webhook = &target.Webhook{URL: "http://" + name + "/", Method: "POST", Timeout: target.DefaultTimeout}
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Fatal(err)
	}
	r.poll(6 * time.Second)
	r.claimOnce(r.t.Context(), r.now.Add(6*time.Second))
	r.quiet()
	runs, err := r.store.Runs(r.t.Context(), dispatcher.RunQuery{App: "app", Job: name, Page: input.Page{Limit: 2}})
	if err != nil || len(runs) != 1 {
		r.t.Fatalf("runs of %s: %+v, %v; want one", name, runs, err)
	}
	return runs[0]
}

func TestFiresDoNotWaitWhileTooManyRunsOfTheirAppWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.setBounds(target.Bounds{Quotas: target.Quotas{WaitingRuns: 1}})
	r.invoke = func(ctx context.Context, call target.Call) run.Outcome {
		switch call.Job {
		case "accepted":
			return accepting(time.Hour, 1)(ctx, call)
		case "well":
			return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
		}
		return broken()
	}
	if one := r.fired("first"); one.State != run.Retrying {
		t.Fatalf("with a waiting place, a fire that failed is %s: %s; want retrying", one.State, one.Error)
	}
	if err := r.reportWaiting(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		job   string
		state run.State
		class run.Class
	}{
		{"second", run.Failed, run.ClassHTTP5xx}, {"accepted", run.Failed, run.ClassBounds},
	} {
		run := r.fired(tt.job)
		if run.State != tt.state || run.Class != tt.class || !strings.Contains(run.Error, "quotas.waiting_runs") {
			t.Errorf("%s: without a waiting place it is %s, %s: %s; want %s, %s and the quota", tt.job, run.State, run.Class, run.Error,
				tt.state, tt.class)
		}
	}
	if one := r.fired("well"); one.State != run.Succeeded {
		t.Errorf("a fire that need not wait is %s: %s, want succeeded", one.State, one.Error)
	}
}

func TestWaitingPlacesAreGivenUpToTheQuota(t *testing.T) {
	t.Parallel()
	w, now := newWaitingRuns(), time.Unix(1000, 0)
	for i := range 3 {
		if err := w.take("app", 3, now); err != nil {
			t.Errorf("place %d of 3: %v", i, err)
		}
	}
	select {
	case <-w.wake:
	default:
		t.Error("with all places given, the app is not counted")
	}
	w.apps["app"].counted = 3
	if err := w.take("app", 3, now); err == nil || !strings.Contains(err.Error(), "quotas.waiting_runs") {
		t.Errorf("a place more: %v, want a refusal that names the quota", err)
	}
	if err := w.take("other", 3, now); err != nil {
		t.Errorf("a place of another app: %v", err)
	}
}
