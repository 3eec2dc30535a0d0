package plan

import (
	"cmp"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestLeaseEndsBeforeOthersMayTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := NewFleet(time.Minute, 25*time.Second, 5*time.Second)
		f.Joined(1, dispatcher.NodeActive, time.Now())
		sent := time.Now()
		time.Sleep(30 * time.Second) // a slow response does not prolong the lease
		f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, sent)
		time.Sleep(28 * time.Second)
		if !f.Leased() || !f.Active() {
			t.Error("the lease ended 58 s after the heartbeat was sent, want 59 s")
		}
		time.Sleep(time.Second)
		if f.Leased() || f.Active() {
			t.Error("the lease lasts 59 s after the heartbeat was sent, want it ended a second before death")
		}
	})
}

// While a machine is suspended its monotonic clock stands still, and no code runs that could notice.
func TestSuspendedMachineTrustsNoLeaseOnWaking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := NewFleet(time.Minute, 25*time.Second, 5*time.Second)
		f.Joined(1, dispatcher.NodeActive, time.Now())
		for range 3 {
			time.Sleep(5 * time.Second)
			f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now()}, time.Now())
		}
		if _, may := f.MayMarkDead(); !may || !f.Leased() || !f.Active() {
			t.Fatalf("before: may mark others dead %v, leased %v, active %v; want all", may, f.Leased(), f.Active())
		}
		const suspended = 10 * time.Minute // the wall clock has gone on
		f.leaseFrom.wall, f.lastHeartbeat.wall = f.leaseFrom.wall.Add(-suspended), f.lastHeartbeat.wall.Add(-suspended)
		if _, may := f.MayMarkDead(); may || f.Leased() || f.Active() || f.Reachable(5*time.Second) {
			t.Errorf("after ten minutes: may mark others dead %v, leased %v, active %v, reachable %v; want none",
				may, f.Leased(), f.Active(), f.Reachable(5*time.Second))
		}
		f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now()}, time.Now())
		if _, may := f.MayMarkDead(); may || !f.Leased() {
			t.Errorf("after a heartbeat: may mark others dead %v, leased %v; want the lease alone", may, f.Leased())
		}
	})
}

func TestLeaseEndsThoughTheWallClockIsSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := NewFleet(time.Minute, 25*time.Second, 5*time.Second)
		f.Joined(1, dispatcher.NodeActive, time.Now())
		f.leaseFrom.wall = f.leaseFrom.wall.Add(time.Hour)
		time.Sleep(59*time.Second - time.Nanosecond)
		if !f.Leased() {
			t.Error("the lease ended early")
		}
		time.Sleep(time.Nanosecond)
		if f.Leased() {
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
		f := NewFleet(10*time.Second, 25*time.Second, 5*time.Second)
		f.Joined(1, dispatcher.NodeActive, time.Now())
		heartbeat := func() {
			time.Sleep(time.Second)
			f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, time.Now())
		}
		heartbeat()
		if _, may := f.MayMarkDead(); may {
			t.Error("one heartbeat on time was enough, want two")
		}
		heartbeat()
		if _, may := f.MayMarkDead(); !may {
			t.Error("two heartbeats on time were not enough")
		}
		time.Sleep(time.Minute) // frozen, or the database was unreachable
		if _, may := f.MayMarkDead(); may {
			t.Error("heartbeats from before the pause were enough")
		}
		f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, time.Now())
		if _, may := f.MayMarkDead(); may {
			t.Error("the first heartbeat after a pause was enough, though every other looks old then")
		}
	})
}

// All settings that serve accepts, and heartbeats between two regular ones, caused by notifications.
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
				f := NewFleet(tt.deadAfter, 25*time.Second, tt.heartbeat)
				f.Joined(1, dispatcher.NodeActive, time.Now())
				for range tt.beats {
					time.Sleep(cmp.Or(tt.between, tt.heartbeat))
					f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now()}, time.Now())
				}
				if _, may := f.MayMarkDead(); may != tt.want {
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
		"ahead":                          {time.Hour, false},
		"back":                           {-time.Hour, false},
		"not at all":                     {0, true},
		"within the spread of responses": {500 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := NewFleet(10*time.Second, 25*time.Second, 5*time.Second)
				f.Joined(1, dispatcher.NodeActive, time.Now())
				heartbeat := func(leapt time.Duration) {
					time.Sleep(time.Second)
					f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now().Add(leapt)}, time.Now())
				}
				for range 4 {
					heartbeat(0)
				}
				heartbeat(tt.leap)
				if _, got := f.MayMarkDead(); got != tt.want {
					t.Errorf("may mark others dead: %v, want %v", got, tt.want)
				}
				heartbeat(tt.leap)
				heartbeat(tt.leap)
				if _, may := f.MayMarkDead(); !may {
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
		f := NewFleet(time.Minute, 25*time.Second, 5*time.Second)
		f.Joined(node.ID, dispatcher.NodeActive, time.Now())
		f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
		for i := range int64(300) {
			pinned := dispatcher.DueTrigger{ID: hashed(i), AppID: run.AppID("shop"), NodeLabels: input.Labels{"zone": "a"}}
			if node.Serves(pinned.AppID, pinned.NodeLabels) && f.Prefers(pinned) {
				count[node.ID]++
			}
		}
	}
	if count[1] != 0 || count[2] != 300 || count[3] != 0 {
		t.Errorf("preferred: %v, want all 300 by node 2, which alone has the label and serves the app", count)
	}
}
