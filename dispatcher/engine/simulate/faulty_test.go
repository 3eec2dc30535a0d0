package simulate

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// errInjected is the error of a call that fails by an injected fault.
var errInjected = errors.New("injected")

// faulty is a node's connection to the store. Calls fail before or after they are executed, arrive late, respond late,
// or are executed after the node has stopped waiting for their response, and thus in another order. All calls may be
// delayed or refused.
type faulty struct {
	engine.Store
	name  string
	seed  uint64
	begun time.Time
	clock func() time.Time // the database's
	// rate is how many calls in a thousand have a fault.
	rate atomic.Int64
	// longest is how long a slow call takes at most.
	longest time.Duration

	mu       sync.Mutex
	injected map[fault]int
	gone     bool          // the node is dead: its later calls have no effect
	cut      bool          // the node is cut off from the store
	thawed   chan struct{} // open while the node is frozen; nil if it is not
	trap     func()        // called once the next call of trapped has been executed
	trapped  string

	// The number of calls, and of the runs that they adopted or recorded.
	calls, rows atomic.Int64
}

// fault is the way in which a call fails.
type fault string

const (
	before    fault = "before"    // fails without being executed
	after     fault = "after"     // fails, and was executed
	slow      fault = "slow"      // takes long to get to the store
	late      fault = "late"      // is executed, and responds late
	overtaken fault = "overtaken" // fails, and is executed after later calls
)

var faults = []fault{before, after, slow, late, overtaken}

func newFaulty(w *world, name string, seed uint64) *faulty {
	return &faulty{Store: w.store, name: name, seed: seed, clock: w.clock, longest: w.longest, begun: w.begun, injected: map[fault]int{}}
}

// fate is the course of one call.
type fate struct {
	fault fault         // empty: no fault
	takes time.Duration // to get to the store
	delay time.Duration // by the fault
}

// usual is how long a call without a fault takes at most.
const usual = 20 * time.Millisecond

// fateOf draws the fate of a call of a method: from the seed, the node, the method and the time, so that it does not
// depend on the order of goroutines. Hardly two calls get to the store at the same time, so their results do not depend
// on that order, either.
func (f *faulty) fateOf(method string) fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := fnv.New64a()
	_, _ = h.Write([]byte(f.name + method))                                   // a hash never fails
	r := rand.New(rand.NewPCG(f.seed^h.Sum64(), uint64(time.Since(f.begun)))) // wall clock: virtual, it is called in a bubble
	drawn := fate{takes: time.Duration(r.Int64N(int64(usual)))}
	switch {
	case f.gone || f.cut:
		drawn.fault = before
	case r.Int64N(1000) < f.rate.Load():
		drawn.fault = faults[r.IntN(len(faults))]
		drawn.delay = time.Duration(r.Int64N(int64(f.longest)))
		f.injected[drawn.fault]++
	}
	return drawn
}

// gate waits while the node is frozen.
func (f *faulty) gate() {
	f.mu.Lock()
	thawed := f.thawed
	f.mu.Unlock()
	if thawed != nil {
		<-thawed
	}
}

// freeze halts all calls and responses until thaw.
func (f *faulty) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed == nil {
		f.thawed = make(chan struct{})
	}
}

func (f *faulty) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed != nil {
		close(f.thawed)
		f.thawed = nil
	}
}

// dead reports whether a trap has killed the node.
func (f *faulty) dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone
}

func (f *faulty) set(what *bool, to bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*what = to
}

// crucial are the methods after which a crash is dangerous, the most dangerous ones more often.
var crucial = []string{
	"Claim", "Claim", "Claim", "Begin", "Begin", "Settle", "Adopt", "Acquire", "Record", "ScheduleNext", "ReleaseSlots", "Heartbeat", "Lock",
}

// trapAt calls do when the next call of a method has been executed, before the node sees its response.
func (f *faulty) trapAt(method string, do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trapped, f.trap = method, do
}

// spring calls the trap of a method, if it is set.
func (f *faulty) spring(method string) {
	f.mu.Lock()
	do := f.trap
	if f.trapped != method {
		do = nil
	}
	if do != nil {
		f.trapped, f.trap = "", nil
	}
	f.mu.Unlock()
	if do != nil {
		do()
	}
}

