package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Reached returns the time of the last heartbeat that reached the database, by the clock of this machine; zero: none
// has yet. well is false if the latest one did not.
func (e *Engine) Reached() (at time.Time, well bool) { return e.fleet.Reached(e.opts.Heartbeat) }

// register joins the fleet under a new id, in the state that the operator wants.
func (e *Engine) register(ctx context.Context, state dispatcher.NodeState) error {
	id, sent := run.NodeID(loop.Random()), time.Now()
	node := dispatcher.Node{
		ID: id, Name: e.opts.Name, Version: e.opts.Version, State: state, Apps: e.opts.Apps, Labels: e.opts.Labels,
		APIAddresses: e.opts.APIAddresses, Reach: e.opts.Reach,
		NodeHeartbeat: dispatcher.NodeHeartbeat{HeartbeatInterval: input.Duration(e.opts.Heartbeat)},
	}
	if err := e.store.Register(ctx, node, time.Time{}); err != nil {
		return err
	}
	e.fleet.Joined(id, state, sent)
	e.wakeHeartbeat.Notify() // to learn of the other nodes
	e.log.InfoContext(ctx, "node registered", "node", id.String(), "name", e.opts.Name)
	return nil
}

// heartbeatLoop sends heartbeats. It logs once that the database is lost, and once that it is reached again.
func (e *Engine) heartbeatLoop(ctx context.Context) {
	e.every(ctx, "heartbeat", pace{interval: e.opts.Heartbeat, wake: e.wakeHeartbeat}, func(ctx context.Context, _ time.Time) error {
		err := e.heartbeatOnce(ctx)
		if ctx.Err() == nil && err != nil {
			if reached, first := e.fleet.HeartbeatFailed(err); first {
				e.log.ErrorContext(ctx, "database lost", "node", e.fleet.ID().String(), "at", reached, "err", err)
			}
		}
		return err
	})
}

// holds reports whether this incarnation of the node holds a run and may act on it.
func (e *Engine) holds(run plan.Held) bool { return e.fleet.Holds(run.Node) }

// heartbeatOnce renews the lease and reads which nodes are live. A node that was marked dead
// registers again: its old runs belong to others now.
func (e *Engine) heartbeatOnce(ctx context.Context) error {
	if e.clock.SampleNow() {
		if err := e.clock.Sample(ctx); err != nil {
			return err
		}
	}
	if offset := e.clock.Offset(); offset.Abs() > warnSkew {
		e.log.WarnContext(ctx, "clock differs from the database's; fires follow the database's",
			"node", e.fleet.ID().String(), "offset", offset.String())
	}
	failpoint.Hit(failpoint.InHeartbeat)
	sent := time.Now()
	heartbeat, err := e.store.Heartbeat(ctx, e.fleet.ID(), e.report(), time.Time{})
	if errors.Is(err, dispatcher.ErrNodeDead) {
		e.log.WarnContext(ctx, "node was marked dead and registers again", "node", e.fleet.ID().String())
		return e.register(ctx, e.fleet.Wanted())
	}
	if err != nil {
		return err
	}
	e.clock.Replied(sent, heartbeat.At)
	if e.opts.OnAPIs != nil && !slices.Equal(e.apis, heartbeat.APIs) {
		e.apis = heartbeat.APIs
		e.opts.OnAPIs(heartbeat.APIs)
	}
	rolledBack := e.fleet.AwaitsRollbackChoice()
	activated, moved := e.fleet.Heartbeat(heartbeat, sent)
	if rolledBack != heartbeat.RolledBack {
		// After a rollback of the database, or its end, a revision may mean something else.
		e.plan.Forget()
		e.plan.Floors.Reset()
		e.claims.InDoubt()
	}
	if activated {
		e.plan.Floors.Reset() // it may have missed notifications of changes
	}
	e.recordOutage(ctx, heartbeat.At)
	if activated || moved {
		e.wakePoll.Notify()
	}
	if activated {
		e.wakeAdopt.Notify()
	}
	return nil
}

// recordOutage records the outage of the database that a heartbeat has ended, if there was one. The log alone has an
// outage that was too short for the node to count as silent.
func (e *Engine) recordOutage(ctx context.Context, to time.Time) {
	from := e.fleet.EndOutage()
	if from.IsZero() || !to.After(from) {
		return
	}
	e.log.WarnContext(ctx, "database reached again", "node", e.fleet.ID().String(), "lost_at", from, "after",
		to.Sub(from).Round(time.Second).String())
	before := dispatcher.Node{NodeHeartbeat: dispatcher.NodeHeartbeat{HeartbeatAt: from, HeartbeatInterval: input.Duration(e.opts.Heartbeat)}}
	if before.SilentAt(to) == 0 {
		return
	}
	if err := e.store.RecordOutage(ctx, dispatcher.Outage{Node: e.fleet.ID(), From: from, To: to}); err != nil {
		e.log.WarnContext(ctx, "outage of the database is not recorded", "node", e.fleet.ID().String(), "since", from, "err", err)
	}
}

