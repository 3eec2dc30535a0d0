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

// silent is a store that never grants permission to begin.
type silent struct {
	Store
	begun chan struct{} // closed when a run has begun anyway
}

func (silent) Acquire(ctx context.Context, _ []run.HeldRun) ([]run.HeldRun, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s silent) Begin(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error) {
	_, err := s.Store.Begin(ctx, runs)
	if err == nil {
		close(s.begun)
		<-ctx.Done()
		err = ctx.Err()
	}
	return nil, err
}

// A run that waits for the database's permission to begin when the drain time is over was not sent,
// so another node makes the same attempt.
func TestDrainReleasesRunsNotYetBegun(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	r := newRig(t, func(s Store) Store { return silent{s, begun} })
	for name, change := range map[string]func(*dispatcher.Job){
		"bounded": func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid },
		"once":    func(j *dispatcher.Job) { j.Delivery = dispatcher.AtMostOnce },
	} {
		r.declare(name, "rate(5s)", nil)
		job, err := r.store.Job(t.Context(), "app", name)
		if err != nil {
			t.Fatal(err)
		}
		change(&job)
		if _, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
			t.Fatal(err)
		}
	}
	r.now = r.now.Add(5 * time.Second)
	r.poll(0)
	r.claimOnce(t.Context(), r.now)
	<-begun
	r.opts.Drain = 50 * time.Millisecond
	r.drain(t.Context(), time.Now(), func() {})
	runs, err := r.store.Runs(t.Context(), dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 10}})
	if err != nil || len(runs) != 2 {
		t.Fatalf("runs = %+v, %v; want two", runs, err)
	}
	for _, one := range runs {
		if one.State != run.Queued || one.Attempt != 0 || one.StartedAt != nil {
			t.Errorf("run of %s is %s at attempt %d, begun at %v; want it to wait for its first", one.Job, one.State, one.Attempt, one.StartedAt)
		}
	}
}

// An attempt that is cut off while it connects was not sent, so another node makes it. One that is cut
// off later may have been sent, and stays with the node until it is adopted as lost.
func TestDrainReleasesAttemptsThatWereNotSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	begun := make(chan struct{}, 2)
	r.invoke = func(ctx context.Context, call target.Call) run.Outcome {
		begun <- struct{}{}
		<-ctx.Done()
		return run.Outcome{State: run.Cancelled, Class: run.ClassCancelled, NotSent: call.Job == "connecting"}
	}
	for _, job := range []string{"connecting", "sent"} {
		r.declare(job, "rate(5s)", nil)
	}
	r.now = r.now.Add(5 * time.Second)
	r.poll(0)
	r.claimOnce(t.Context(), r.now)
	<-begun
	<-begun
	r.opts.Drain = 50 * time.Millisecond
	r.drain(t.Context(), time.Now(), func() {})
	want := map[string]run.State{"connecting": run.Queued, "sent": run.Claimed}
	for job, state := range want {
		runs, err := r.store.Runs(t.Context(), dispatcher.RunQuery{App: "app", Job: job, Page: input.Page{Limit: 10}})
		if err != nil || len(runs) != 1 || runs[0].State != state {
			t.Errorf("runs of %s = %+v, %v; want one that is %s", job, runs, err, state)
		}
	}
}
