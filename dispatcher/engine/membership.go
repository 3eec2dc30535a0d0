package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// fleet is what a node knows of itself and of the other nodes.
type fleet struct {
	deadAfter, drain time.Duration
	// margin is how far the clocks of the database's servers differ at most; see leaseFrom.
	margin time.Duration

	mu            sync.RWMutex
	node          dispatcher.NodeID
	state         dispatcher.NodeState
	rolledBack    bool                 // the database lost commits, and no operator has resolved it
	operatorState dispatcher.NodeState // the state that an operator set, apart from that
	live          []dispatcher.Node
	yielding      map[dispatcher.NodeID]bool // those of live that leave long attempts to newer nodes
	leaseUntil    time.Time                  // local, monotonic
	onTime        int                        // heartbeats in a row
	lastHeartbeat time.Time                  // local
	failing       bool                       // the latest heartbeat did not reach the database
	heartbeatAt   time.Time                  // the same by the database's clock
}

func newFleet(deadAfter, drain time.Duration) *fleet {
	return &fleet{deadAfter: deadAfter, drain: drain}
}

func (f *fleet) id() dispatcher.NodeID {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.node
}

// joined notes a registration that was sent at the local instant sent.
func (f *fleet) joined(id dispatcher.NodeID, state dispatcher.NodeState, sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.node, f.state, f.operatorState, f.rolledBack, f.live = id, state, state, false, nil
	f.yielding = nil
	f.onTime, f.lastHeartbeat, f.heartbeatAt, f.failing = 0, sent, time.Time{}, false
	f.leaseUntil = f.leaseFrom(sent)
}

// leaseFrom returns when a lease ends that was won by a request sent at sent: a second, or for short
// leases a quarter, before other nodes may consider it ended. One server stamps a heartbeat, and another may judge its
// age by a clock that is ahead, so the margin is taken off, too. A node that judges adds it; either is enough, and
// both together hold while only some nodes know of the margin.
func (f *fleet) leaseFrom(sent time.Time) time.Time {
	return sent.Add(f.deadAfter - min(time.Second, f.deadAfter/4) - f.margin)
}

// heartbeat notes a heartbeat that was sent at the local instant sent and succeeded, and reports
// whether it made the node active. The lease counts from before the request, because the response
// may have been slow.
func (f *fleet) heartbeat(b dispatcher.HeartbeatReply, sent time.Time) (activated bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	activated = b.State == dispatcher.NodeActive && (f.state != b.State || !sent.Before(f.leaseUntil))
	f.state, f.rolledBack, f.live = b.State, b.RolledBack, b.Live
	f.operatorState, f.yielding = b.OperatorState, yielding(b.Live)
	f.leaseUntil = f.leaseFrom(sent)
	// A heartbeat counts as on time only if the one before was recent: after an outage or a pause
	// of this node, every other node's heartbeat looks old. A leap of the database's clock has the
	// same effect.
	passed := sent.Sub(f.lastHeartbeat)
	leapt := !f.heartbeatAt.IsZero() && (b.At.Sub(f.heartbeatAt)-passed).Abs() > f.deadAfter/4+f.margin
	if passed < f.deadAfter/2 && !leapt {
		f.onTime++
	} else {
		f.onTime = 0
	}
	f.lastHeartbeat, f.heartbeatAt, f.failing = sent, b.At, false
	return activated
}

// mayMarkDead reports whether this node has sent enough heartbeats on time, the latest of them just
// now, to declare others dead, and when that heartbeat was.
func (f *fleet) mayMarkDead() (heartbeat time.Time, may bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.heartbeatAt, f.onTime >= 2 && time.Since(f.lastHeartbeat) < f.deadAfter/2
}

// leased reports whether the node may act on its runs.
func (f *fleet) leased() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return time.Now().Before(f.leaseUntil)
}

// heartbeatFailed notes that a heartbeat did not reach the database.
func (f *fleet) heartbeatFailed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing = true
}

// heartbeatPatience is more than a heartbeat that succeeds takes.
const heartbeatPatience = 10 * time.Second

// reachable reports whether the latest heartbeat reached the database, and one did so within an
// interval and a patience: a heartbeat that hangs has no result.
func (f *fleet) reachable(interval time.Duration) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return !f.failing && time.Since(f.lastHeartbeat) < interval+heartbeatPatience
}

// claims reports whether the node claims fires, or would if its lease had not run out because the
// database is unreachable.
func (f *fleet) claims() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state == dispatcher.NodeActive
}

