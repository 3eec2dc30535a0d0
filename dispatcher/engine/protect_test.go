package engine

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// guard counts what holds it.
type guard struct{ held, asked atomic.Int32 }

func (g *guard) Hold() func() {
	g.held.Add(1)
	g.asked.Add(1)
	return func() { g.held.Add(-1) }
}

func TestOnlyLongAttemptsAreProtected(t *testing.T) {
	t.Parallel()
	const drain = 110 * time.Second
	lambda := func(how target.Invocation) target.Target {
		return target.Target{Lambda: &target.Lambda{
			Function: "arn:aws:lambda:eu-central-1:123456789012:function:f", Invocation: how, Timeout: input.Duration(15 * time.Minute),
		}}
	}
	webhook := func(timeout time.Duration) target.Target {
		return target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: input.Duration(timeout)}}
	}
	for name, tt := range map[string]struct {
		target target.Target
		want   int32
	}{
		"a webhook that fits into the drain":      {webhook(drain), 0},
		"a webhook that may take longer":          {webhook(drain + time.Millisecond), 1},
		"a function that is waited for":           {lambda(target.InvokeRequestResponse), 1},
		"a function that only receives the event": {lambda(target.InvokeEvent), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, g := newRig(t, nil), &guard{}
			r.opts.Drain, r.long.protection = drain, g
			r.setBounds(target.Bounds{Lambda: target.LambdaBounds{Functions: []string{"*"}}})
			r.declare("report", "rate(1s)", nil)
			job, err := r.store.Job(t.Context(), "app", "report")
			if err != nil {
				t.Fatal(err)
			}
			job.Target = tt.target
			if _, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
				t.Fatal(err)
			}
			var during int32
			var since *time.Time
			r.invoke = func(context.Context, target.Call) run.Outcome {
				during, since = g.held.Load(), r.long.since(r.clock.now())
				return run.Outcome{State: run.Succeeded}
			}
			r.poll(time.Second)
			r.claimOnce(t.Context(), r.now.Add(time.Second))
			if diff := cmp.Diff([]string{"1s schedule succeeded #1"}, offsets(r, r.settled())); diff != "" {
				t.Errorf("runs (-want +got):\n%s", diff)
			}
			if during != tt.want || (since != nil) != (tt.want > 0) {
				t.Errorf("during the attempt %d hold the protection and the spell began at %v, want %d", during, since, tt.want)
			}
			if got := g.held.Load(); got != 0 {
				t.Errorf("after the attempt %d hold the protection, want 0", got)
			}
		})
	}
}

// An attempt that ends before its request, here because its node has lost the run, ends its protection.
func TestRefusedAttemptIsNotProtected(t *testing.T) {
	t.Parallel()
	r, g := newRig(t, nil), &guard{}
	r.opts.Drain, r.long.protection = time.Second, g
	r.declare("report", "rate(1s)", nil)
	r.poll(time.Second)
	r.fleet.mu.Lock()
	node := r.fleet.node
	r.fleet.mu.Unlock()
	a := heldRun{Node: node + 1}
	due := r.timeline.take(r.now.Add(time.Second), 1, r.pool.Admit, r.pool.Release)
	a.TriggerID, a.JobID, a.ScheduledAt, a.Due, a.Detail.job = due[0].ID, due[0].JobID, due[0].NextFireTime, due[0].DueAt, due[0].job
	r.pool.Release(due[0].queue)
	r.attempt(t.Context(), a)
	if asked, held := g.asked.Load(), g.held.Load(); asked != 1 || held != 0 || len(r.calls) != 0 {
		t.Errorf("asked for protection %d times, %d hold it, %d calls; want asked once, released, no call", asked, held, len(r.calls))
	}
}

func TestSpellOfLongAttempts(t *testing.T) {
	t.Parallel()
	t0 := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	l := &longAttempts{protection: &guard{}}
	want := func(what string, after time.Duration, began time.Duration) {
		t.Helper()
		got := l.since(t0.Add(after))
		switch {
		case began < 0 && got != nil:
			t.Errorf("%s: the spell began at %s, want none", what, got.Sub(t0))
		case began >= 0 && (got == nil || !got.Equal(t0.Add(began))):
			t.Errorf("%s: got %v, want a spell since %s", what, got, began)
		}
	}
	want("before any", 0, -1)
	l.begin(t0)
	l.begin(t0.Add(time.Minute))
	want("with two", 2*time.Minute, 0)
	l.end(t0.Add(3 * time.Minute))
	want("one goes on for long", time.Hour, 0)
	l.end(t0.Add(time.Hour))
	want("in the pause", time.Hour+spellPause-time.Millisecond, 0)
	l.begin(t0.Add(time.Hour + spellPause - time.Millisecond))
	want("the pause was too short", 2*time.Hour, 0)
	l.end(t0.Add(2 * time.Hour))
	want("after the pause", 2*time.Hour+spellPause, -1)
	l.begin(t0.Add(3 * time.Hour))
	want("the next", 3*time.Hour, 3*time.Hour)
}

// at is when a node started, and when its spell of long attempts began, in minutes; none: it has none.
type at [2]int

const none = -1

// ids are nodes that yield.
type ids = []run.NodeID

