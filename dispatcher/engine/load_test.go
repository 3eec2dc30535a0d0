package engine

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestHeartbeatsReportTheLoadOfTheNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("busy", "* * * * * ?", func(trigger *dispatcher.Trigger) { trigger.EndAt = new(r.now.Add(3*time.Second + time.Millisecond)) })
	r.poll(5 * time.Second)
	for range 3 {
		r.claimOnce(t.Context(), r.now.Add(3*time.Second))
	}
	r.quiet()
	if err := r.heartbeatOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	nodes, err := r.store.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The instants are some twenty seconds ago; see newRig. The clock of the database is that of the node, but a
	// machine may stop between two readings of it.
	if n := nodes[0]; n.Fires != 3 || n.Share != 1 || n.Lag.Std() < 10*time.Second || n.ClockOffset.Std().Abs() > patience {
		t.Errorf("node = %+v, want its 3 fires, all of the fleet's, and how late they were", n)
	}
	if again := r.report(); again.Lag != 0 || again.Fires != 3 {
		t.Errorf("the next report = %+v, want the lag forgotten and the fires of the minute", again)
	}
}