// call makes a call of a method with its fate.
func call[T any](ctx context.Context, f *faulty, method string, do func(context.Context) (T, error)) (T, error) {
	var none T
	f.gate()
	defer f.gate() // a frozen node does not see a response
	f.calls.Add(1)
	fate := f.fateOf(method)
	switch fate.fault {
	case overtaken:
		executing := context.WithoutCancel(ctx)
		time.AfterFunc(fate.takes+fate.delay, func() { _, _ = do(executing) }) // the node no longer waits for it
		return none, errInjected
	case slow:
		fate.takes += fate.delay
	}
	if err := wait(ctx, fate.takes); err != nil {
		return none, err
	}
	if fate.fault == before {
		return none, errInjected
	}
	response, err := do(ctx)
	f.spring(method)
	if fate.fault == late {
		if err := wait(ctx, fate.delay); err != nil {
			return none, err
		}
	}
	if fate.fault == after && err == nil {
		return none, errInjected
	}
	return response, err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// act is call for methods that return an error only.
func act(ctx context.Context, f *faulty, method string, do func(context.Context) error) error {
	_, err := call(ctx, f, method, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

// present is the simulated database's clock where the store would otherwise ask SQLite for the time.
func (f *faulty) present(now time.Time) time.Time {
	if now.IsZero() {
		return f.clock()
	}
	return now
}

func (f *faulty) Installation(ctx context.Context) (string, error) {
	return call(ctx, f, "Installation", func(ctx context.Context) (string, error) { return f.Store.Installation(ctx) })
}

func (f *faulty) Clock(ctx context.Context) (time.Time, error) {
	return call(ctx, f, "Clock", func(ctx context.Context) (time.Time, error) { return f.clock(), nil })
}

func (f *faulty) Register(ctx context.Context, node dispatcher.Node, now time.Time) error {
	return act(ctx, f, "Register", func(ctx context.Context) error { return f.Store.Register(ctx, node, f.present(now)) })
}

func (f *faulty) Heartbeat(
	ctx context.Context, id run.NodeID, report dispatcher.NodeReport, now time.Time,
) (dispatcher.HeartbeatReply, error) {
	return call(ctx, f, "Heartbeat", func(ctx context.Context) (dispatcher.HeartbeatReply, error) {
		return f.Store.Heartbeat(ctx, id, report, f.present(now))
	})
}

func (f *faulty) Deregister(ctx context.Context, id run.NodeID) error {
	return act(ctx, f, "Deregister", func(ctx context.Context) error { return f.Store.Deregister(ctx, id) })
}

func (f *faulty) MarkDead(ctx context.Context, id run.NodeID, heartbeat time.Time, after time.Duration, now time.Time) (int, error) {
	return call(ctx, f, "MarkDead", func(ctx context.Context) (int, error) {
		return f.Store.MarkDead(ctx, id, heartbeat, after, f.present(now))
	})
}

func (f *faulty) SetNodeState(
	ctx context.Context, id run.NodeID, state dispatcher.NodeState, change input.Change,
) (dispatcher.Node, error) {
	return call(ctx, f, "SetNodeState", func(ctx context.Context) (dispatcher.Node, error) {
		return f.Store.SetNodeState(ctx, id, state, change)
	})
}

func (f *faulty) Purge(ctx context.Context, id run.NodeID, now time.Time) (dispatcher.Purged, error) {
	return call(ctx, f, "Purge", func(ctx context.Context) (dispatcher.Purged, error) { return f.Store.Purge(ctx, id, f.present(now)) })
}

func (f *faulty) Lock(ctx context.Context, request dispatcher.LockRequest) ([]dispatcher.Lock, error) {
	return call(ctx, f, "Lock", func(ctx context.Context) ([]dispatcher.Lock, error) {
		request.Now = f.present(request.Now)
		return f.Store.Lock(ctx, request)
	})
}

func (f *faulty) Unlock(ctx context.Context, locks []dispatcher.Lock) error {
	return act(ctx, f, "Unlock", func(ctx context.Context) error { return f.Store.Unlock(ctx, locks) })
}

func (f *faulty) OverdueApps(ctx context.Context, apps []string, labels input.Labels, from, now time.Time) ([]string, error) {
	return call(ctx, f, "OverdueApps", func(ctx context.Context) ([]string, error) {
		return f.Store.OverdueApps(ctx, apps, labels, from, now)
	})
}

func (f *faulty) Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error) {
	return call(ctx, f, "Due", func(ctx context.Context) ([]dispatcher.DueTrigger, error) { return f.Store.Due(ctx, query) })
}

func (f *faulty) TriggersByID(ctx context.Context, ids []int64) ([]dispatcher.TriggerVersion, error) {
	return call(ctx, f, "TriggersByID", func(ctx context.Context) ([]dispatcher.TriggerVersion, error) {
		return f.Store.TriggersByID(ctx, ids)
	})
}

func (f *faulty) UnfoldClaims(ctx context.Context, node run.NodeID, olderThan time.Duration, now time.Time) (int, error) {
	return call(ctx, f, "UnfoldClaims", func(ctx context.Context) (int, error) {
		return f.Store.UnfoldClaims(ctx, node, olderThan, f.present(now))
	})
}

func (f *faulty) JobsByID(ctx context.Context, ids []int64) ([]dispatcher.JobVersion, error) {
	return call(ctx, f, "JobsByID", func(ctx context.Context) ([]dispatcher.JobVersion, error) { return f.Store.JobsByID(ctx, ids) })
}

func (f *faulty) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]run.HeldRun, error) {
	return call(ctx, f, "Claim", func(ctx context.Context) ([]run.HeldRun, error) {
		batch.Now = f.present(batch.Now)
		return f.Store.Claim(ctx, batch)
	})
}

