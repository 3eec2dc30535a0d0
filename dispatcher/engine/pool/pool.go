package pool

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Options tunes a Pool. The zero value works.
type Options struct {
	// Workers is how many attempts are in flight at most; default 1024.
	Workers int
	// MinWorkers is how many workers an idle pool keeps; default 16.
	MinWorkers int
	// AppWorkers is how many attempts are in flight for one app while the others make none; default three quarters of
	// Workers.
	AppWorkers int
	// HostWorkers is how many of them go to one host; default half of Workers.
	HostWorkers int
	// Queue is how many claimed runs may wait for a worker; default 2048.
	Queue int
}

func (o Options) withDefaults() Options {
	o.Workers = cmp.Or(o.Workers, 1024)
	o.MinWorkers = cmp.Or(o.MinWorkers, min(16, o.Workers))
	o.AppWorkers = cmp.Or(o.AppWorkers, max(o.Workers*3/4, 1))
	o.HostWorkers = cmp.Or(o.HostWorkers, max(o.Workers/2, 1))
	o.Queue = cmp.Or(o.Queue, 2048)
	return o
}

// Run is a run that this node holds. T is the caller's data about it.
type Run[T any] struct {
	run.HeldRun
	Node   run.NodeID // the incarnation of this node that holds it
	Due    time.Time  // when it may begin, by the database's clock
	Queue  QueueKey
	Weight int // of its app
	Detail T

	share  *share             // of its job
	cancel context.CancelFunc // once a worker has it
	cut    bool               // cancelled before
}

// AttemptKey identifies an attempt of a run. A cancelled attempt may still be in flight when the next one begins. It holds
// numbers only, so that maps by it are quick to look up and cost the garbage collector nothing.
type AttemptKey struct {
	trigger, at int64 // milliseconds
	kind        int   // as run.Key.Code
	number      int
	token       run.Token
}

// Attempt returns the key of an attempt of a run under a token.
func Attempt(run run.Key, token run.Token, number int) AttemptKey {
	return AttemptKey{run.TriggerID, run.ScheduledAt.UnixMilli(), run.Code(), number, token}
}

// Of reports whether the attempt is one of a run under a token, with any number.
func (k AttemptKey) Of(run run.Key, token run.Token) bool {
	return k == Attempt(run, token, k.number)
}

// KeyOf returns the key of the attempt that a run is held for.
func KeyOf(run run.HeldRun) AttemptKey { return Attempt(run.Key, run.Token, run.Attempt) }

// RecordKey returns the key of the attempt that a record is about.
func RecordKey(record dispatcher.Record) AttemptKey {
	return Attempt(record.Key, record.Token, record.Attempt)
}

// Work is the work of a pool on a run.
type Work[T any] struct {
	// WaitUntilDue waits until the node may begin a run. It returns false if the node may not, or if stop comes first.
	WaitUntilDue func(ctx context.Context, run Run[T], stop <-chan struct{}) bool
	// Attempt makes the attempt.
	Attempt func(ctx context.Context, run Run[T])
	// Until returns the time left until t by the database's clock.
	Until func(t time.Time) time.Duration
}

// Pool executes runs. It is safe for concurrent use.
type Pool[T any] struct {
	work    Work[T]
	freed   loop.Signal
	onFreed func() // see OnFreed

	mu      sync.Mutex
	shares  *shares
	pending pending[T] // runs that are not due yet
	queue   *FairQueue[*Run[T]]
	late    map[int64]int // by trigger, its runs in queue that catch up
	workers workers[T]
	running map[*Run[T]]bool
	owned   map[AttemptKey]bool // submitted, and neither recorded nor handed back
	closing closing
}

// New returns a pool that does work. Call Start to begin.
func New[T any](options Options, work Work[T]) *Pool[T] {
	o := options.withDefaults()
	p := &Pool[T]{
		work: work, freed: loop.NewSignal(), onFreed: func() {},
		shares: newShares(o), queue: NewFairQueue[*Run[T]](), late: map[int64]int{},
		workers: workers[T]{least: o.MinWorkers, allowed: o.MinWorkers, most: o.Workers},
		running: map[*Run[T]]bool{}, owned: map[AttemptKey]bool{},
		closing: closing{stop: make(chan struct{})},
	}
	p.closing.decided = sync.NewCond(&p.mu)
	return p
}

// Start begins to execute runs. ctx must outlive Drain.
func (p *Pool[T]) Start(ctx context.Context) {
	ctx, p.closing.cutOff = context.WithCancelCause(ctx)
	p.workers.spawn = func(run *Run[T]) { p.closing.workers.Go(func() { p.workLoop(ctx, run) }) }
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending.timer = time.AfterFunc(time.Hour, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.queueDue()
	})
	p.queueDue()
}

// Freed receives when a pool that was full has places again.
func (p *Pool[T]) Freed() <-chan struct{} { return p.freed }

// OnFreed sets the function that a pool calls when it had no place for a run and has places again. It must not wait.
// Call it before Start.
func (p *Pool[T]) OnFreed(do func()) { p.onFreed = do }