// active reports whether the node may claim.
func (f *fleet) active() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state == dispatcher.NodeActive && time.Now().Before(f.leaseUntil)
}

// awaitsRollbackChoice reports whether all nodes wait for an operator to resolve a rollback.
func (f *fleet) awaitsRollbackChoice() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.rolledBack
}

// wanted is the state that an operator last set: active or paused.
func (f *fleet) wanted() dispatcher.NodeState {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.operatorState == dispatcher.NodePaused {
		return dispatcher.NodePaused
	}
	return dispatcher.NodeActive
}

// prefers reports whether this node is the preferred one to fire a trigger.
func (f *fleet) prefers(trigger dispatcher.DueTrigger) bool { return f.rank(trigger) == 0 }

// rank returns how many live nodes are preferred over this one to fire a trigger: those that may and
// have a higher hash of node and trigger. When nodes come or go, only their share moves. For long
// attempts, nodes that yield come after those that don't; see yielding.
func (f *fleet) rank(trigger dispatcher.DueTrigger) int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	long, rank := trigger.Timeout > f.drain, 0
	place := func(node dispatcher.NodeID) (yields bool, hash uint64) {
		return long && f.yielding[node], mix(uint64(trigger.ID), uint64(node))
	}
	yields, own := place(f.node)
	for i := range f.live {
		other := &f.live[i]
		otherYields, hash := place(other.ID)
		before := hash > own
		if otherYields != yields {
			before = yields
		}
		if other.ID != f.node && before && other.Serves(trigger.AppID, trigger.NodeLabels) {
			rank++
		}
	}
	return rank
}

// alone reports whether no other node is live.
func (f *fleet) alone() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.live) <= 1
}

// mix is the finaliser of SplitMix64 over both numbers.
func mix(a, b uint64) uint64 {
	z := a ^ (b * 0x9e3779b97f4a7c15)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// register joins the fleet under a new id, in the state that the operator wants.
func (e *Engine) register(ctx context.Context, state dispatcher.NodeState) error {
	id, sent := dispatcher.NodeID(random63()), time.Now()
	node := dispatcher.Node{ID: id, Name: e.opts.Name, Version: e.opts.Version, State: state, Apps: e.opts.Apps, Labels: e.opts.Labels}
	if err := e.store.Register(ctx, node, time.Time{}); err != nil {
		return err
	}
	e.fleet.joined(id, state, sent)
	e.log.InfoContext(ctx, "node registered", "node", id.String(), "name", e.opts.Name)
	return nil
}

func (e *Engine) heartbeatLoop(ctx context.Context) {
	e.every(ctx, "heartbeat", e.opts.Heartbeat, nil, func(ctx context.Context, _ time.Time) error {
		err := e.heartbeatOnce(ctx)
		if err != nil {
			e.fleet.heartbeatFailed()
		}
		return err
	})
}

// holds reports whether this incarnation of the node holds a run and may act on it.
func (e *Engine) holds(run heldRun) bool { return run.Node == e.fleet.id() && e.fleet.leased() }

// heartbeatOnce renews the lease and reads which nodes are live. A node that was marked dead
// registers again: its old runs belong to others now.
func (e *Engine) heartbeatOnce(ctx context.Context) error {
	if err := e.clock.sample(ctx); err != nil {
		return err
	}
	e.warnOfSkew(ctx)
	failpoint.Hit(failpoint.InHeartbeat)
	sent := time.Now()
	heartbeat, err := e.store.Heartbeat(ctx, e.fleet.id(), e.report(), time.Time{})
	if errors.Is(err, dispatcher.ErrNodeDead) {
		e.log.WarnContext(ctx, "node was marked dead and registers again", "node", e.fleet.id().String())
		return e.register(ctx, e.fleet.wanted())
	}
	if err != nil {
		return err
	}
	if e.fleet.heartbeat(heartbeat, sent) {
		wake(e.wakePoll)
		wake(e.wakeAdopt)
	}
	return nil
}

// report is what the node says of itself in a heartbeat.
func (e *Engine) report() dispatcher.NodeReport {
	fires, lag := e.metrics.load.read()
	return dispatcher.NodeReport{
		InFlight: e.pool.Held(), Fires: fires, Lag: dispatcher.Duration(lag.Round(time.Millisecond)),
		ClockOffset: dispatcher.Duration(e.clock.offset().Round(time.Millisecond)),
		LongSince:   e.long.since(e.clock.now()),
	}
}
