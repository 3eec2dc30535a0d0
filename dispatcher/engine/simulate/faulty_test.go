package simulate

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// errInjected is what a store answers that was told to fail.
var errInjected = errors.New("injected")

// faulty is a node's way to the store: its calls fail before they are executed, or after, or take
// long, and may be held up or refused altogether.
type faulty struct {
	dispatcher.Store
	name string
	seed uint64
	// rate is of how many in a thousand calls something happens.
	rate atomic.Int64
	// longest is how long a slow call takes at most.
	longest time.Duration

	mu       sync.Mutex
	calls    map[string]uint64 // by method
	injected map[string]int    // by kind
	gone     bool              // the node is dead: nothing that it still tries has an effect
	cut      bool              // the node is cut off from the store
	thawed   chan struct{}     // open while the node is frozen; nil if it is not
}

func newFaulty(s dispatcher.Store, name string, seed uint64) *faulty {
	return &faulty{Store: s, name: name, seed: seed, longest: 2 * time.Second, calls: map[string]uint64{}, injected: map[string]int{}}
}

// fate is what becomes of one call.
type fate struct {
	before, after bool
	delay         time.Duration
}

// fateOf draws the fate of the next call of a method: from the seed, the node, the method and how
// often it was called, so that it does not depend on which goroutine came first.
func (f *faulty) fateOf(method string) fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	if f.gone || f.cut {
		return fate{before: true}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(f.name + method)) // a hash never fails
	r := rand.New(rand.NewPCG(f.seed^h.Sum64(), f.calls[method]))
	if r.Int64N(1000) >= f.rate.Load() {
		return fate{}
	}
	kind := []string{"before", "after", "slow"}[r.IntN(3)]
	f.injected[kind]++
	switch kind {
	case "before":
		return fate{before: true}
	case "after":
		return fate{after: true}
	}
	return fate{delay: time.Duration(r.Int64N(int64(f.longest)))}
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

// freeze halts all calls, and what waits for their answers, until thaw.
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

func (f *faulty) set(what *bool, to bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*what = to
}

// call makes a call of a method with its fate.
func call[T any](ctx context.Context, f *faulty, method string, do func() (T, error)) (T, error) {
	var none T
	f.gate()
	defer f.gate() // an answer is not seen by who is frozen
	fate := f.fateOf(method)
	if fate.before {
		return none, errInjected
	}
	if fate.delay > 0 {
		select {
		case <-time.After(fate.delay):
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
	answer, err := do()
	if fate.after && err == nil {
		return none, errInjected
	}
	return answer, err
}

// act is call for methods that return an error only.
func act(ctx context.Context, f *faulty, method string, do func() error) error {
	_, err := call(ctx, f, method, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// present is the database's clock where the store would ask SQLite's, which is not the
// simulation's.
func present(now time.Time) time.Time {
	if now.IsZero() {
		return time.Now()
	}
	return now
}

func (f *faulty) Installation(ctx context.Context) (string, error) {
	return call(ctx, f, "Installation", func() (string, error) { return f.Store.Installation(ctx) })
}

func (f *faulty) Clock(ctx context.Context) (time.Time, error) {
	return call(ctx, f, "Clock", func() (time.Time, error) { return f.Store.Clock(ctx) })
}

func (f *faulty) Register(ctx context.Context, node dispatcher.Node, now time.Time) error {
	return act(ctx, f, "Register", func() error { return f.Store.Register(ctx, node, now) })
}

func (f *faulty) Heartbeat(ctx context.Context, id dispatcher.NodeID, report dispatcher.NodeReport, now time.Time) (dispatcher.Beat, error) {
	return call(ctx, f, "Heartbeat", func() (dispatcher.Beat, error) { return f.Store.Heartbeat(ctx, id, report, now) })
}

func (f *faulty) Resign(ctx context.Context, id dispatcher.NodeID) error {
	return act(ctx, f, "Resign", func() error { return f.Store.Resign(ctx, id) })
}

func (f *faulty) Bury(ctx context.Context, id dispatcher.NodeID, after time.Duration, now time.Time) (int, error) {
	return call(ctx, f, "Bury", func() (int, error) { return f.Store.Bury(ctx, id, after, present(now)) })
}

func (f *faulty) SetNodeState(ctx context.Context, id dispatcher.NodeID, state dispatcher.NodeState, change dispatcher.Change) (dispatcher.Node, error) {
	return call(ctx, f, "SetNodeState", func() (dispatcher.Node, error) { return f.Store.SetNodeState(ctx, id, state, change) })
}

func (f *faulty) Tidy(ctx context.Context, id dispatcher.NodeID, now time.Time) (dispatcher.Tidied, error) {
	return call(ctx, f, "Tidy", func() (dispatcher.Tidied, error) { return f.Store.Tidy(ctx, id, present(now)) })
}

func (f *faulty) Lock(ctx context.Context, request dispatcher.LockRequest) ([]dispatcher.Lock, error) {
	request.Now = present(request.Now)
	return call(ctx, f, "Lock", func() ([]dispatcher.Lock, error) { return f.Store.Lock(ctx, request) })
}

func (f *faulty) Unlock(ctx context.Context, locks []dispatcher.Lock) error {
	return act(ctx, f, "Unlock", func() error { return f.Store.Unlock(ctx, locks) })
}

func (f *faulty) OverdueApps(ctx context.Context, apps []string, labels dispatcher.Labels, now time.Time) ([]string, error) {
	return call(ctx, f, "OverdueApps", func() ([]string, error) { return f.Store.OverdueApps(ctx, apps, labels, now) })
}

func (f *faulty) Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error) {
	return call(ctx, f, "Due", func() ([]dispatcher.DueTrigger, error) { return f.Store.Due(ctx, query) })
}

func (f *faulty) JobsByID(ctx context.Context, ids []int64) ([]dispatcher.JobVersion, error) {
	return call(ctx, f, "JobsByID", func() ([]dispatcher.JobVersion, error) { return f.Store.JobsByID(ctx, ids) })
}

func (f *faulty) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]dispatcher.HeldRun, error) {
	return call(ctx, f, "Claim", func() ([]dispatcher.HeldRun, error) { return f.Store.Claim(ctx, batch) })
}

func (f *faulty) Held(ctx context.Context, node dispatcher.NodeID, token dispatcher.Token) ([]dispatcher.HeldRun, error) {
	return call(ctx, f, "Held", func() ([]dispatcher.HeldRun, error) { return f.Store.Held(ctx, node, token) })
}

func (f *faulty) Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]dispatcher.HeldRun, error) {
	return call(ctx, f, "Settle", func() ([]dispatcher.HeldRun, error) { return f.Store.Settle(ctx, batch) })
}

