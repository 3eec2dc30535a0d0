package engine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// A pause of the app by a label stops a fire that is in the timeline already. The handler ends the pause when its time
// is over, and then the owed fire runs.
func TestPauseOfAnAppStopsPlannedFiresUntilTheHandlerEndsIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("payout", "rate(10s)", nil)
	r.poll(10 * time.Second)
	until := r.now.Add(15 * time.Second) // it has passed by the database's clock
	if _, err := r.store.PauseApp(t.Context(), "app", dispatcher.AppPauseRequest{Until: &until},
		input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	r.claimOnce(t.Context(), r.now.Add(10*time.Second))
	if runs := offsets(r, r.settled()); len(runs) != 0 || len(r.calls) != 0 {
		t.Errorf("of a paused app, %d requests were sent, and there are the runs %v; want none", len(r.calls), runs)
	}
	if err := r.chores.Round(t.Context(), r.now.Add(15*time.Second)); err != nil {
		t.Fatal(err)
	}
	if pauses, err := r.store.AppPauses(t.Context(), "app"); err != nil || len(pauses) != 0 {
		t.Errorf("after a round of the handler there are the pauses %+v, %v; want none", pauses, err)
	}
	r.hear(dispatcher.Notification{App: "app"})
	r.plan.Floors.Reset()
	r.poll(10 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(10*time.Second))
	if diff := cmp.Diff([]string{"10s schedule succeeded #1"}, offsets(r, r.settled())); diff != "" || len(r.calls) != 1 {
		t.Errorf("after the pause %d requests were sent; runs (-want +got):\n%s", len(r.calls), diff)
	}
}
