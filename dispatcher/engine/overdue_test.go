package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// first is when the first fire of rate(1s) is due in these tests.
const first = time.Second

// wantOverdue checks how long the oldest due fire has waited, at a time after the test's.
func (r *rig) wantOverdue(after, want time.Duration, when string) {
	r.t.Helper()
	if got := r.plan.OldestOverdue(r.now.Add(after)); got != want {
		r.t.Errorf("%s, the oldest overdue fire waits %s, want %s", when, got, want)
	}
}

func TestOldestOverdueCountsFiresDelayedBySaturation(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.wantOverdue(time.Hour, 0, "without a job")
	finish := make(chan struct{})
	r.invoke = func(context.Context, target.Call) run.Outcome {
		<-finish
		return run.Outcome{State: run.Succeeded}
	}
	for _, name := range manyNames(100) {
		r.declare(name, "rate(1s)", nil)
	}
	r.poll(5 * time.Second)
	r.wantOverdue(first, 0, "when fires become due")
	r.wantOverdue(first+time.Second-time.Millisecond, 0, "within the grace of their preferred node")
	for r.claimOnce(t.Context(), r.now.Add(first)) > 0 {
	}
	if r.plan.Timeline.Waiting() == 0 {
		t.Fatal("no fire waits, although there are more than the pool has places for")
	}
	r.wantOverdue(first+9*time.Second, 9*time.Second, "when the node is saturated")
	close(finish)
	for r.claimOnce(t.Context(), r.now.Add(first)) > 0 || r.plan.Timeline.Waiting() > 0 {
		select {
		case <-r.pool.Freed():
		case <-t.Context().Done():
			t.Fatal("the pool has no room")
		}
	}
	r.quiet()
	r.wantOverdue(first+500*time.Millisecond, 0, "when all are claimed")
}

func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "job-" + string(rune('a'+i/26)) + string(rune('a'+i%26))
	}
	return names
}

// gone is a store with a database that becomes unreachable.
type gone struct {
	Store
	err error
}

func (g *gone) Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error) {
	if g.err != nil {
		return nil, g.err
	}
	return g.Store.Due(ctx, query)
}

func TestOldestOverdueGrowsWhileTheDatabaseIsUnreachable(t *testing.T) {
	t.Parallel()
	g := &gone{}
	r := newRig(t, func(s Store) Store { g.Store = s; return g })
	r.declare("known", "rate(1s)", nil)
	r.poll(5 * time.Second)
	g.err = errors.New("connection refused")
	if _, err := r.plan.Poll(t.Context(), r.now.Add(5*time.Second), r.now.Add(10*time.Second)); err == nil {
		t.Fatal("the poll succeeded")
	}
	r.wantOverdue(first+time.Minute, time.Minute, "a minute later")
	taken := r.plan.Timeline.Take(r.now.Add(first), 10, anyQueue, keep)
	r.wantOverdue(first+2*time.Minute, 2*time.Minute, "while a claim has no answer")
	r.plan.Timeline.Claimed(taken, nil)
	r.wantOverdue(first+2*time.Minute, 0, "when the claim is lost")
}

func TestOldestOverdueCountsFiresOfOtherNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("theirs", "rate(1s)", nil)
	others := make([]dispatcher.Node, 20) // all of them come before this node
	for i := range others {
		others[i].ID = run.NodeID(1 + i)
	}
	r.fleet.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: others}, time.Now())
	sweep := func(after time.Duration) {
		t.Helper()
		if err := r.plan.SweepAll(t.Context(), r.now.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(first + 10*time.Second)
	r.wantOverdue(first+12*time.Second, 10*time.Second, "until the next sweep, which may find it claimed")
	r.wantOverdue(first+50*time.Second, 50*time.Second, "when no sweep has succeeded for a while")
	sweep(first + 900*time.Millisecond)
	r.wantOverdue(first+time.Second, 0, "within the grace of their preferred node")
	r.wantOverdue(first+time.Hour, 0, "long after a sweep that found nothing overdue")
}

func TestOldestOverdueLeavesOutFiresThatThisNodeMayNotMake(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(r *rig){
		"a job that requires a label which it lacks": func(r *rig) {
			job, err := r.store.Job(r.t.Context(), "app", "known")
			if err != nil {
				r.t.Fatal(err)
			}
			job.NodeLabels = input.Labels{"disk": "ssd"}
			if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
				r.t.Fatal(err)
			}
		},
		"a paused job": func(r *rig) {
			if _, err := r.store.PauseJob(r.t.Context(), "app", "known", "", true, input.Change{Actor: "test", Now: r.now}); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.declare("known", "rate(1s)", nil)
			set(r)
			r.poll(5 * time.Second)
			if _, err := r.plan.Poll(t.Context(), r.now.Add(10*time.Second), r.now.Add(10*time.Second)); err != nil {
				t.Fatal(err)
			}
			r.wantOverdue(time.Minute, 0, "a minute later")
		})
	}
}

