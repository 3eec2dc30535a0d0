package engine

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestClockIsNeverAheadOfTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		ahead := 3 * time.Hour // the database's clock against ours
		for _, delay := range []time.Duration{80 * time.Millisecond, time.Millisecond, time.Second} {
			database := time.Now().Add(ahead)
			time.Sleep(delay) // the response's way back
			c.add(sample{local: time.Now(), database: database, roundTrip: delay})
			if behind := time.Now().Add(ahead).Sub(c.now()); behind < 0 || behind > delay {
				t.Errorf("after a response that took %s the clock is %s behind, want between 0 and that", delay, behind)
			}
		}
		time.Sleep(time.Minute)
		if behind := time.Now().Add(ahead).Sub(c.now()); behind != time.Millisecond {
			t.Errorf("clock is %s behind, want 1ms: that of the best sample", behind)
		}
	})
}

func TestClockFollowsADatabaseSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		for range 6 {
			time.Sleep(5 * time.Second)
			c.add(sample{local: time.Now(), database: time.Now(), roundTrip: time.Millisecond})
		}
		back := 80 * time.Millisecond
		c.add(sample{local: time.Now(), database: time.Now().Add(-back), roundTrip: time.Millisecond})
		if ahead := c.now().Sub(time.Now().Add(-back)); ahead > 0 {
			t.Errorf("clock is %s ahead of the database's, which was set back: fires would be early", ahead)
		}
	})
}

func TestClockOffsetComesFromTheQuickestRecentSample(t *testing.T) {
	t.Parallel()
	c := newClock(nil)
	now := time.Now()
	for i, tt := range []struct{ offset, roundTrip, want time.Duration }{
		{5 * time.Second, time.Millisecond, 5 * time.Second},
		{9 * time.Second, 20 * time.Millisecond, 5 * time.Second}, // a slow response says little
		{-40 * time.Second, 5 * time.Millisecond, 5 * time.Second},
		{-40 * time.Second, 5 * time.Millisecond, 5 * time.Second},
		{-40 * time.Second, 5 * time.Millisecond, -40 * time.Second}, // the wall clock was set
	} {
		at := now.Add(time.Duration(i) * time.Second)
		c.add(sample{local: at, database: at, roundTrip: tt.roundTrip, offset: tt.offset})
		if got := c.offset(); got != tt.want {
			t.Errorf("after %d samples the offset is %s, want %s", i+1, got, tt.want)
		}
	}
}

func TestNodeWithAClockFarOffIsNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := r.Ready(); err != nil {
		t.Fatalf("Ready = %v", err)
	}
	for range offsetSamples {
		r.clock.add(sample{local: time.Now(), database: time.Now(), offset: -31 * time.Second})
	}
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "31s off") {
		t.Errorf("Ready = %v, want the clock to be the reason", err)
	}
}

// Of servers whose clocks differ, no clock has reached less than the bound says, whichever of them responded.
func TestClockIsAheadOfNoServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const margin = 400 * time.Millisecond
		c := newClock(nil)
		c.margin = margin
		ahead, behind := func() time.Time { return time.Now().Add(margin) }, time.Now
		for _, server := range []func() time.Time{behind, ahead, behind, ahead, behind} {
			c.add(sample{local: time.Now(), database: server()})
			if bound := c.now(); bound.After(behind()) {
				t.Errorf("the bound is %s ahead of a server's clock: fires would be early", bound.Sub(behind()))
			}
			if late := behind().Sub(c.now()); late > margin {
				t.Errorf("the bound is %s behind the clock that is behind, want the margin at most", late)
			}
		}
		if got := c.of(time.Now()); !got.Equal(ahead()) {
			t.Errorf("what is recorded is of %s, want %s, which is never before a fire was due", got, ahead())
		}
	})
}