func (f *faulty) Adopt(ctx context.Context, query dispatcher.AdoptQuery) ([]dispatcher.HeldRun, error) {
	return call(ctx, f, "Adopt", func() ([]dispatcher.HeldRun, error) { return f.Store.Adopt(ctx, query) })
}

func (f *faulty) Release(ctx context.Context, runs []dispatcher.HeldRun) error {
	return act(ctx, f, "Release", func() error { return f.Store.Release(ctx, runs) })
}

func (f *faulty) Begin(ctx context.Context, runs []dispatcher.HeldRun) ([]dispatcher.HeldRun, error) {
	return call(ctx, f, "Begin", func() ([]dispatcher.HeldRun, error) { return f.Store.Begin(ctx, runs) })
}

func (f *faulty) Forfeit(ctx context.Context, now time.Time) (int, error) {
	return call(ctx, f, "Forfeit", func() (int, error) { return f.Store.Forfeit(ctx, now) })
}

func (f *faulty) Record(ctx context.Context, records []dispatcher.Record) error {
	return act(ctx, f, "Record", func() error { return f.Store.Record(ctx, records) })
}

func (f *faulty) EndedDelays(ctx context.Context, ids []int64, limit int) ([]dispatcher.EndedDelay, error) {
	return call(ctx, f, "EndedDelays", func() ([]dispatcher.EndedDelay, error) { return f.Store.EndedDelays(ctx, ids, limit) })
}

func (f *faulty) Rearm(ctx context.Context, rearmings []dispatcher.Rearming) error {
	return act(ctx, f, "Rearm", func() error { return f.Store.Rearm(ctx, rearmings) })
}

func (f *faulty) AppCalendars(ctx context.Context, app string) (revision int64, all []dispatcher.Calendar, err error) {
	type answer struct {
		revision int64
		all      []dispatcher.Calendar
	}
	a, err := call(ctx, f, "AppCalendars", func() (a answer, err error) {
		a.revision, a.all, err = f.Store.AppCalendars(ctx, app)
		return a, err
	})
	return a.revision, a.all, err
}

func (f *faulty) Quarantine(ctx context.Context, triggerID, revision int64, reason string) error {
	return act(ctx, f, "Quarantine", func() error { return f.Store.Quarantine(ctx, triggerID, revision, reason) })
}