// fleetOf makes nodes 1, 2, ...
func fleetOf(started ...at) []dispatcher.Node {
	t0 := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	live := make([]dispatcher.Node, len(started))
	for i, at := range started {
		live[i] = dispatcher.Node{ID: run.NodeID(i + 1), StartedAt: t0.Add(time.Duration(at[0]) * time.Minute)}
		if at[1] >= 0 {
			since := t0.Add(time.Duration(at[1]) * time.Minute)
			live[i].LongSince = &since
		}
	}
	return live
}

func TestNodesYieldLongAttemptsToADeployment(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		live []dispatcher.Node
		want []run.NodeID
	}{
		"nobody has long attempts":                  {fleetOf(at{0, none}, at{0, none}), nil},
		"all have some, and nobody is new":          {fleetOf(at{0, 5}, at{0, 6}, at{4, 7}), nil},
		"as many new as old":                        {fleetOf(at{0, 5}, at{0, 6}, at{9, none}, at{9, none}), ids{1, 2}},
		"the new ones have long attempts soon, too": {fleetOf(at{0, 5}, at{0, 6}, at{9, 10}, at{9, 10}), ids{1, 2}},
		"one node is added to many":                 {fleetOf(at{0, 5}, at{0, 6}, at{0, 6}, at{9, none}), nil},
		"an old one that is free takes its share":   {fleetOf(at{0, 5}, at{0, none}, at{9, none}, at{9, none}), ids{1}},
		"its spell began after the new ones":        {fleetOf(at{0, 12}, at{0, 6}, at{9, none}, at{9, none}), ids{2}},
		"a deployment on top of one": {fleetOf(at{0, 5}, at{9, 10}, at{9, 11},
			at{20, none}, at{20, 21}, at{20, 21}), ids{1, 2, 3}},
		"the last old one, when the others are replaced": {fleetOf(at{0, 5}, at{9, 10}, at{9, 10}), ids{1}},
		"a single node with a long attempt":              {fleetOf(at{0, 5}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, slices.Sorted(maps.Keys(yielding(tt.live)))); diff != "" {
				t.Error("yielding (-want +got):\n" + diff)
			}
		})
	}
}

// Nodes that yield come last for long attempts, and all nodes agree on the order; nothing changes for others.
func TestYieldingNodesRankBehindNewerOnes(t *testing.T) {
	t.Parallel()
	const drain = 110 * time.Second
	live := fleetOf(at{0, 5}, at{0, 6}, at{9, none}, at{9, 10})
	live[0].Labels = input.Labels{"disk": "ssd"}
	fleets := make([]*fleet, len(live))
	for i, node := range live {
		fleets[i] = newFleet(time.Minute, drain, 5*time.Second)
		fleets[i].joined(node.ID, dispatcher.NodeActive, time.Now())
		fleets[i].heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
	}
	ranks := func(trigger dispatcher.DueTrigger) (all [4]int) {
		for i, f := range fleets {
			all[i] = f.rank(trigger)
		}
		return all
	}
	preferred := map[int]int{}
	for i := range int64(400) {
		id := hashed(i)
		long := ranks(dispatcher.DueTrigger{ID: id, Timeout: drain + 1})
		if max(long[2], long[3]) != 1 || min(long[0], long[1]) != 2 || long[0]+long[1]+long[2]+long[3] != 6 {
			t.Fatalf("trigger %d: the ranks for a long attempt are %v, want 0 and 1 for the new nodes, 2 and 3 for the old", id, long)
		}
		preferred[long[2]]++
		for i, rank := range ranks(dispatcher.DueTrigger{ID: id, Timeout: drain}) {
			if rank == 0 {
				preferred[10+i]++
			}
		}
		if rank := fleets[0].rank(dispatcher.DueTrigger{ID: id, Timeout: drain + 1, NodeLabels: live[0].Labels}); rank != 0 {
			t.Fatalf("trigger %d: the only node with its label has rank %d, want 0", id, rank)
		}
	}
	for what, n := range preferred {
		if n < 60 {
			t.Errorf("of 400 triggers, only %d went to %d; want the new nodes to share the long ones, and all the others", n, what)
		}
	}
	if !fleets[0].yields() || fleets[3].yields() {
		t.Errorf("the old node yields: %t, the new one: %t; want only the old one to", fleets[0].yields(), fleets[3].yields())
	}
}

// An old node leaves retries and runs of no node to the new ones first; they come a grace later.
func TestYieldingNodeAdoptsLater(t *testing.T) {
	t.Parallel()
	live := fleetOf(at{0, 5}, at{9, none})
	for id, want := range map[run.NodeID]time.Duration{1: 2 * time.Second, 2: 0} {
		synctest.Test(t, func(t *testing.T) {
			e := &Engine{opts: Options{Grace: time.Second}, fleet: newFleet(time.Minute, time.Minute, 5*time.Second)}
			e.fleet.joined(id, dispatcher.NodeActive, time.Now())
			e.fleet.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
			begun := time.Now()
			if e.letNewerAdopt(t.Context(), 2); time.Since(begun) != want {
				t.Errorf("node %s adopts after %s, want %s", id, time.Since(begun), want)
			}
		})
	}
}
