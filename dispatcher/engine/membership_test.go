package engine

import (
	"cmp"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestLeaseEndsBeforeOthersMayTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(time.Minute, 25*time.Second, 5*time.Second)
		f.joined(1, dispatcher.NodeActive, time.Now())
		sent := time.Now()
		time.Sleep(30 * time.Second) // a slow response does not prolong the lease
		f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, sent)
		time.Sleep(28 * time.Second)
		if !f.leased() || !f.active() {
			t.Error("the lease ended 58 s after the heartbeat was sent, want 59 s")
		}
		time.Sleep(time.Second)
		if f.leased() || f.active() {
			t.Error("the lease lasts 59 s after the heartbeat was sent, want it ended a second before death")
		}
	})
}

// While a machine is suspended its monotonic clock stands still, and nothing runs that could notice.
func TestSuspendedMachineTrustsNoLeaseOnWaking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(time.Minute, 25*time.Second, 5*time.Second)
		f.joined(1, dispatcher.NodeActive, time.Now())
		for range 3 {
			time.Sleep(5 * time.Second)
			f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now()}, time.Now())
		}
		if _, may := f.mayMarkDead(); !may || !f.leased() || !f.active() {
			t.Fatalf("before: may mark others dead %v, leased %v, active %v; want all", may, f.leased(), f.active())
		}
		const suspended = 10 * time.Minute // the wall clock has gone on
		f.leaseFrom.wall, f.lastHeartbeat.wall = f.leaseFrom.wall.Add(-suspended), f.lastHeartbeat.wall.Add(-suspended)
		if _, may := f.mayMarkDead(); may || f.leased() || f.active() || f.reachable(5*time.Second) {
			t.Errorf("after ten minutes: may mark others dead %v, leased %v, active %v, reachable %v; want none",
				may, f.leased(), f.active(), f.reachable(5*time.Second))
		}
		f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now()}, time.Now())
		if _, may := f.mayMarkDead(); may || !f.leased() {
			t.Errorf("after a heartbeat: may mark others dead %v, leased %v; want the lease alone", may, f.leased())
		}
	})
}

func TestLeaseEndsThoughTheWallClockIsSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(time.Minute, 25*time.Second, 5*time.Second)
		f.joined(1, dispatcher.NodeActive, time.Now())
		f.leaseFrom.wall = f.leaseFrom.wall.Add(time.Hour)
		time.Sleep(59*time.Second - time.Nanosecond)
		if !f.leased() {
			t.Error("the lease ended early")
		}
		time.Sleep(time.Nanosecond)
		if f.leased() {
			t.Error("the lease lasts until the wall clock has caught up")
		}
	})
}

func TestLockEndsWhenAMachineWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Int64
		now := func() reading {
			return reading{time.Now(), time.Now().Round(0).Add(time.Duration(suspended.Load()))}
		}
		var ended atomic.Bool
		stop := whenPassed(now(), time.Minute, now, func() { ended.Store(true) })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if ended.Load() {
			t.Fatal("the lock ended after half of its time")
		}
		suspended.Store(int64(time.Hour))
		time.Sleep(clockInterval)
		synctest.Wait()
		if !ended.Load() {
			t.Error("the lock goes on a second after the machine woke, by its monotonic clock")
		}
		stop()
		ended.Store(false)
		stop = whenPassed(now(), time.Minute, now, func() { ended.Store(true) })
		stop()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if ended.Load() {
			t.Error("it ended although it was stopped")
		}
	})
}

func TestNoNodeIsMarkedDeadRightAfterAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(10*time.Second, 25*time.Second, 5*time.Second)
		f.joined(1, dispatcher.NodeActive, time.Now())
		heartbeat := func() {
			time.Sleep(time.Second)
			f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, time.Now())
		}
		heartbeat()
		if _, may := f.mayMarkDead(); may {
			t.Error("one heartbeat on time was enough, want two")
		}
		heartbeat()
		if _, may := f.mayMarkDead(); !may {
			t.Error("two heartbeats on time were not enough")
		}
		time.Sleep(time.Minute) // frozen, or the database was unreachable
		if _, may := f.mayMarkDead(); may {
			t.Error("heartbeats from before the pause were enough")
		}
		f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, time.Now())
		if _, may := f.mayMarkDead(); may {
			t.Error("the first heartbeat after a pause was enough, though every other looks old then")
		}
	})
}