// report returns the node's report about itself for a heartbeat.
func (e *Engine) report() dispatcher.NodeReport {
	fires, lag, waits := e.metrics.load.read()
	if oldest, ok := e.plan.Timeline.Oldest(); ok {
		lag = max(lag, -e.clock.Until(oldest))
	}
	report := dispatcher.NodeReport{
		InFlight: e.pool.Held(), Fires: fires, Lag: input.Duration(lag.Round(time.Millisecond)),
		Saturated:   waits && lag > dispatcher.LateLag,
		ClockOffset: input.Duration(e.clock.Offset().Round(time.Millisecond)),
		LongSince:   e.long.since(e.clock.Now()),
	}
	if e.opts.CertificateEnd != nil {
		if end := e.opts.CertificateEnd(); !end.IsZero() {
			report.CertificateEndsAt = &end
		}
	}
	return report
}

const (
	// warnSkew is the offset beyond which a node warns about its clock.
	warnSkew = time.Second
	// mostSkew is the offset beyond which a node is not ready: its logs would mislead.
	mostSkew = 30 * time.Second
)

// A shutdown has two parts. In the drain, attempts in flight finish, for Options.Drain at most. Then the node closes:
// it hands back the runs that were not begun, stores the last outcomes and leaves the fleet, in Options.Closing at
// most. Platforms kill a process that takes longer than configured, so both bounds hold even if the database does not
// respond: at the end of the second, every statement that still waits is given up.

// leaveTime is the part of Options.Closing that is reserved for leaving the fleet. Other nodes adopt the runs of a node
// that has left at once, and those of any other node only when it counts as dead.
const leaveTime = time.Second

// drain ends the node's work, from begun on. It hands back the runs that were not begun and lets attempts in flight
// finish until the drain time has passed. Then it cuts off the rest. Attempts that were sent stay unrecorded, because
// only the node that adopts them can record that their outcome is unknown. Runs that still wait for the database's
// permission to begin are handed back, too. It calls stopHeartbeats before the node leaves.
func (e *Engine) drain(ctx context.Context, begun time.Time, stopHeartbeats func()) {
	id, waiting := e.fleet.ID(), e.pool.TakeNotAttempted()
	failpoint.Hit(failpoint.InDrain)
	asking, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var handingBack sync.WaitGroup
	handingBack.Go(func() { // attempts in flight get their time, however long this takes
		e.handBack(asking, waiting)
		_, err := e.store.SetNodeState(asking, id, dispatcher.NodeDraining, input.Change{Actor: "system"})
		e.log.Failed(ctx, "announce drain", err)
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
	e.log.Failed(ctx, "leave the fleet", e.store.Deregister(leaving, id))
	e.log.InfoContext(ctx, "drained", "node", id.String(),
		"handed_back", len(waiting)+len(notBegun), "cut_off", cutOff, "recorded", recorded)
}

// handBack puts runs that were not begun back into the queue.
func (e *Engine) handBack(ctx context.Context, runs []run.HeldRun) {
	if len(runs) > 0 {
		e.log.Failed(ctx, "hand back runs", e.store.Release(ctx, runs))
	}
}

// A long attempt is one that may outlast the drain of its node: its job's timeout is longer. Its node asks for
// protection meanwhile, and a deployment waits until an old node has no long attempt. If they are frequent, it would
// never end, because the old node goes on to claim its share of them. So while new nodes come, old ones leave them long
// attempts: see yielding.

type longAttempts struct {
	protection Protector // nil: no protection

	mu       sync.Mutex
	inFlight int
	began    time.Time // of the spell; zero: no spell
	ended    time.Time // when the last of them ended
}

// spellPause is how long a node must have no long attempt before its spell of them is over. A deployment can stop the
// node in that time, and the node takes no new long attempts while new nodes do.
const spellPause = 2 * time.Minute

// begin asks for protection, and notes when the spell began, by the database's clock.
func (l *longAttempts) begin(now time.Time) (release func()) {
	l.since(now) // ends a spell that is over
	release = l.protection.Hold()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight++; l.began.IsZero() {
		l.began = now
	}
	return release
}

func (l *longAttempts) end(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.ended = now
}

// since returns when the current spell of long attempts began; nil: no spell.
func (l *longAttempts) since(now time.Time) *time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight == 0 && now.Sub(l.ended) >= spellPause {
		l.began = time.Time{}
	}
	if l.began.IsZero() {
		return nil
	}
	began := l.began
	return &began
}

// protect asks for the protection of the node during a long attempt. It does not wait for it: a fire is never late
// because of its platform. It is a step of an attempt.
func (e *Engine) protect(_ context.Context, a *attempt) result {
	if e.long.protection == nil || a.call.Target.Timeout() <= e.opts.Drain {
		return proceed
	}
	release := e.long.begin(e.clock.Now())
	a.release = func() {
		e.long.end(e.clock.Now())
		release()
	}
	return proceed
}
