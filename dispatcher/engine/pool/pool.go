package pool

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Options tunes a Pool. The zero value works.
type Options struct {
	// Workers is how many fast attempts are in flight at most; default 512. Slow attempts have
	// a share of twice as many.
	Workers int
	// MinWorkers is how many workers stay when there is nothing to do; default 16.
	MinWorkers int
	// AppWorkers is how many attempts are in flight for one app; default three quarters of Workers.
	AppWorkers int
	// HostWorkers is how many attempts are in flight to one host; default half of Workers.
	HostWorkers int
	// Queue is how many claimed runs may wait for a worker; default 2048.
	Queue int
}

func (o Options) withDefaults() Options {
	o.Workers = cmp.Or(o.Workers, 512)
	o.MinWorkers = cmp.Or(o.MinWorkers, min(16, o.Workers))
	o.AppWorkers = cmp.Or(o.AppWorkers, max(o.Workers*3/4, 1))
	o.HostWorkers = cmp.Or(o.HostWorkers, max(o.Workers/2, 1))
	o.Queue = cmp.Or(o.Queue, 2048)
	return o
}

// Run is a run that this node holds. T is what the caller attaches to it.
type Run[T any] struct {
	dispatcher.HeldRun
	Node   dispatcher.NodeID // the incarnation of this node that holds it
	Due    time.Time         // when it may begin, by the database's clock
	Queue  QueueKey
	Weight int // of its app
	Detail T

	slow   bool               // its attempt has taken longer than slowAfter
	cancel context.CancelFunc // while a worker has it
}

// AttemptKey identifies an attempt of a run. A cancelled attempt may still be in flight when the
// next one begins.
type AttemptKey struct {
	dispatcher.RunKey
	Token  dispatcher.Token
	Number int
}

// KeyOf returns the key of the attempt that a run is held for.
func KeyOf(run dispatcher.HeldRun) AttemptKey {
	return AttemptKey{run.RunKey, run.Token, run.Attempt}
}

// RecordKey returns the key of the attempt that a record is about.
func RecordKey(record dispatcher.Record) AttemptKey {
	return AttemptKey{record.RunKey, record.Token, record.Attempt}
}

// Work is what a pool does with a run.
type Work[T any] struct {
	// WaitUntilDue waits until the node may begin a run. It returns false if the node may not,
	// or if stop comes first.
	WaitUntilDue func(ctx context.Context, run Run[T], stop <-chan struct{}) bool
	// Attempt makes the attempt.
	Attempt func(ctx context.Context, run Run[T])
	// Until returns the time left until t by the database's clock.
	Until func(t time.Time) time.Duration
}

// Pool executes runs. It is safe for concurrent use.
type Pool[T any] struct {
	work  Work[T]
	slow  *slowJobs
	freed chan struct{}

	mu      sync.Mutex
	places  places
	pending pending[T] // runs that are not due yet
	queue   *FairQueue[*Run[T]]
	order   map[int64]*queuedTrigger // by trigger, those that have runs in queue
	workers workers[T]
	running map[AttemptKey]*Run[T]
	owned   map[AttemptKey]bool // submitted, and neither recorded nor handed back
	closing closing
}

// New returns a pool that does work. Call Start to begin.
func New[T any](options Options, work Work[T]) *Pool[T] {
	o := options.withDefaults()
	p := &Pool[T]{
		work: work, slow: newSlowJobs(), freed: make(chan struct{}, 1),
		places: newPlaces(o), queue: NewFairQueue[*Run[T]](), order: map[int64]*queuedTrigger{},
		workers: workers[T]{least: o.MinWorkers, allowed: o.MinWorkers, most: o.Workers + slowShare*o.Workers},
		running: map[AttemptKey]*Run[T]{}, owned: map[AttemptKey]bool{},
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

// Admit takes a place for a fire that is about to be claimed, if its queue has one.
func (p *Pool[T]) Admit(in QueueKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closing.closed && p.places.claimed.admit(in)
}

// Release gives back the places of fires that were not won.
func (p *Pool[T]) Release(queues ...QueueKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range queues {
		p.releaseClaimed(in)
	}
}

// releaseClaimed gives back the place of a claimed run. p.mu is held.
func (p *Pool[T]) releaseClaimed(in QueueKey) {
	if p.places.claimed.release(in) {
		notify(p.freed)
	}
}

// Reserve sets places aside for a caller that does not know the queues yet, limit at most. The
// caller redeems the reservation with Enqueue. It has no places while the pool is nearly full.
func (p *Pool[T]) Reserve(limit int, late bool) Reservation {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.closed {
		return Reservation{}
	}
	return p.places.reserve(limit, late)
}

// Enqueue redeems a reservation for the runs that were won on it, and submits them. It takes a
// place for every run, even beyond the limits.
func (p *Pool[T]) Enqueue(runs []*Run[T], reservation Reservation) {
	p.mu.Lock()
	p.places.redeem(reservation)
	for _, run := range runs {
		p.places.claimed.force(run.Queue)
	}
	p.mu.Unlock()
	p.Submit(runs)
}

// Submit takes over runs that have their places.
func (p *Pool[T]) Submit(runs []*Run[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, run := range runs {
		p.owned[KeyOf(run.HeldRun)] = true
		heap.Push(&p.pending, run)
	}
	p.queueDue()
}

// Held returns how many runs the pool has.
func (p *Pool[T]) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places.claimed.total()
}

// HeldSlow returns how many of them are in the slow share.
func (p *Pool[T]) HeldSlow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places.claimed.slow.total.n
}

// Use returns which part of the attempts that the pool may make at once is in flight, from 0 to 1: of
// the fast or of the slow share, whichever is used more, because neither can use the other's places.
func (p *Pool[T]) Use() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.places.attempted.fast.total.use(), p.places.attempted.slow.total.use())
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
func (p *Pool[T]) Owns(run dispatcher.HeldRun) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owned[KeyOf(run)]
}

// Disown forgets attempts: their outcomes are stored, or another node has their runs.
func (p *Pool[T]) Disown(attempts ...AttemptKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range attempts {
		delete(p.owned, key)
	}
}

// Cancel cuts off an attempt that is in flight here, or drops it while it waits. Another attempt of its run
// goes on: a cancellation may arrive late. Number 0 stands for the only attempt under the token.
func (p *Pool[T]) Cancel(attempt AttemptKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := func(key AttemptKey) bool {
		return key.RunKey == attempt.RunKey && key.Token == attempt.Token && (attempt.Number == 0 || key.Number == attempt.Number)
	}
	for key, one := range p.running {
		if is(key) && one.cancel != nil {
			one.cancel()
		}
	}
	for _, one := range p.takeWaiting(func(one *Run[T]) bool { return is(KeyOf(one.HeldRun)) }) {
		p.drop(one)
	}
}

// takeWaiting removes and returns the runs that match and are not given to a worker. p.mu is held.
func (p *Pool[T]) takeWaiting(match func(*Run[T]) bool) []*Run[T] {
	queued := p.queue.Remove(match)
	p.dequeued(queued...)
	return append(queued, p.pending.remove(match)...)
}

// drop forgets a run that was not begun. p.mu is held.
func (p *Pool[T]) drop(run *Run[T]) {
	delete(p.owned, KeyOf(run.HeldRun))
	p.releaseClaimed(run.Queue)
}

// notify sends without blocking. One pending notification is enough.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
