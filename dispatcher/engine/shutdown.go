package engine

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// A shutdown has two parts. In the drain, attempts in flight finish, Options.Drain long at most. Then the node
// closes: it hands back what was not begun, stores the last outcomes and leaves the fleet, Options.Closing
// long at most. Platforms kill a process that takes longer than they were told, so both bounds hold
// whatever the database does: at the end of the second, every statement that still waits is given up.

// leaveTime is the part of Options.Closing that is kept to leave the fleet. Other nodes adopt the runs of a
// node that has left at once, and those of any other node only when it counts as dead.
const leaveTime = time.Second

// drain ends the node's work, which began to end at begun. It hands back the runs that were not begun and
// lets attempts in flight finish until the drain time has passed. Then it cuts off the rest: those that
// were sent stay unrecorded, because only the node that adopts them can say that their outcome is unknown,
// and those that still wait for the database's permission to begin are handed back, too. It calls
// stopHeartbeats before the node leaves.
func (e *Engine) drain(ctx context.Context, begun time.Time, stopHeartbeats func()) {
	id, waiting := e.fleet.id(), e.pool.TakeNotAttempted()
	failpoint.Hit(failpoint.InDrain)
	asking, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var handingBack sync.WaitGroup
	handingBack.Go(func() { // attempts in flight get their time, however long this takes
		e.handBack(asking, waiting)
		_, err := e.store.SetNodeState(asking, id, dispatcher.NodeDraining, input.Change{Actor: "system"})
		e.logIf(ctx, "announce drain", err)
	})
	cutOff, notBegun := e.pool.Drain(time.Until(begun.Add(e.opts.Drain)))
	left := min(e.opts.Closing, time.Until(begun.Add(e.opts.Drain+e.opts.Closing)))
	leaving, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	patience := left - min(leaveTime, left/2)
	defer time.AfterFunc(patience, giveUp).Stop()
	handingBack.Go(func() { e.handBack(asking, notBegun) }) // storing outcomes must not wait for it
	recorded := e.recorder.drain(patience)
	handingBack.Go(func() { e.slots.releaseLast(asking) })
	handingBack.Go(func() { e.disableGone(asking) })
	handingBack.Go(func() { e.endBroadcasts(asking) })
	handingBack.Wait()
	stopHeartbeats()
	e.logIf(ctx, "leave the fleet", e.store.Deregister(leaving, id))
	e.log.InfoContext(ctx, "drained", "node", id.String(),
		"handed_back", len(waiting)+len(notBegun), "cut_off", cutOff, "recorded", recorded)
}

// handBack queues runs again that were not begun.
func (e *Engine) handBack(ctx context.Context, runs []run.HeldRun) {
	if len(runs) > 0 {
		e.logIf(ctx, "hand back runs", e.store.Release(ctx, runs))
	}
}

// lifeKey is the key of the context that ends with the node, for those that end with claiming.
type lifeKey struct{}

// withLife returns ctx, which ends when claiming does, with the context that ends when the node does.
func withLife(ctx, life context.Context) context.Context {
	return context.WithValue(ctx, lifeKey{}, life)
}

// withoutCancel is for statements that win runs, or that give back locks. A shutdown waits for their
// responses, within its bounds: a statement that is cut off may still be committed after the node has
// looked at what it won, and then its runs are lost with the node.
func withoutCancel(ctx context.Context) context.Context {
	life, ok := ctx.Value(lifeKey{}).(context.Context)
	if !ok { // a test calls steps by hand
		return context.WithoutCancel(ctx)
	}
	return lasting{life, context.WithoutCancel(ctx)}
}

// lasting is the values of one context until the end of another.
type lasting struct {
	context.Context                 //nolint:containedctx // this is a context
	values          context.Context //nolint:containedctx // the same
}

// Value returns a value.
func (l lasting) Value(key any) any { return l.values.Value(key) }

// AfterFunc lets package context watch the end without a goroutine.
func (l lasting) AfterFunc(do func()) (stop func() bool) { return context.AfterFunc(l.Context, do) }
