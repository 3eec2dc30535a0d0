package engine

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// afterClaim calls a function between a claim and the attempts of its runs.
type afterClaim struct {
	Store
	meanwhile func()
}

func (c *afterClaim) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]run.HeldRun, error) {
	won, err := c.Store.Claim(ctx, batch)
	if c.meanwhile != nil && len(won) > 0 {
		c.meanwhile()
		c.meanwhile = nil
	}
	return won, err
}

// An operator suspends an app with a claimed run. No request is sent, and the run is not lost either: it is attempted
// when the suspension is lifted, as the same attempt.
func TestClaimedRunOfASuspendedAppWaits(t *testing.T) {
	t.Parallel()
	claims := &afterClaim{}
	r := newRig(t, func(s Store) Store { claims.Store = s; return claims })
	r.declare("payout", "rate(1s)", nil)
	suspend := func(suspended bool) {
		app, err := r.store.App(t.Context(), "app")
		if err == nil {
			app.Bounds = &target.Bounds{Suspended: suspended}
			_, _, err = r.store.PutApp(t.Context(), app, input.Change{Actor: "test", Operator: true, Now: r.now})
		}
		if err != nil {
			t.Fatal(err)
		}
		r.hear(dispatcher.Notification{App: "app"})
	}
	claims.meanwhile = func() { suspend(true) }
	r.poll(time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	if diff := cmp.Diff([]string{"1s schedule queued #0"}, offsets(r, r.settled())); diff != "" || len(r.calls) != 0 {
		t.Errorf("while the app is suspended, %d requests were sent; runs (-want +got):\n%s", len(r.calls), diff)
	}
	if err := r.adopt(t.Context()); err != nil || len(r.calls) != 0 {
		t.Errorf("%d requests were sent by an adoption, %v; want none", len(r.calls), err)
	}
	suspend(false)
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1s schedule succeeded #1"}, offsets(r, r.settled())); diff != "" || len(r.calls) != 1 {
		t.Errorf("after that, %d requests were sent; runs (-want +got):\n%s", len(r.calls), diff)
	}
}

// manyNodes is a store that knows the APIs of other nodes: a database in a file has one node.
type manyNodes struct {
	Store
	apis []string
}

func (m *manyNodes) Heartbeat(ctx context.Context, id run.NodeID, report dispatcher.NodeReport, now time.Time) (
	reply dispatcher.HeartbeatReply, err error,
) {
	reply, err = m.Store.Heartbeat(ctx, id, report, now)
	reply.APIs = m.apis
	return reply, err
}

// The addresses of the other nodes' APIs are handed on when they change, and not at each heartbeat.
func TestHeartbeatReportsOtherNodesAPIs(t *testing.T) {
	t.Parallel()
	nodes := &manyNodes{}
	r := newRig(t, func(s Store) Store { nodes.Store = s; return nodes })
	var told [][]string
	r.opts.OnAPIs = func(addresses []string) { told = append(told, addresses) }
	for _, nodes.apis = range [][]string{nil, {"10.0.0.7:8080"}, {"10.0.0.7:8080"}, nil} {
		if err := r.heartbeatOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([][]string{{"10.0.0.7:8080"}, nil}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
