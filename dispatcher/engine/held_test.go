package engine

import (
	"context"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A node that was marked dead while it connected does not send, and records nothing: the run is another node's.
func TestAttemptThatLosesItsRunOnTheWayIsNotRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	held := []bool{}
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		held = append(held, call.Held())
		if err := r.register(t.Context(), dispatcher.NodeActive); err != nil { // as after it was marked dead
			t.Error(err)
		}
		held = append(held, call.Held())
		return run.Outcome{State: run.Cancelled, Class: run.ClassCancelled, NotSent: true}
	}
	id := r.request("slow", nil)
	if len(held) != 2 || !held[0] || held[1] {
		t.Errorf("held = %v, want true before the node registered again, and false afterwards", held)
	}
	if one := r.read(id); one.State != run.Claimed {
		t.Errorf("run is %s, want it left to the node that adopts it", one.State)
	}
}
