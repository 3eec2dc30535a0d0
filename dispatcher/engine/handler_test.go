package engine

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// worked notes the writes of the handler.
type worked struct {
	Store
	steps []string
	// frozen is called while a settlement is on its way; may be nil.
	frozen func()
}

func (w *worked) Settle(ctx context.Context, b dispatcher.SettleBatch) ([]run.HeldRun, error) {
	if w.frozen != nil {
		w.frozen()
	}
	w.steps = append(w.steps, "settle")
	return w.Store.Settle(ctx, b)
}

func (w *worked) MarkDead(ctx context.Context, id run.NodeID, heartbeat time.Time, after time.Duration, now time.Time) (int, error) {
	w.steps = append(w.steps, "mark dead")
	return w.Store.MarkDead(ctx, id, heartbeat, after, now)
}

func (w *worked) Lock(ctx context.Context, r dispatcher.LockRequest) ([]dispatcher.Lock, error) {
	locks, err := w.Store.Lock(ctx, r)
	for _, lock := range locks {
		w.steps = append(w.steps, "lock "+lock.Name)
	}
	return locks, err
}

func (w *worked) take() []string {
	steps := w.steps
	w.steps = nil
	return steps
}

func TestAppIsHandledOnceInAWindow(t *testing.T) {
	t.Parallel()
	w := &worked{}
	r := newRig(t, func(s Store) Store { w.Store = s; return w })
	round := func(what string, want ...string) {
		t.Helper()
		if err := r.chores.Round(t.Context(), r.now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, w.take()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	round("the first, which checks the time zones", "lock zones", "lock alerts", "lock endpoints", "lock objectives",
		"lock states", "lock statistics", "lock switches", "lock upcoming", "lock census")
	round("nothing to do")
	miss := func(name string) {
		r.declare(name, "rate(5s)", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(time.Second) })
	}
	miss("first")
	r.now = r.now.Add(7 * time.Second)
	round("a misfire", "lock app/app", "settle")
	r.now = r.now.Add(-7 * time.Second)
	miss("second")
	r.now = r.now.Add(7 * time.Second)
	round("another within the window, like that of a node whose loop is seconds behind")
	later := dispatcher.LockRequest{Node: 99, Names: []string{"app/app"}, AtMost: time.Minute, Now: time.Now().Add(time.Hour)}
	if _, err := r.store.Lock(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	w.take()
	round("when it has passed, and the clock was set back", "lock app/app", "settle")
	// A node with two heartbeats on time marks dead nodes, once in a window.
	for i := range 2 {
		r.fleet.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, time.Now().Add(time.Duration(i+1)*time.Minute))
	}
	round("as one of the fleet", "lock fleet", "mark dead")
}

func TestRoundsOfNodesDriftApart(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 100 {
		pause := loop.Spread(10 * time.Second)
		if pause < 9*time.Second || pause > 11*time.Second {
			t.Fatalf("a pause of %s, want 10s give or take a tenth", pause)
		}
		seen[pause] = true
	}
	if len(seen) < 50 {
		t.Errorf("of 100 pauses %d are different", len(seen))
	}
}