// Admit takes a place for a run that is about to be claimed or adopted, if its queue has one. Submit uses it, or Release gives it back.
func (p *Pool[T]) Admit(in QueueKey) Admission {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.closed {
		return PoolFull
	}
	return p.shares.admit(in, claimed)
}

// Release gives back the places of runs that were not won.
func (p *Pool[T]) Release(queues ...QueueKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range queues {
		p.releaseClaimed(p.shares.of(in), in.Late)
	}
}

// releaseClaimed gives back the place of a claimed run. p.mu is held.
func (p *Pool[T]) releaseClaimed(job *share, late bool) {
	if p.shares.release(job, late, claimed) || p.shares.all.taken[claimed] == 0 {
		p.freed.Notify()
		p.onFreed()
	}
}

// Submit takes over runs that have their places.
func (p *Pool[T]) Submit(runs []*Run[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, run := range runs {
		run.share = p.shares.of(run.Queue)
		p.owned[KeyOf(run.HeldRun)] = true
		heap.Push(&p.pending, run)
	}
	p.queueDue()
}

// Held returns how many places are taken: by the runs of the pool, and by those that are about to be claimed.
func (p *Pool[T]) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shares.all.taken[claimed]
}

// Load returns the part of the allowed attempts that is in flight, from 0 to 1, and how many runs are due and wait for a
// worker.
func (p *Pool[T]) Load() (use float64, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.shares.all.taken[attempted]) / p.shares.most[attempted], p.queue.Len()
}

// Busy reports whether attempts are in flight besides one that has just ended.
func (p *Pool[T]) Busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.running)+p.queue.Len() > 1
}

// Workers returns how many workers there are.
func (p *Pool[T]) Workers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers.count
}

// Owns reports whether a run is here: waiting, in flight, or not recorded yet.
func (p *Pool[T]) Owns(run run.HeldRun) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owned[KeyOf(run)]
}

// OwnsAny reports whether any attempt of a run under a token is here. It searches all of them.
func (p *Pool[T]) OwnsAny(run run.Key, token run.Token) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.owned {
		if key.Of(run, token) {
			return true
		}
	}
	return false
}

// Disown removes attempts: their outcomes are stored, or another node has their runs.
func (p *Pool[T]) Disown(attempts ...AttemptKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range attempts {
		delete(p.owned, key)
	}
}

// Cancel cuts off an attempt that is in flight here, or drops it while it waits. Another attempt of its run goes on: a
// cancellation may arrive late. Number 0 stands for the only attempt under the token. A run that left its claim is
// cancelled under the token that it has since.
func (p *Pool[T]) Cancel(attempt AttemptKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := func(one *Run[T]) bool {
		return one.TriggerID == attempt.trigger && (attempt.number == 0 || attempt.number == one.Attempt) &&
			(attempt.Of(one.Key, one.Token) || attempt.Of(one.Key, one.Token.Divided(one.Key)))
	}
	for one := range p.running {
		if !is(one) {
			continue
		}
		if one.cut = true; one.cancel != nil {
			one.cancel()
		}
	}
	for _, one := range p.takeWaiting(is) {
		p.drop(one)
	}
}

// takeWaiting removes and returns the runs that match and that no worker has. p.mu is held.
func (p *Pool[T]) takeWaiting(match func(*Run[T]) bool) []*Run[T] {
	queued := p.queue.Remove(match)
	p.dequeued(queued)
	return append(queued, p.pending.remove(match)...)
}

// drop removes a run that was not begun. p.mu is held.
func (p *Pool[T]) drop(run *Run[T]) {
	delete(p.owned, KeyOf(run.HeldRun))
	p.releaseClaimed(run.share, run.Queue.Late)
}

// ordered reports whether a run catches up in the order of its trigger. Runs of a backfill have an order of their own.
func ordered[T any](r *Run[T]) bool { return r.Queue.Late && r.Kind != run.KindBackfill }

// enqueue queues a run that is due. A run on time goes before those that catch up, but not before those of
// its own trigger, so it takes these along. p.mu is held.
func (p *Pool[T]) enqueue(run *Run[T]) {
	switch {
	case ordered(run):
		p.late[run.TriggerID]++
	case run.Queue.Late:
	case p.late[run.TriggerID] > 0:
		behind := p.queue.Remove(func(one *Run[T]) bool { return one.TriggerID == run.TriggerID && ordered(one) })
		p.dequeued(behind)
		for _, one := range behind {
			one.Queue.Late = false
			p.shares.late.taken[claimed]--
			p.queue.Push(one, one.Queue, one.Weight)
		}
	}
	p.queue.Push(run, run.Queue, run.Weight)
}

// dequeued notes that runs have left the queue. p.mu is held.
func (p *Pool[T]) dequeued(runs []*Run[T]) {
	for _, run := range runs {
		if !ordered(run) {
			continue
		}
		if p.late[run.TriggerID]--; p.late[run.TriggerID] == 0 {
			delete(p.late, run.TriggerID)
		}
	}
}
