package engine

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// leftBehind takes the slot of a run in the node's name, as a restored dump does: the node itself has no trace of it.
func (r *rig) leftBehind(change func(*dispatcher.Job)) run.HeldRun {
	r.t.Helper()
	r.putBounded(change)
	r.requestBounded()
	query := dispatcher.AdoptQuery{Node: r.fleet.ID(), Token: 77, Limit: 10, Now: time.Now()}
	found, err := r.store.Adoptable(r.t.Context(), query)
	if err != nil || len(found) != 1 {
		r.t.Fatalf("adoptable: %v, %v, want one run", found, err)
	}
	held, err := r.store.Adopt(r.t.Context(), query, found)
	if err != nil || len(held) != 1 {
		r.t.Fatalf("adopted: %v, %v, want one run", held, err)
	}
	if granted, err := r.store.Acquire(r.t.Context(), held); err != nil || len(granted) != 1 {
		r.t.Fatalf("acquired: %v, %v, want the slot", granted, err)
	}
	return held[0]
}

func (r *rig) putBounded(change func(*dispatcher.Job)) {
	r.t.Helper()
	job := dispatcher.Job{App: "app", Name: "bounded"}
	job.SetDefaults()
	job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
	change(&job)
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) requestBounded() string {
	r.t.Helper()
	run, err := r.store.RequestRun(r.t.Context(), "app", "bounded", nil, input.Change{Actor: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	return run.ID
}

// handle makes rounds of the handler, each an interval after the one before.
func (r *rig) handle(rounds int) {
	r.t.Helper()
	for range rounds {
		r.now = r.now.Add(r.opts.Handler)
		if err := r.heartbeatOnce(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		if err := r.chores.Round(r.t.Context(), r.now); err != nil {
			r.t.Fatal(err)
		}
	}
}

// wantsToGoOn requests a run and requires that it succeeds.
func (r *rig) wantsToGoOn() {
	r.t.Helper()
	id := r.requestBounded()
	if err := r.adopt(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.quiet()
	one, err := r.store.Run(r.t.Context(), id)
	if err != nil || one.State != run.Succeeded {
		r.t.Errorf("the next run is %s (%s), %v; want it to succeed", one.State, one.Error, err)
	}
	if slots, err := r.store.Slots(r.t.Context(), "app", "bounded"); err != nil || len(slots) != 0 {
		r.t.Errorf("slots %+v, %v, want none taken", slots, err)
	}
}

// If the database assigns a run to a live node that does not have it, the job goes on, however the run ends.
func TestSlotsOfEndedRunsUnknownToTheNodeAreFreed(t *testing.T) {
	t.Parallel()
	settle := func(choice dispatcher.RollbackChoice) func(*rig, run.HeldRun) error {
		return func(r *rig, _ run.HeldRun) error {
			if _, err := r.store.DeclareRollback(t.Context(), "restored", input.Change{Actor: "test"}); err != nil {
				return err
			}
			if err := r.heartbeatOnce(t.Context()); err != nil {
				return err
			}
			_, err := r.store.ResolveRollback(t.Context(), choice, input.Change{Actor: "test"})
			return err
		}
	}
	ends := map[string]func(*rig, run.HeldRun) error{
		"rollback skip":   settle(dispatcher.RollbackSkip),
		"rollback replay": settle(dispatcher.RollbackReplay),
		"cancel": func(r *rig, run run.HeldRun) error {
			_, err := r.store.CancelRun(t.Context(), run.String(), input.Change{Actor: "test"})
			return err
		},
		"cancel and retry": func(r *rig, run run.HeldRun) error {
			if _, err := r.store.CancelRun(t.Context(), run.String(), input.Change{Actor: "test"}); err != nil {
				return err
			}
			_, err := r.store.RetryRun(t.Context(), run.String(), input.Change{Actor: "test"})
			return err
		},
		"begin at most once and replay": func(r *rig, one run.HeldRun) error {
			job, err := r.store.Job(t.Context(), "app", "bounded")
			if err != nil {
				return err
			}
			job.Delivery = dispatcher.AtMostOnce
			if _, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test"}); err != nil {
				return err
			}
			if _, err := r.store.Begin(t.Context(), []run.HeldRun{one}); err != nil {
				return err
			}
			return settle(dispatcher.RollbackReplay)(r, one)
		},
		"hand back": func(r *rig, one run.HeldRun) error {
			return r.store.Release(t.Context(), []run.HeldRun{one})
		},
	}
	policies := map[string]func(*dispatcher.Job){
		"forbid":  func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid },
		"queue":   func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue },
		"replace": func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyReplace },
		"allow":   func(j *dispatcher.Job) { j.MaxConcurrency = 1 },
	}
	for end, by := range ends {
		for policy, change := range policies {
			t.Run(end+", "+policy, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, nil)
				run := r.leftBehind(change)
				if err := by(r, run); err != nil {
					t.Fatal(err)
				}
				r.handle(3)
				if err := r.adopt(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.quiet()
				r.wantsToGoOn()
			})
		}
	}
}

// Only the node knows that a request of a cancelled run is in flight, however many rounds pass.
func TestSlotOfARequestInFlightIsNotFreed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	begun, stop := make(chan struct{}), make(chan struct{})
	r.invoke = func(context.Context, target.Call) run.Outcome {
		close(begun)
		<-stop // its target does not notice that the caller disconnected
		return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
	}
	r.putBounded(func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	id := r.requestBounded()
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-begun
	if _, err := r.store.CancelRun(t.Context(), id, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	r.handle(6)
	if slots, err := r.store.Slots(t.Context(), "app", "bounded"); err != nil || len(slots) != 1 || slots[0].Run != id {
		t.Errorf("slots %+v, %v, want that of the cancelled run, whose request is in flight", slots, err)
	}
	close(stop)
	r.quiet()
	r.invoke = nil
	r.handle(3)
	r.wantsToGoOn()
}
