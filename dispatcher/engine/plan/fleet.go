package plan

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Fleet is the knowledge of a node about itself and the other nodes.
type Fleet struct {
	deadAfter, drain time.Duration
	// Margin is how far the clocks of the database's servers differ at most; see Lease.
	Margin     time.Duration
	keepShares time.Duration // how long a node keeps its old share in addition to the new one
	countAfter time.Duration // least time between two heartbeats that count as on time

	mu            sync.RWMutex
	node          run.NodeID
	state         dispatcher.NodeState
	rolledBack    bool                 // the database lost commits, and no operator has resolved it
	operatorState dispatcher.NodeState // the state that an operator set, apart from that
	roster        *roster
	former        []formerRoster // those that were current a moment ago
	shared        int            // counts changes of the shares that follow from roster and former
	leaseFrom     reading        // when the heartbeat was sent that gives the lease
	onTime        int            // heartbeats in a row
	counted       reading        // when the latest of those was sent, or the row began
	lastHeartbeat reading
	outage        outage
	heartbeatAt   time.Time // of the latest that reached the database, by its clock
	live, silent  int       // active nodes at that time, and how many of them were silent
	// held reports whether the runs of this registration are still the node's. It is made once, because each attempt
	// needs it.
	held func() bool
}

// outage is what a node knows of a time in which it cannot reach the database.
type outage struct {
	why  error     // the latest heartbeat did not reach it; nil: it did
	from time.Time // when the latest before those that did not was sent, by the database's clock; zero: all did
}

// formerRoster is a recent roster. The node still fires its share in it, because other nodes may not know their new
// shares yet.
type formerRoster struct {
	*roster
	until time.Time // local
}

// NewFleet returns a Fleet that knows nothing yet.
func NewFleet(deadAfter, drain, heartbeat time.Duration) *Fleet {
	return &Fleet{
		deadAfter: deadAfter, drain: drain, keepShares: 2 * heartbeat, countAfter: min(heartbeat*9/10, deadAfter/24),
		roster: newRoster(nil, drain),
	}
}

// reading is the time on the two clocks of a machine at one moment. The monotonic clock stands still while the machine
// is suspended, and the wall clock may be set. So the time that has passed is the longer of the two.
type reading struct{ monotonic, wall time.Time }

// clocksAt returns the time on both clocks at a local time.
func clocksAt(now time.Time) reading { return reading{now, now.Round(0)} }

// since returns how much time has passed since an earlier reading.
func (r reading) since(earlier reading) time.Duration {
	return max(r.monotonic.Sub(earlier.monotonic), r.wall.Sub(earlier.wall))
}

// ID returns the id of the node, 0 before it is registered.
func (f *Fleet) ID() run.NodeID {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.node
}

// Joined notes a registration that was sent at the local instant sent.
func (f *Fleet) Joined(id run.NodeID, state dispatcher.NodeState, sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.node, f.state, f.operatorState, f.rolledBack = id, state, state, false
	f.roster, f.former = newRoster(nil, f.drain), nil
	f.shared++
	f.onTime, f.lastHeartbeat, f.heartbeatAt, f.outage.why = 0, clocksAt(sent), time.Time{}, nil
	f.leaseFrom, f.counted = f.lastHeartbeat, f.lastHeartbeat
	f.held = func() bool { return f.Holds(id) }
}

// Holds reports whether the runs that were claimed as node id are still this node's.
func (f *Fleet) Holds(id run.NodeID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.node == id && f.holdsLease(time.Now())
}

// Holding returns Holds for one id.
func (f *Fleet) Holding(id run.NodeID) func() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.node != id {
		return func() bool { return false } // a registration that is over does not come back
	}
	return f.held
}

// Lease returns how long a request gives a lease, from when it was sent: a second, or for short leases a quarter, less
// than the time after which other nodes may consider it ended. One server stamps a heartbeat, and another may judge its
// age by a clock that is ahead, so the margin is subtracted, too. A node that judges adds the margin; either is enough,
// and both together hold while only some nodes know of the margin.
func (f *Fleet) Lease() time.Duration {
	return f.deadAfter - min(time.Second, f.deadAfter/4) - f.Margin
}

