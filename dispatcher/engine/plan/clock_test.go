package plan

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestClockIsNeverAheadOfTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewClock(nil)
		ahead := 3 * time.Hour // the database's clock against ours
		for _, delay := range []time.Duration{80 * time.Millisecond, time.Millisecond, time.Second} {
			database := time.Now().Add(ahead)
			time.Sleep(delay) // the response's way back
			c.Add(Sample{Local: time.Now(), Database: database, roundTrip: delay})
			if behind := time.Now().Add(ahead).Sub(c.Now()); behind < 0 || behind > delay {
				t.Errorf("after a response that took %s the clock is %s behind, want between 0 and that", delay, behind)
			}
		}
		time.Sleep(time.Minute)
		if behind := time.Now().Add(ahead).Sub(c.Now()); behind != time.Millisecond {
			t.Errorf("clock is %s behind, want 1ms: that of the best sample", behind)
		}
	})
}

func TestClockFollowsADatabaseSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewClock(nil)
		for range 6 {
			time.Sleep(5 * time.Second)
			c.Add(Sample{Local: time.Now(), Database: time.Now(), roundTrip: time.Millisecond})
		}
		back := 80 * time.Millisecond
		c.Add(Sample{Local: time.Now(), Database: time.Now().Add(-back), roundTrip: time.Millisecond})
		if ahead := c.Now().Sub(time.Now().Add(-back)); ahead > 0 {
			t.Errorf("clock is %s ahead of the database's, which was set back: fires would be early", ahead)
		}
	})
}

func TestClockOffsetComesFromTheQuickestRecentSample(t *testing.T) {
	t.Parallel()
	c := NewClock(nil)
	now := time.Now()
	for i, tt := range []struct{ offset, roundTrip, want time.Duration }{
		{5 * time.Second, time.Millisecond, 5 * time.Second},
		{9 * time.Second, 20 * time.Millisecond, 5 * time.Second}, // a slow response is imprecise
		{-40 * time.Second, 5 * time.Millisecond, 5 * time.Second},
		{-40 * time.Second, 5 * time.Millisecond, 5 * time.Second},
		{-40 * time.Second, 5 * time.Millisecond, -40 * time.Second}, // the wall clock was set
	} {
		at := now.Add(time.Duration(i) * time.Second)
		c.Add(Sample{Local: at, Database: at, roundTrip: tt.roundTrip, Offset: tt.offset})
		if got := c.Offset(); got != tt.want {
			t.Errorf("after %d samples the offset is %s, want %s", i+1, got, tt.want)
		}
	}
}

// If the clocks of servers differ, all of them have reached the bound, whichever server responded.
func TestClockIsAheadOfNoServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const margin = 400 * time.Millisecond
		c := NewClock(nil)
		c.Margin = margin
		ahead, behind := func() time.Time { return time.Now().Add(margin) }, time.Now
		for _, server := range []func() time.Time{behind, ahead, behind, ahead, behind} {
			c.Add(Sample{Local: time.Now(), Database: server()})
			if bound := c.Now(); bound.After(behind()) {
				t.Errorf("the bound is %s ahead of a server's clock: fires would be early", bound.Sub(behind()))
			}
			if late := behind().Sub(c.Now()); late > margin {
				t.Errorf("the bound is %s behind the clock that is behind, want the margin at most", late)
			}
		}
		if got := c.Of(time.Now()); !got.Equal(ahead()) {
			t.Errorf("what is recorded is of %s, want %s, which is never before a fire was due", got, ahead())
		}
	})
}

// The server that judges a heartbeat may be ahead of the one that stamped it.
func TestLeaseEndsBeforeAnyServerCountsItsNodeAsDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const margin, slow = 2500 * time.Millisecond, 100 * time.Millisecond // the most that --dead-after allows
		f := NewFleet(10*time.Second, 25*time.Second, 0)
		f.Margin = margin
		sent := time.Now()
		f.Joined(1, dispatcher.NodeActive, sent)
		f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: sent}, sent)
		dead := sent.Add(10*time.Second - margin) // of a node that does not know the margin, by the clock that is ahead
		if until := sent.Add(f.Lease()); !until.Before(dead) {
			t.Errorf("the lease ends %s after the node may count as dead", until.Sub(dead))
		}
		// Heartbeats stamped by other servers are no leap of the clock, even with a slow response.
		for _, off := range []time.Duration{margin, 0, margin} {
			time.Sleep(2 * time.Second)
			stamped := time.Now().Add(off)
			if off == 0 {
				stamped = stamped.Add(-slow)
			}
			f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: stamped}, time.Now())
		}
		if _, may := f.MayMarkDead(); !may {
			t.Error("the node takes the clocks of several servers for a clock that leaps")
		}
	})
}
