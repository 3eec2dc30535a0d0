package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Of servers whose clocks differ, no clock has reached less than the bound says, whichever of them responded.
func TestClockIsAheadOfNoServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const margin = 400 * time.Millisecond
		c := newClock(nil)
		c.margin = margin
		ahead, behind := func() time.Time { return time.Now().Add(margin) }, time.Now
		for _, server := range []func() time.Time{behind, ahead, behind, behind, ahead} {
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
		const margin = 2 * time.Second
		f := newFleet(10*time.Second, 25*time.Second)
		f.margin = margin
		sent := time.Now()
		f.joined(1, dispatcher.NodeActive, sent)
		f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: sent}, sent)
		dead := sent.Add(10*time.Second - margin) // of a node that does not know the margin, by the clock that is ahead
		if !f.leaseUntil.Before(dead) {
			t.Errorf("the lease ends %s after the node may count as dead", f.leaseUntil.Sub(dead))
		}
		// Heartbeats that other servers stamp are no leap of the clock.
		for _, off := range []time.Duration{margin, 0, margin} {
			f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now().Add(off)}, time.Now())
		}
		if _, may := f.mayMarkDead(); !may {
			t.Error("the node takes the clocks of several servers for a clock that leaps")
		}
	})
}