// The server that judges a heartbeat may be ahead of the one that stamped it.
func TestLeaseEndsBeforeAnyServerCountsItsNodeAsDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const margin, slow = 2500 * time.Millisecond, 100 * time.Millisecond // the most that --dead-after allows
		f := newFleet(10*time.Second, 25*time.Second, 0)
		f.margin = margin
		sent := time.Now()
		f.joined(1, dispatcher.NodeActive, sent)
		f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: sent}, sent)
		dead := sent.Add(10*time.Second - margin) // of a node that does not know the margin, by the clock that is ahead
		if until := sent.Add(f.lease()); !until.Before(dead) {
			t.Errorf("the lease ends %s after the node may count as dead", until.Sub(dead))
		}
		// Heartbeats that other servers stamp are no leap of the clock, also if the response takes its time.
		for _, off := range []time.Duration{margin, 0, margin} {
			time.Sleep(2 * time.Second)
			stamped := time.Now().Add(off)
			if off == 0 {
				stamped = stamped.Add(-slow)
			}
			f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: stamped}, time.Now())
		}
		if _, may := f.mayMarkDead(); !may {
			t.Error("the node takes the clocks of several servers for a clock that leaps")
		}
	})
}

// judging is a store that notes after how long nodes are marked dead.
type judging struct {
	lockedOnce
	after time.Duration
}

func (j *judging) MarkDead(_ context.Context, _ run.NodeID, _ time.Time, after time.Duration, _ time.Time) (int, error) {
	j.after = after
	return 0, nil
}

func (j *judging) FailLostRuns(context.Context, time.Time) (int, error) { return 0, nil }
func (j *judging) GrantWaiting(context.Context) error                   { return nil }

func (j *judging) EndBroadcasts(context.Context, []run.Key, time.Time) (int, error) {
	return 0, nil
}

// A node of an engine with a margin claims later, trusts its lease for less and waits longer for others.
func TestEngineAppliesTheClockMargin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &judging{}
		e := New(s, nil, Options{Logger: slog.New(slog.DiscardHandler), DeadAfter: 10 * time.Second, ClockMargin: 2 * time.Second})
		e.fleet.joined(1, dispatcher.NodeActive, time.Now())
		for range 3 {
			time.Sleep(time.Second)
			e.fleet.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now()}, time.Now())
		}
		if err := e.markDeadNodes(t.Context(), time.Time{}); err != nil || s.after != 12*time.Second {
			t.Errorf("others are marked dead after %s, %v; want 10s and the margin of 2s", s.after, err)
		}
		if got := e.fleet.lease(); got != 7*time.Second {
			t.Errorf("the lease is %s, want 10s less a second and the margin of 2s", got)
		}
		e.clock.add(sample{local: time.Now(), database: time.Now()})
		if got := e.clock.until(time.Now().Add(time.Minute)); got != 62*time.Second {
			t.Errorf("a fire in a minute is due in %s, want the margin of 2s later", got)
		}
	})
}

// The monotonic clock stands still while a machine is suspended. What was known of the database's clock before is then
// late, and what is known afterwards is early for an attempt that had begun before.
func TestAttemptThatASuspensionInterruptsHasTheDatabasesTimes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ known, ended time.Duration }{
		"no response since": {known: -time.Hour},
		"a heartbeat since": {known: time.Hour, ended: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.invoke = func(context.Context, target.Call) run.Outcome {
				started := time.Now()
				r.clock.mu.Lock()
				r.clock.samples = nil
				r.clock.base.database, r.clock.base.wall = r.clock.base.database.Add(tt.known), r.clock.base.wall.Add(tt.known)
				r.clock.mu.Unlock()
				return run.Outcome{State: run.Succeeded, HTTPStatus: 200, StartedAt: started, EndedAt: time.Now()}
			}
			before := time.Now()
			run := r.read(r.request("job", nil))
			after := time.Now()
			for what, at := range map[string]struct {
				got  *time.Time
				want time.Duration
			}{"started": {run.StartedAt, 0}, "ended": {run.EndedAt, tt.ended}} {
				// What the node knows of the database's clock is a little off, on a slow machine by more.
				early, late := before.Add(at.want-patience), after.Add(at.want+patience)
				if at.got == nil || at.got.Before(early) || at.got.After(late) {
					t.Errorf("%s = %v, want %s from now", what, at.got, at.want)
				}
			}
		})
	}
}