// Each setting that serve accepts, and heartbeats between two that are due, which a notification causes.
func TestNodeWithRegularHeartbeatsMayMarkOthersDead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		deadAfter, heartbeat, between time.Duration
		beats                         int
		want                          bool
	}{
		"the defaults":                          {deadAfter: time.Minute, heartbeat: 5 * time.Second, beats: 2, want: true},
		"a long time until death":               {deadAfter: 3 * time.Minute, heartbeat: 5 * time.Second, beats: 2, want: true},
		"an hour until death, quick heartbeats": {deadAfter: time.Hour, heartbeat: 100 * time.Millisecond, beats: 2, want: true},
		"three heartbeats until death":          {deadAfter: time.Minute, heartbeat: 20 * time.Second, beats: 2, want: true},
		"one heartbeat":                         {deadAfter: 3 * time.Minute, heartbeat: 5 * time.Second, beats: 1, want: false},
		"notifications in quick succession": {
			deadAfter: time.Minute, heartbeat: 5 * time.Second, between: 100 * time.Millisecond, beats: 20, want: false,
		},
		"notifications each second, for a while": {
			deadAfter: time.Minute, heartbeat: 5 * time.Second, between: time.Second, beats: 20, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(tt.deadAfter, 25*time.Second, tt.heartbeat)
				f.joined(1, dispatcher.NodeActive, time.Now())
				for range tt.beats {
					time.Sleep(cmp.Or(tt.between, tt.heartbeat))
					f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now()}, time.Now())
				}
				if _, may := f.mayMarkDead(); may != tt.want {
					t.Errorf("may mark others dead: %v, want %v", may, tt.want)
				}
			})
		})
	}
}

func TestNoNodeIsMarkedDeadRightAfterTheDatabaseClockJumps(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		leap time.Duration
		want bool
	}{
		"ahead":               {time.Hour, false},
		"back":                {-time.Hour, false},
		"by nothing":          {0, true},
		"as responses differ": {500 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(10*time.Second, 25*time.Second, 5*time.Second)
				f.joined(1, dispatcher.NodeActive, time.Now())
				heartbeat := func(leapt time.Duration) {
					time.Sleep(time.Second)
					f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now().Add(leapt)}, time.Now())
				}
				for range 4 {
					heartbeat(0)
				}
				heartbeat(tt.leap)
				if _, got := f.mayMarkDead(); got != tt.want {
					t.Errorf("may mark others dead: %v, want %v", got, tt.want)
				}
				heartbeat(tt.leap)
				heartbeat(tt.leap)
				if _, may := f.mayMarkDead(); !may {
					t.Error("two heartbeats by the new time were not enough")
				}
			})
		})
	}
}

// Otherwise fires would wait a grace for a node that may not take them.
func TestOnlyNodesServingATriggerArePreferred(t *testing.T) {
	t.Parallel()
	live := []dispatcher.Node{
		{ID: 1}, {ID: 2, Labels: input.Labels{"zone": "a"}}, {ID: 3, Apps: []string{"other"}, Labels: input.Labels{"zone": "a"}},
	}
	count := map[run.NodeID]int{}
	for _, node := range live {
		f := newFleet(time.Minute, 25*time.Second, 5*time.Second)
		f.joined(node.ID, dispatcher.NodeActive, time.Now())
		f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
		for i := range int64(300) {
			pinned := dispatcher.DueTrigger{ID: hashed(i), AppID: run.AppID("shop"), NodeLabels: input.Labels{"zone": "a"}}
			if node.Serves(pinned.AppID, pinned.NodeLabels) && f.prefers(pinned) {
				count[node.ID]++
			}
		}
	}
	if count[1] != 0 || count[2] != 300 || count[3] != 0 {
		t.Errorf("preferred: %v, want all 300 by node 2, which alone has the label and serves the app", count)
	}
}

// Only nodes with the labels that a job requires claim, settle and adopt its runs.
func TestPinnedJobWaitsForANodeWithItsLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	pinned := dispatcher.Job{
		App: "app", Name: "pinned", Enabled: true, NodeLabels: input.Labels{"disk": "ssd"},
		Target:   target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}},
		Triggers: map[string]dispatcher.Trigger{"only": {}},
	}
	trigger := pinned.Triggers["only"]
	trigger.SetDefaults()
	trigger.Expression, trigger.MisfireAfter = "rate(1s)", input.Duration(time.Second)
	pinned.Triggers["only"] = trigger
	if _, _, err := r.store.PutJob(t.Context(), pinned, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.RequestRun(t.Context(), "app", "pinned", nil, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	work := func() (runs int) {
		planned := r.poll(5 * time.Second)
		if err := errors.Join(r.settle(t.Context(), []string{"app"}, time.Time{}, r.now.Add(10*time.Second)), r.adopt(t.Context())); err != nil {
			t.Fatal(err)
		}
		r.quiet()
		return planned + len(r.calls)
	}
	if got := work(); got != 0 {
		t.Errorf("a node without the label did %d things", got)
	}
	r.opts.Labels = input.Labels{"disk": "ssd", "zone": "a"}
	if err := errors.Join(r.register(t.Context(), dispatcher.NodeActive), r.heartbeatOnce(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := work(); got != 3 {
		t.Errorf("a node with the label did %d things, want a planned fire, a catch-up run and the manual run", got)
	}
}
