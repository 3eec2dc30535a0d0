package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// atMostOnce makes the job of a name at_most_once.
func (r *rig) atMostOnce(name string) {
	r.t.Helper()
	job, err := r.store.Job(r.t.Context(), "app", name)
	if err != nil {
		r.t.Fatal(err)
	}
	job.Delivery = dispatcher.AtMostOnce
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Fatal(err)
	}
}

// lostBegin executes the first Begin and then reports a failure.
type lostBegin struct {
	Store
	begins atomic.Int32
}

func (l *lostBegin) Begin(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error) {
	begun, err := l.Store.Begin(ctx, runs)
	if l.begins.Add(1) == 1 {
		return nil, errLost
	}
	return begun, err
}

func TestAtMostOnceRequestIsBegunInTheDatabaseBeforeItIsSent(t *testing.T) {
	t.Parallel()
	store := &lostBegin{}
	r := newRig(t, func(s Store) Store { store.Store = s; return store })
	r.declare("payout", "rate(1s)", nil)
	r.atMostOnce("payout")
	var state run.State
	r.invoke = func(ctx context.Context, call target.Call) run.Outcome {
		one, err := r.store.Run(ctx, call.Key.String())
		if err != nil {
			r.t.Error(err)
		}
		state = one.State
		return run.Outcome{State: run.Succeeded}
	}
	r.poll(time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	if diff := cmp.Diff([]string{"1s schedule succeeded #1"}, offsets(r, r.settled())); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if state != run.Running || store.begins.Load() != 2 || len(r.calls) != 1 {
		t.Errorf("while it was sent the run was %s, after %d tries to begin it, of %d calls; want running, 2 and 1",
			state, store.begins.Load(), len(r.calls))
	}
}

// claimSeen is a store that keeps its latest claim.
type claimSeen struct {
	Store
	won []run.HeldRun
}

func (c *claimSeen) Claim(ctx context.Context, batch dispatcher.ClaimBatch) (won []run.HeldRun, err error) {
	c.won, err = c.Store.Claim(ctx, batch)
	return c.won, err
}

func TestBegunRunOfADeadNodeIsLostAndNotRepeated(t *testing.T) {
	t.Parallel()
	claim := &claimSeen{}
	r := newRig(t, func(s Store) Store { claim.Store = s; return claim })
	r.declare("payout", "rate(1s)", nil)
	r.atMostOnce("payout")
	sent := make(chan struct{})
	r.invoke = func(ctx context.Context, _ target.Call) run.Outcome {
		close(sent)
		<-ctx.Done()
		return run.Outcome{State: run.Cancelled}
	}
	r.poll(time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	<-sent
	// The node registers again, as after its death: no node holds its old runs any more.
	if err := errors.Join(r.register(t.Context(), dispatcher.NodeActive), r.chores.Round(t.Context(), r.now),
		r.adopt(t.Context())); err != nil {
		t.Fatal(err)
	}
	found, err := r.store.Runs(t.Context(), dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 5}})
	if err != nil || len(found) != 1 || found[0].State != run.Lost {
		t.Errorf("runs = %+v, %v, want the one, lost", found, err)
	}
	r.pool.Cancel(pool.KeyOf(claim.won[0]))
	r.quiet()
	if len(r.calls) != 1 {
		t.Errorf("%d requests were sent, want 1", len(r.calls))
	}
}

// slowBegin calls a function between Begin and the request.
type slowBegin struct {
	Store
	meanwhile func()
}

func (s *slowBegin) Begin(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error) {
	begun, err := s.Store.Begin(ctx, runs)
	s.meanwhile()
	return begun, err
}

// A node that freezes after it checked its lease finds on waking that another node has its run.
func TestNodeDeclaredDeadBeforeTheRequestSendsNothing(t *testing.T) {
	t.Parallel()
	store := &slowBegin{}
	r := newRig(t, func(s Store) Store { store.Store = s; return store })
	store.meanwhile = func() { r.fleet.Joined(r.fleet.ID()+1, dispatcher.NodeActive, time.Now()) }
	r.declare("payout", "rate(1s)", nil)
	r.atMostOnce("payout")
	r.poll(time.Second)
	if tried := r.claimOnce(t.Context(), r.now.Add(time.Second)); tried != 1 {
		t.Fatalf("%d fires were claimed, want 1", tried)
	}
	r.quiet()
	if len(r.calls) != 0 {
		t.Errorf("%d requests were sent, want none", len(r.calls))
	}
}