func (f *faulty) Held(ctx context.Context, node run.NodeID, token run.Token) ([]run.HeldRun, error) {
	return call(ctx, f, "Held", func(ctx context.Context) ([]run.HeldRun, error) { return f.Store.Held(ctx, node, token) })
}

func (f *faulty) Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]run.HeldRun, error) {
	return call(ctx, f, "Settle", func(ctx context.Context) ([]run.HeldRun, error) {
		batch.Now = f.present(batch.Now)
		return f.Store.Settle(ctx, batch)
	})
}

func (f *faulty) Adoptable(ctx context.Context, query dispatcher.AdoptQuery) ([]dispatcher.Adoptable, error) {
	query.After = maps.Clone(query.After) // a call that was overtaken reads it when the node has gone on, as no real one does
	return call(ctx, f, "Adoptable", func(ctx context.Context) ([]dispatcher.Adoptable, error) {
		query.Now = f.present(query.Now)
		return f.Store.Adoptable(ctx, query)
	})
}

func (f *faulty) Adopt(ctx context.Context, query dispatcher.AdoptQuery, runs []dispatcher.Adoptable) ([]run.HeldRun, error) {
	return call(ctx, f, "Adopt", func(ctx context.Context) ([]run.HeldRun, error) {
		query.Now = f.present(query.Now)
		f.rows.Add(int64(len(runs)))
		return f.Store.Adopt(ctx, query, runs)
	})
}

func (f *faulty) Release(ctx context.Context, runs []run.HeldRun) error {
	return act(ctx, f, "Release", func(ctx context.Context) error { return f.Store.Release(ctx, runs) })
}

func (f *faulty) Begin(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error) {
	return call(ctx, f, "Begin", func(ctx context.Context) ([]run.HeldRun, error) { return f.Store.Begin(ctx, runs) })
}

func (f *faulty) FailLostRuns(ctx context.Context, now time.Time) (int, error) {
	return call(ctx, f, "FailLostRuns", func(ctx context.Context) (int, error) { return f.Store.FailLostRuns(ctx, f.present(now)) })
}

func (f *faulty) Record(ctx context.Context, records []dispatcher.Record) error {
	f.rows.Add(int64(len(records)))
	// The engine uses the slice again once this returns, and an overtaken call executes after that.
	records = slices.Clone(records)
	return act(ctx, f, "Record", func(ctx context.Context) error { return f.Store.Record(ctx, records) })
}

func (f *faulty) EndedDelays(ctx context.Context, ids []int64, limit int) ([]dispatcher.EndedDelay, error) {
	return call(ctx, f, "EndedDelays", func(ctx context.Context) ([]dispatcher.EndedDelay, error) {
		return f.Store.EndedDelays(ctx, ids, limit)
	})
}

func (f *faulty) ScheduleNext(ctx context.Context, delayed []dispatcher.DelayedFire) error {
	return act(ctx, f, "ScheduleNext", func(ctx context.Context) error { return f.Store.ScheduleNext(ctx, delayed) })
}

func (f *faulty) AppCalendars(ctx context.Context, app string) (revision int64, all []dispatcher.Calendar, err error) {
	type response struct {
		revision int64
		all      []dispatcher.Calendar
	}
	a, err := call(ctx, f, "AppCalendars", func(ctx context.Context) (a response, err error) {
		a.revision, a.all, err = f.Store.AppCalendars(ctx, app)
		return a, err
	})
	return a.revision, a.all, err
}

