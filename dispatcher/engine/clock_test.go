package engine

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestNodeWithAClockFarOffIsNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := r.Ready(); err != nil {
		t.Fatalf("Ready = %v", err)
	}
	for range 4 {
		r.clock.Add(plan.Sample{Local: time.Now(), Database: time.Now(), Offset: -31 * time.Second})
	}
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "31s off") {
		t.Errorf("Ready = %v, want the clock to be the reason", err)
	}
}

func TestReadinessSaysWhyTheNodeCannotWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(struct{ Store }{}, nil, Options{DeadAfter: time.Minute})
		if err := e.Ready(); err == nil || !strings.Contains(err.Error(), "not registered") {
			t.Errorf("before its registration: %v", err)
		}
		e.fleet.Joined(1, dispatcher.NodeActive, time.Now())
		if err := e.Ready(); err != nil {
			t.Errorf("with a lease: %v", err)
		}
		time.Sleep(time.Minute)
		if err := e.Ready(); err == nil || !strings.Contains(err.Error(), "heartbeats do not reach the database") {
			t.Errorf("without a lease: %v", err)
		}
	})
}

// A node of an engine with a margin claims later and trusts its lease for less.
func TestEngineAppliesTheClockMargin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(struct{ Store }{}, nil, Options{
			Logger: slog.New(slog.DiscardHandler), DeadAfter: 10 * time.Second, ClockMargin: 2 * time.Second,
		})
		e.fleet.Joined(1, dispatcher.NodeActive, time.Now())
		if got := e.fleet.Lease(); got != 7*time.Second {
			t.Errorf("the lease is %s, want 10s less a second and the margin of 2s", got)
		}
		e.clock.Add(plan.Sample{Local: time.Now(), Database: time.Now()})
		if got := e.clock.Until(time.Now().Add(time.Minute)); got != 62*time.Second {
			t.Errorf("a fire in a minute is due in %s, want the margin of 2s later", got)
		}
	})
}

// The monotonic clock stands still while a machine is suspended. A sample of the database's clock from before is then
// late, and one from afterwards is early for an attempt that had begun before.
func TestAttemptInterruptedByASuspensionHasTheDatabasesTimes(t *testing.T) {
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
				known := started.Add(tt.known)
				r.clock.Add(plan.Sample{Local: started, Database: known, Wall: known.Round(0)})
				return run.Outcome{State: run.Succeeded, HTTPStatus: 200, StartedAt: started, EndedAt: time.Now()}
			}
			before := time.Now()
			run := r.read(r.request("job", nil))
			after := time.Now()
			for what, at := range map[string]struct {
				got  *time.Time
				want time.Duration
			}{"started": {run.StartedAt, 0}, "ended": {run.EndedAt, tt.ended}} {
				// The node's bound of the database's clock is a little off, on a slow machine by more.
				early, late := before.Add(at.want-patience), after.Add(at.want+patience)
				if at.got == nil || at.got.Before(early) || at.got.After(late) {
					t.Errorf("%s = %v, want %s from now", what, at.got, at.want)
				}
			}
		})
	}
}
