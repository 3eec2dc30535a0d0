package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// setBounds sets the bounds of the rig's app, as an operator does, and notifies the node.
func (r *rig) setBounds(bounds target.Bounds) {
	r.t.Helper()
	app := access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true, Bounds: &bounds}}
	if _, _, err := r.store.PutApp(r.t.Context(), app, input.Change{Actor: "operator", Operator: true}); err != nil {
		r.t.Fatal(err)
	}
	r.hear(dispatcher.Notification{App: "app"})
}

// requestRun requests a manual run and lets the node adopt and attempt runs.
func (r *rig) requestRun(job string) run.Run {
	r.t.Helper()
	run, err := r.store.RequestRun(r.t.Context(), "app", job, nil, input.Change{Actor: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.adopt(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.quiet()
	return r.runNow(run.ID)
}

func (r *rig) runNow(id string) run.Run {
	r.t.Helper()
	run, err := r.store.Run(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

// putWebhook declares a job without triggers.
func (r *rig) putWebhook(name, url string) {
	r.t.Helper()
	job := dispatcher.Job{App: "app", Name: name, JobSpec: dispatcher.JobSpec{Enabled: true}}
	job.Retry.SetDefaults()
	job.Target.Webhook = &target.Webhook{URL: url, Method: "POST", Timeout: target.DefaultTimeout}
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

func TestBoundThatTightensStopsOnlyTheJobsItBreaks(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.putWebhook("broken", "http://one.example.com/")
	r.putWebhook("fine", "http://two.example.com/")
	if one := r.requestRun("broken"); one.State != run.Succeeded {
		t.Fatalf("before: %s, want succeeded", one.State)
	}
	r.setBounds(target.Bounds{Egress: target.EgressBounds{Hosts: []string{"two.example.com"}}})
	one := r.requestRun("broken")
	if one.State != run.Failed || one.Class != run.ClassBounds || one.NextAttemptAt != nil ||
		!strings.Contains(one.Error, "egress.hosts") {
		t.Errorf("the broken job: %s, class %s, error %q; want failed for good, bounds, and the bound's name",
			one.State, one.Class, one.Error)
	}
	if one := r.requestRun("fine"); one.State != run.Succeeded {
		t.Errorf("the other job: %s (%s), want succeeded", one.State, one.Error)
	}
	if len(r.calls) != 2 {
		t.Errorf("%d calls, want 2: none of the broken job after the change", len(r.calls))
	}
	r.setBounds(target.Bounds{})
	if one := r.requestRun("broken"); one.State != run.Succeeded {
		t.Errorf("once the bound is lifted: %s (%s), want succeeded", one.State, one.Error)
	}
}

// A fire that waits in the node when the bounds change obeys the new bounds, not those of its claim.
func TestClaimedFireObeysCurrentBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.putWebhook("hook", "http://one.example.com/")
	if one := r.requestRun("hook"); one.State != run.Succeeded {
		t.Fatalf("before: %s, want succeeded", one.State)
	}
	job, cached := r.plan.Jobs.Get(run.JobID("app", "hook"), 0)
	if !cached {
		t.Fatal("the job is not cached")
	}
	held := plan.Held{HeldRun: run.HeldRun{JobID: job.ID}, Detail: plan.Detail{Job: job}}
	held.TriggerID = job.ID
	r.setBounds(target.Bounds{Egress: target.EgressBounds{Ports: []int{443}}})
	if _, err := r.callOf(t.Context(), held); err == nil || !strings.Contains(err.Error(), "egress.ports") {
		t.Errorf("the call of the claimed job: error %v, want one that names egress.ports", err)
	}
}

func TestSuspendedAppSendsNothingAndItsRunsWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.putWebhook("hook", "http://one.example.com/")
	one, err := r.store.RequestRun(t.Context(), "app", "hook", nil, input.Change{Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	// The node has won the run when the app is suspended.
	held, err := r.store.Adopt(t.Context(), dispatcher.AdoptQuery{Node: r.fleet.ID(), Token: 77, Limit: 1}, r.adoptable())
	if err != nil || len(held) != 1 {
		t.Fatalf("adopted %d runs (%v), want 1", len(held), err)
	}
	r.setBounds(target.Bounds{Suspended: true, SuspendedReason: "unpaid"})
	r.attempt(t.Context(), plan.Held{HeldRun: held[0]})
	r.quiet()
	if waits := r.runNow(one.ID); waits.State != run.Queued || !strings.Contains(waits.Held, "unpaid") || len(r.calls) != 0 {
		t.Errorf("the run is %s, held by %q, after %d calls; want queued, the reason, none", waits.State, waits.Held, len(r.calls))
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.quiet()
	if len(r.calls) != 0 {
		t.Error("a node adopted a run of a suspended app")
	}
	r.setBounds(target.Bounds{})
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.quiet()
	if done := r.runNow(one.ID); done.State != run.Succeeded || len(r.calls) != 1 {
		t.Errorf("after the suspension the run is %s after %d calls, want succeeded after 1", done.State, len(r.calls))
	}
}

func (r *rig) adoptable() []dispatcher.Adoptable {
	r.t.Helper()
	found, err := r.store.Adoptable(r.t.Context(), dispatcher.AdoptQuery{Node: r.fleet.ID(), Limit: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

func TestResponsesAboveBytesKeptAreOmittedFromOutcomes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = respondWith(run.Response{Body: strings.Repeat("x", 400<<10)})
	r.setBounds(target.Bounds{Quotas: target.Quotas{BytesKept: 1 << 20}})
	r.putWebhook("hook", "http://one.example.com/")
	shown := func() run.Attempt {
		t.Helper()
		one := r.requestRun("hook")
		if one.State != run.Succeeded || len(one.Attempts) != 1 || one.Attempts[0].Response == nil {
			t.Fatalf("run %+v, want succeeded with a response", one)
		}
		return one.Attempts[0]
	}
	for range 2 {
		if a := shown(); a.Response.Omitted != "" || len(a.Response.Body) == 0 {
			t.Errorf("within the quota: omitted %q", a.Response.Omitted)
		}
	}
	if a := shown(); !strings.Contains(a.Response.Omitted, "bytes_kept") || a.Response.Body != "" {
		t.Errorf("above the quota: omitted %q, %d bytes of body; want the quota's name, none", a.Response.Omitted, len(a.Response.Body))
	}
	if err := r.round(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	app, err := r.store.AppWithUsage(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	if app.Usage.BytesKept < 800<<10 || app.Usage.BytesKept > 1<<20 {
		t.Errorf("the app keeps %d bytes, want about 800 KiB", app.Usage.BytesKept)
	}
	if a := shown(); a.Response.Omitted == "" {
		t.Error("after the report the node stores responses again")
	}
}

func respondWith(response run.Response) func(context.Context, target.Call) run.Outcome {
	return func(context.Context, target.Call) run.Outcome {
		return run.Outcome{State: run.Succeeded, HTTPStatus: 200, Response: new(response)}
	}
}
