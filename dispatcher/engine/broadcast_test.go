package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// declareBroadcast stores a group of endpoints and a job that broadcasts to it.
func (r *rig) declareBroadcast(endpoints int, change func(*dispatcher.Job)) {
	r.t.Helper()
	by := input.Change{Actor: "test", Now: r.now}
	group := target.EndpointGroup{App: "app", Name: "workers",
		EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{}}}
	group.SetDefaults()
	for n := range endpoints {
		group.Endpoints[fmt.Sprint("e", n)] = target.StaticEndpoint{URL: fmt.Sprintf("http://127.0.0.1:%d", 8000+n)}
	}
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = "rate(1s)"
	job := dispatcher.Job{App: "app", Name: "spread",
		JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{"only": trigger}}}
	job.Target.Group = &target.GroupTarget{Name: "workers", Strategy: target.Broadcast}
	job.Target.Group.SetDefaults()
	if change != nil {
		change(&job)
	}
	_, _, err := r.store.PutGroup(r.t.Context(), group, by)
	if err == nil {
		_, _, err = r.store.PutJob(r.t.Context(), job, by)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// fireBroadcast claims the fire of the next second.
func (r *rig) fireBroadcast() {
	r.t.Helper()
	r.poll(time.Second)
	r.claimOnce(r.t.Context(), r.now.Add(time.Second))
}

// parts lists the shards of a run by index, with their states.
func (r *rig) parts(parent string) (list []string) {
	r.t.Helper()
	found, err := r.store.Runs(r.t.Context(), dispatcher.RunQuery{App: "app", Parent: parent, Page: input.Page{Limit: 1000}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, run := range slices.Backward(found) {
		list = append(list, fmt.Sprintf("%d/%d %s %s", run.Shard.Index, run.Shard.Total, run.Shard.Endpoint, run.State))
	}
	return list
}

// lostBroadcast executes the first Broadcast and then reports a failure.
type lostBroadcast struct {
	Store
	calls int
}

func (l *lostBroadcast) Broadcast(ctx context.Context, run run.HeldRun, endpoints []string, now time.Time) (bool, error) {
	held, err := l.Store.Broadcast(ctx, run, endpoints, now)
	if l.calls++; l.calls == 1 {
		return false, errLost
	}
	return held, err
}

func TestBroadcastCallsEachEndpointOnce(t *testing.T) {
	t.Parallel()
	lost := &lostBroadcast{}
	r := newRig(t, func(s Store) Store { lost.Store = s; return lost })
	r.declareBroadcast(3, func(j *dispatcher.Job) {
		j.Delivery, j.ConcurrencyPolicy = dispatcher.AtMostOnce, run.ConcurrencyForbid
	})
	r.fireBroadcast()
	parent := r.settled()[0]
	if parent.State != run.WaitingShards || lost.calls != 2 || len(r.calls) != 0 {
		t.Fatalf("the parent is %s after %d tries and %d calls, want it to wait for shards after 2 and none",
			parent.State, lost.calls, len(r.calls))
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.quiet()
	r.endBroadcasts(t.Context())
	want := []string{"0/3 e0 succeeded", "1/3 e1 succeeded", "2/3 e2 succeeded"}
	if diff := cmp.Diff(want, r.parts(parent.ID)); diff != "" {
		t.Errorf("shards (-want +got):\n%s", diff)
	}
	if parent = r.settled()[0]; parent.State != run.Succeeded {
		t.Errorf("the parent is %s, want succeeded", parent.State)
	}
	var shards []run.Shard
	events := map[string]bool{}
	for _, call := range r.calls {
		shards = append(shards, *call.Shard)
		events[call.EventID] = true
	}
	slices.SortFunc(shards, func(a, b run.Shard) int { return a.Index - b.Index })
	if diff := cmp.Diff([]run.Shard{{Total: 3, Endpoint: "e0"}, {Index: 1, Total: 3, Endpoint: "e1"},
		{Index: 2, Total: 3, Endpoint: "e2"}}, shards); diff != "" || len(events) != 3 {
		t.Errorf("calls with %d event ids (-want +got):\n%s", len(events), diff)
	}
	if taken, err := r.store.Slots(t.Context(), "app", "spread"); err != nil || len(taken) != 0 {
		t.Errorf("slots = %v, %v, want none", taken, err)
	}
}

func TestBroadcastWithoutEndpointsIsRetried(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declareBroadcast(1, nil)
	drain := func(draining bool) {
		t.Helper()
		if _, err := r.store.DrainEndpoint(t.Context(), "app", "workers", "e0", draining, input.Change{Actor: "test"}); err != nil {
			t.Fatal(err)
		}
		r.plan.Groups.Clear()
	}
	drain(true)
	r.fireBroadcast()
	parent := r.settled()[0]
	if parent.State != run.Retrying || parent.Class != run.ClassNoEndpoint || parent.Attempt != 1 {
		t.Fatalf("the run is %s of class %s after attempt %d, want it to be retried: %s",
			parent.State, parent.Class, parent.Attempt, parent.Error)
	}
	drain(false)
	if _, err := r.store.RetryRun(t.Context(), parent.ID, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if parent = r.settled()[0]; parent.State != run.WaitingShards || parent.Attempt != 2 {
		t.Errorf("the run is %s at attempt %d, want it to wait for shards at the second", parent.State, parent.Attempt)
	}
}

// A cancelled broadcast cuts off the requests of its shards, and its slot is free only when these have ended.
func TestCancelOfBroadcastCutsOffItsShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	began, looked := make(chan struct{}, 2), make(chan struct{})
	r.invoke = func(ctx context.Context, _ target.Call) run.Outcome {
		began <- struct{}{}
		<-ctx.Done()
		<-looked
		return run.Outcome{State: run.Cancelled, Class: run.ClassCancelled}
	}
	r.listens()
	r.declareBroadcast(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	r.fireBroadcast()
	parent := r.settled()[0]
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-began
	<-began
	if _, err := r.store.CancelRun(t.Context(), parent.ID, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	if taken, err := r.store.Slots(t.Context(), "app", "spread"); err != nil || len(taken) == 0 {
		t.Errorf("slots = %v, %v, want them taken while requests are in flight", taken, err)
	}
	close(looked)
	r.quiet()
	if diff := cmp.Diff([]string{"0/2 e0 cancelled", "1/2 e1 cancelled"}, r.parts(parent.ID)); diff != "" {
		t.Errorf("shards (-want +got):\n%s", diff)
	}
	r.slots.releaseLast(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for tick := time.Tick(10 * time.Millisecond); ; { // another goroutine may be about to give one back
		if taken, err := r.store.Slots(ctx, "app", "spread"); err == nil && len(taken) == 0 {
			return
		}
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatal("slots are still taken")
		}
	}
}

func TestBroadcastReachesMembersFromDNS(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.opts.Members = func(
		_ context.Context, group target.EndpointGroup, _ target.EgressBounds,
	) (members, refused []target.Endpoint) {
		members = []target.Endpoint{{ID: "10-0-0-1-80"}, {ID: "e0"}, {ID: "of-" + group.Name}}
		return members, []target.Endpoint{{ID: "refused"}}
	}
	r.declareBroadcast(1, nil)
	group, err := r.store.Group(t.Context(), "app", "workers")
	if err == nil {
		group.DNS = map[string]target.DNSMembers{"more": {Hostname: "workers.internal", Port: 80}}
		_, _, err = r.store.PutGroup(t.Context(), group, input.Change{Actor: "test", Now: r.now})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.plan.Groups.Clear()
	r.fireBroadcast()
	want := []string{"0/3 10-0-0-1-80 queued", "1/3 e0 queued", "2/3 of-workers queued"}
	if diff := cmp.Diff(want, r.parts(r.settled()[0].ID)); diff != "" {
		t.Errorf("shards (-want +got):\n%s", diff)
	}
}
