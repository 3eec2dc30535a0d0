package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// guard counts its holders.
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
				during, since = g.held.Load(), r.long.since(r.clock.Now())
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
	a := plan.Held{Node: r.fleet.ID() + 1}
	due := r.plan.Timeline.Take(r.now.Add(time.Second), 1, r.pool.Admit, r.pool.Release)
	a.TriggerID, a.JobID, a.ScheduledAt, a.Due, a.Detail.Job = due[0].ID, due[0].JobID, due[0].NextFireTime, due[0].DueAt, due[0].Job
	r.pool.Release(due[0].Queue)
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

// An old node leaves retries and runs without a node to the new ones first; it takes them a grace later.
func TestYieldingNodeAdoptsLater(t *testing.T) {
	t.Parallel()
	started, long := time.Unix(1_000_000, 0), time.Unix(1_000_300, 0)
	live := []dispatcher.Node{
		{ID: 1, StartedAt: started, NodeReport: dispatcher.NodeReport{LongSince: &long}},
		{ID: 2, StartedAt: started.Add(9 * time.Minute)},
	}
	for id, want := range map[run.NodeID]time.Duration{1: 2 * time.Second, 2: 0} {
		synctest.Test(t, func(t *testing.T) {
			e := &Engine{opts: Options{Grace: time.Second}, fleet: plan.NewFleet(time.Minute, time.Minute, 5*time.Second)}
			e.fleet.Joined(id, dispatcher.NodeActive, time.Now())
			e.fleet.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
			begun := time.Now()
			if e.letNewerAdopt(t.Context(), 2); time.Since(begun) != want {
				t.Errorf("node %s adopts after %s, want %s", id, time.Since(begun), want)
			}
		})
	}
}