func TestOldestOverdueIsZeroOnAPausedNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("known", "rate(1s)", nil)
	r.poll(5 * time.Second)
	r.fleet.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodePaused}, time.Now())
	r.wantOverdue(first+time.Minute, 0, "while the node is paused")
}

func TestOldestOverdueCountsMissedFiresUntilTheyAreSettled(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("missed", "rate(1s)", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(2 * time.Second) })
	late := r.now.Add(first + 10*time.Second)
	r.plan.Overdue.Settling(r.now.Add(first), late) // as settle does with the first that it finds
	r.wantOverdue(first+10*time.Second, 10*time.Second, "before the missed fires are settled")
	if err := r.chores.SettleMisfires(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	r.quiet()
	r.wantOverdue(first+10*time.Second, 0, "after the missed fires are settled")
}

// full is a store with a database that reads, and refuses claims and decisions about missed fires.
type full struct {
	Store
	err error
}

func (f *full) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]run.HeldRun, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.Claim(ctx, batch)
}

func (f *full) Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]run.HeldRun, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.Settle(ctx, batch)
}

func TestOldestOverdueGrowsWhileTheDatabaseRefusesWrites(t *testing.T) {
	t.Parallel()
	f := &full{}
	r := newRig(t, func(s Store) Store { f.Store = s; return f })
	r.declare("job", "rate(1s)", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(2 * time.Second) })
	f.err = errors.New("the disk is full")
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(first))
	if err := r.StoreFailure(); !errors.Is(err, f.err) {
		t.Errorf("the store fails with %v, want the reason of the claim", err)
	}
	late := r.now.Add(first + 10*time.Second)
	if err := r.chores.SettleMisfires(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	r.wantOverdue(first+10*time.Second, 10*time.Second, "while missed fires cannot be settled")
	f.err = nil
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(first))
	r.quiet()
	if err := r.StoreFailure(); err != nil {
		t.Errorf("the store fails with %v once it takes writes", err)
	}
}

// slowHeartbeat is a store whose heartbeats behave as set.
type slowHeartbeat struct {
	Store
	failing atomic.Bool
}

func (s *slowHeartbeat) err() error {
	if s.failing.Load() {
		return errors.New("connection refused")
	}
	return nil
}

func (s *slowHeartbeat) Clock(context.Context) (time.Time, error) { return time.Now(), s.err() }

func (s *slowHeartbeat) Heartbeat(context.Context, run.NodeID, dispatcher.NodeReport, time.Time) (dispatcher.HeartbeatReply, error) {
	return dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now()}, s.err()
}

func (s *slowHeartbeat) RecordOutage(context.Context, dispatcher.Outage) error { return s.err() }

func TestDatabaseIsReachableWhileHeartbeatsReachIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowHeartbeat{}
		e := New(s, nil, Options{Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		want := func(reachable bool, when string) {
			t.Helper()
			if got := e.fleet.Reachable(e.opts.Heartbeat); got != reachable {
				t.Errorf("%s: reachable is %v, want %v", when, got, reachable)
			}
		}
		want(false, "before the node is registered")
		e.fleet.Joined(1, dispatcher.NodeActive, time.Now())
		want(true, "once it is registered")
		ctx, end := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); e.heartbeatLoop(ctx) }()
		time.Sleep(time.Minute)
		want(true, "while heartbeats succeed")
		s.failing.Store(true)
		time.Sleep(6 * time.Second)
		want(false, "after a heartbeat that failed")
		s.failing.Store(false)
		time.Sleep(6 * time.Second)
		want(true, "after the next that succeeded")
		end()
		<-over
		time.Sleep(9 * time.Second)
		want(true, "a little after the latest heartbeat")
		time.Sleep(6 * time.Second)
		want(false, "when a heartbeat has had no answer for long")
	})
}