// Heartbeat notes a heartbeat that was sent at the local instant sent and succeeded. activated means that it made the
// node active, and moved that the shares of the nodes moved. The lease counts from before the request, because the
// response may have been slow.
func (f *Fleet) Heartbeat(b dispatcher.HeartbeatReply, sent time.Time) (activated, moved bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := clocksAt(sent)
	activated = b.State == dispatcher.NodeActive && (f.state != b.State || at.since(f.leaseFrom) >= f.Lease())
	moved = f.found(newRoster(b.Live, f.drain), sent)
	f.state, f.rolledBack, f.operatorState = b.State, b.RolledBack, b.OperatorState
	f.live, f.silent = len(b.Live), 0
	for _, node := range b.Live {
		if node.SilentAt(b.At) > 0 {
			f.silent++
		}
	}
	f.leaseFrom = at
	// A heartbeat counts as on time only if the one before was recent: after an outage or a pause of this node, every
	// other node's heartbeat looks old. A leap of the database's clock has the same effect. Heartbeats that
	// notifications cause, soon after one that counted, add no information. A fraction of the dead-after time alone
	// would be too long a bound: no heartbeat would count if that time is long.
	passed := at.since(f.lastHeartbeat)
	leapt := !f.heartbeatAt.IsZero() && (b.At.Sub(f.heartbeatAt)-passed).Abs() > f.deadAfter/4+f.Margin
	switch {
	case passed >= f.deadAfter/2 || leapt:
		f.onTime, f.counted = 0, at
	case at.since(f.counted) >= f.countAfter:
		f.onTime, f.counted = f.onTime+1, at
	}
	f.lastHeartbeat, f.heartbeatAt, f.outage.why = at, b.At, nil
	return activated, moved
}

// found notes the live nodes, and reports whether the shares moved. The nodes do not learn of a change at once, so each
// keeps its old share for two heartbeats: meanwhile a trigger may belong to two nodes, but never to none. f.mu is held.
func (f *Fleet) found(next *roster, now time.Time) (moved bool) {
	kept := len(f.former)
	f.former = slices.DeleteFunc(f.former, func(old formerRoster) bool { return !now.Before(old.until) })
	if moved = !next.same(f.roster); moved {
		if len(f.roster.live) > 0 {
			f.former = append(f.former, formerRoster{f.roster, now.Add(f.keepShares)})
		}
		f.roster = next
	}
	if moved || len(f.former) != kept {
		f.shared++
	}
	return moved
}

// MayMarkDead reports whether this node may declare others dead: it has sent enough heartbeats on time, the latest of
// them recently. heartbeat is when that one was sent.
func (f *Fleet) MayMarkDead() (heartbeat time.Time, may bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.heartbeatAt, f.onTime >= 2 && clocksAt(time.Now()).since(f.lastHeartbeat) < f.deadAfter/2
}

// Leased reports whether the node may act on its runs.
func (f *Fleet) Leased() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.holdsLease(time.Now())
}

// holdsLease reports whether the lease is still valid by both of the machine's clocks. f.mu is held.
func (f *Fleet) holdsLease(now time.Time) bool { return clocksAt(now).since(f.leaseFrom) < f.Lease() }

// clockInterval is how often a wait also checks the wall clock: timers run by the monotonic clock, which is behind
// after a suspension.
const clockInterval = time.Second

// WhenLeaseEnds calls end when a lease ends, by either of the machine's clocks. The lease was won by a request sent at
// the local instant sent. stop prevents the call.
func (f *Fleet) WhenLeaseEnds(sent time.Time, end func()) (stop func()) {
	return whenPassed(clocksAt(sent), f.Lease(), func() reading { return clocksAt(time.Now()) }, end)
}

// whenPassed calls end when d has passed since a reading, by the clock now. stop prevents the call.
func whenPassed(since reading, d time.Duration, now func() reading, end func()) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		switch left := d - now().since(since); {
		case stopped:
		case left <= 0:
			end()
		default:
			timer.Reset(min(left, clockInterval))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(0, look)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// HeartbeatFailed notes why a heartbeat did not reach the database. It returns when the latest one did, by its clock,
// and whether the one before did.
func (f *Fleet) HeartbeatFailed(why error) (reached time.Time, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = f.outage.why == nil
	f.outage = outage{why, cmp.Or(f.outage.from, f.heartbeatAt)}
	return f.outage.from, first
}

// EndOutage returns since when no heartbeat reached the database, by its clock, and forgets it; zero: all did.
func (f *Fleet) EndOutage() (from time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, f.outage.from = f.outage.from, time.Time{}
	return from
}

// Failure returns why the latest heartbeat did not reach the database; nil if it did.
func (f *Fleet) Failure() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.outage.why
}

// Live returns how many nodes were active at the latest heartbeat of this one, and how many of them were silent.
func (f *Fleet) Live() (live, silent int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.live, f.silent
}

// heartbeatPatience is longer than any heartbeat that succeeds.
const heartbeatPatience = 10 * time.Second

// Reachable reports whether the latest heartbeat reached the database, and one did so within an interval and a
// patience: a heartbeat that hangs has no result.
func (f *Fleet) Reachable(interval time.Duration) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.outage.why == nil && clocksAt(time.Now()).since(f.lastHeartbeat) < interval+heartbeatPatience
}

// Reached returns the time of the last heartbeat that reached the database, by the clock of this machine; zero: none
// has yet. well is false if the latest one, due in each interval, did not.
func (f *Fleet) Reached(interval time.Duration) (at time.Time, well bool) {
	well = f.Reachable(interval)
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.lastHeartbeat.wall, well
}