func (f *faulty) Quarantine(ctx context.Context, triggerID, revision int64, reason string) error {
	return act(ctx, f, "Quarantine", func(ctx context.Context) error { return f.Store.Quarantine(ctx, triggerID, revision, reason) })
}

func (f *faulty) Acquire(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error) {
	return call(ctx, f, "Acquire", func(ctx context.Context) ([]run.HeldRun, error) { return f.Store.Acquire(ctx, runs) })
}

func (f *faulty) ReleaseSlots(ctx context.Context, runs []run.HeldRun) error {
	return act(ctx, f, "ReleaseSlots", func(ctx context.Context) error { return f.Store.ReleaseSlots(ctx, runs) })
}

func (f *faulty) GrantWaiting(ctx context.Context) error {
	return act(ctx, f, "GrantWaiting", func(ctx context.Context) error { return f.Store.GrantWaiting(ctx) })
}

func (f *faulty) NextRetry(ctx context.Context, from, after time.Time) (dispatcher.RetryTimes, error) {
	return call(ctx, f, "NextRetry", func(ctx context.Context) (dispatcher.RetryTimes, error) {
		return f.Store.NextRetry(ctx, from, after)
	})
}

func (f *faulty) DueHosts(ctx context.Context, query dispatcher.HostQuery) ([]dispatcher.HostWait, error) {
	return call(ctx, f, "DueHosts", func(ctx context.Context) ([]dispatcher.HostWait, error) {
		query.Now = f.present(query.Now)
		return f.Store.DueHosts(ctx, query)
	})
}

func (f *faulty) TakeProbe(ctx context.Context, wait dispatcher.HostWait, pause time.Duration, next time.Time) (bool, error) {
	return call(ctx, f, "TakeProbe", func(ctx context.Context) (bool, error) { return f.Store.TakeProbe(ctx, wait, pause, next) })
}

func (f *faulty) HostResponded(ctx context.Context, id int64, now time.Time) error {
	return act(ctx, f, "HostResponded", func(ctx context.Context) error { return f.Store.HostResponded(ctx, id, f.present(now)) })
}

func (f *faulty) DropHostWait(ctx context.Context, id int64) (bool, error) {
	return call(ctx, f, "DropHostWait", func(ctx context.Context) (bool, error) { return f.Store.DropHostWait(ctx, id) })
}

func (f *faulty) GiveUp(ctx context.Context, now time.Time) (int, error) {
	return call(ctx, f, "GiveUp", func(ctx context.Context) (int, error) { return f.Store.GiveUp(ctx, f.present(now)) })
}

func (f *faulty) RollUp(ctx context.Context, limit int) (dispatcher.RolledUp, error) {
	return call(ctx, f, "RollUp", func(ctx context.Context) (dispatcher.RolledUp, error) { return f.Store.RollUp(ctx, limit) })
}

func (f *faulty) ZonesChanged(ctx context.Context) (bool, error) {
	return call(ctx, f, "ZonesChanged", func(ctx context.Context) (bool, error) { return f.Store.ZonesChanged(ctx) })
}

func (f *faulty) ZoneSetting(ctx context.Context) (dispatcher.ZoneSetting, error) {
	return call(ctx, f, "ZoneSetting", func(ctx context.Context) (dispatcher.ZoneSetting, error) { return f.Store.ZoneSetting(ctx) })
}

func (f *faulty) Disable(ctx context.Context, ended dispatcher.Record, reason string, now time.Time) (done bool, err error) {
	err = act(ctx, f, "Disable", func(ctx context.Context) error {
		done, err = f.Store.Disable(ctx, ended, reason, f.present(now))
		return err
	})
	return done, err
}

func (f *faulty) Rollback(ctx context.Context) (*dispatcher.Rollback, error) {
	return call(ctx, f, "Rollback", f.Store.Rollback)
}

// Listen loses some notifications, and passes some on twice.
func (f *faulty) Listen(ctx context.Context, notification func(dispatcher.Notification)) error {
	return f.Store.Listen(ctx, func(one dispatcher.Notification) {
		f.gate()
		switch fate := f.fateOf("Listen"); fate.fault {
		case before, after:
		case slow, late, overtaken:
			notification(one)
			notification(one)
		default:
			notification(one)
		}
	})
}