// claims reports whether the node claims fires, or would if its lease had not run out because the
// database is unreachable.
func (f *Fleet) claims() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state == dispatcher.NodeActive
}

// Active reports whether the node may claim.
func (f *Fleet) Active() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state == dispatcher.NodeActive && f.holdsLease(time.Now())
}

// AwaitsRollbackChoice reports whether all nodes wait for an operator to resolve a rollback.
func (f *Fleet) AwaitsRollbackChoice() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.rolledBack
}

// Wanted is the state that an operator last set: active or paused.
func (f *Fleet) Wanted() dispatcher.NodeState {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.operatorState == dispatcher.NodePaused {
		return dispatcher.NodePaused
	}
	return dispatcher.NodeActive
}

// Prefers reports whether this node is the first to fire a trigger.
func (f *Fleet) Prefers(trigger dispatcher.DueTrigger) bool { return f.rank(trigger) == 0 }

// rank returns how many live nodes come before this one to fire a trigger. A node that does not know the others yet
// counts itself as the only one.
func (f *Fleet) rank(trigger dispatcher.DueTrigger) int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.rankIn(f.roster, trigger)
}

func (f *Fleet) rankIn(r *roster, trigger dispatcher.DueTrigger) int {
	if len(r.live) == 0 {
		return 0
	}
	// Those that may not fire it come last, all with the same rank.
	o := r.of(r.classOf(trigger))
	if i, ok := slices.BinarySearch(o.first, f.node); ok {
		return distance(partOf(trigger.ID, len(o.first)), i, len(o.first))
	}
	if i, ok := slices.BinarySearch(o.then, f.node); ok {
		return len(o.first) + distance(partOf(trigger.ID, len(o.then)), i, len(o.then))
	}
	return len(o.first) + len(o.then)
}

// fires reports whether a trigger is in the share of this node, or was a moment ago.
func (f *Fleet) fires(trigger dispatcher.DueTrigger) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.rankIn(f.roster, trigger) == 0 || slices.ContainsFunc(f.former, func(old formerRoster) bool {
		return f.rankIn(old.roster, trigger) == 0
	})
}

// Shares returns the triggers of apps that fires selects, and perhaps some more. version changes with them.
func (f *Fleet) Shares(apps []string, required []input.Labels) (all []Share, version int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all = f.sharesIn(f.roster, apps, required, 0, 0)
	for _, old := range f.former {
		for _, one := range f.sharesIn(old.roster, apps, required, 0, 0) {
			all = withShare(all, one)
		}
	}
	return all, f.shared
}

// neighbours returns the triggers, apart from the node's own, for which at most most nodes come before this one.
func (f *Fleet) neighbours(apps []string, required []input.Labels, most int) (all []Share, version int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.sharesIn(f.roster, apps, required, 1, most), f.shared
}

func (f *Fleet) sharesIn(r *roster, apps []string, required []input.Labels, least, most int) []Share {
	i, ok := r.find(f.node)
	switch {
	case ok:
		node := &r.live[i]
		var all []Share
		for _, apps := range r.appGroups(node) {
			for _, labels := range r.labelGroups(node, apps.id, required) {
				one := class{app: apps.id, labels: labels.example}
				ranges := rangesOf(r.of(one), node.ID, least, most)
				if len(r.yielding) > 0 {
					one.long = true
					ranges = append(ranges, rangesOf(r.of(one), node.ID, least, most)...)
				}
				for _, ids := range merged(ranges) {
					all = append(all, Share{apps: apps.names, labels: labels.sets, idRange: ids})
				}
			}
		}
		return all
	case len(r.live) == 0:
		return everything(apps)
	}
	return nil // the node is paused
}

// Alone reports whether no other node is live.
func (f *Fleet) Alone() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.roster.live) <= 1
}

// differInLabels reports whether the live nodes have different labels.
func (f *Fleet) differInLabels() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.ContainsFunc(f.roster.live, func(n dispatcher.Node) bool { return !maps.Equal(n.Labels, f.roster.live[0].Labels) })
}

// Yields reports whether this node leaves long attempts to newer nodes.
func (f *Fleet) Yields() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.roster.yielding[f.node]
}

// Log is the log of a node.
type Log struct {
	*slog.Logger
	Fleet *Fleet
}

// Failed logs the error of a step; nil is no error. A step that a shutdown cut off has not failed. While the database is
// lost, which the heartbeat has logged, the errors of steps say nothing more.
func (l Log) Failed(ctx context.Context, step string, err error) {
	cutOff := ctx.Err() != nil && errors.Is(err, context.Canceled)
	if err != nil && !cutOff {
		level := slog.LevelError
		if l.Fleet.Failure() != nil {
			level = slog.LevelDebug
		}
		l.Log(ctx, level, "step failed", "step", step, "node", l.Fleet.ID().String(), "err", err)
	}
}

// LeasePause is how often a node without a lease checks for a new one.
const LeasePause = 200 * time.Millisecond
