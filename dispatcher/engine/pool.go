package engine

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// pool holds claimed runs until they are due, and executes them: at once while there are
// workers, in fair order when there are not. Who claims takes a place for each run first, so
// what the pool holds is bounded, submit never blocks and nothing is ever rejected.
//
// Limits keep one app, host or slow job from taking all of it, twice: of what is claimed, and
// of what is executed.
type pool struct {
	// hold waits until the node may begin a run; false means that it may not, or that stop
	// came first.
	hold func(ctx context.Context, run heldRun, stop <-chan struct{}) bool
	// fire makes the attempt.
	fire func(ctx context.Context, run heldRun)
	// until returns how long it is until an instant by the database's clock.
	until func(time.Time) time.Duration
	slow  *slowJobs

	least, most int            // workers
	freed       chan struct{}  // there is room again
	spawn       func(*heldRun) // starts a worker with its first run
	cutOff      context.CancelCauseFunc
	stopped     chan struct{}
	done        sync.WaitGroup

	mu        sync.Mutex
	claimed   shares  // places of runs that are claimed, or about to be
	executing shares  // places of runs that are being executed
	promised  promise // places of the fast share that awaitRoom gave out
	pending   runHeap
	alarm     *time.Timer // of the head of pending
	queue     *fairQueue[*heldRun]
	inLine    map[int64]*inLine // by trigger, those of which runs are in the queue
	workers   int
	idle      []*worker
	allowed   int  // how many workers there may be for now
	growing   bool // runs wait for allowed to grow
	waiting   int  // runs that a worker has, not begun
	changed   *sync.Cond
	stopping  bool
	running   map[attemptKey]*heldRun
	owned     map[attemptKey]bool  // submitted and neither recorded nor given up
	unsent    []dispatcher.HeldRun // given up because the pool stops
}

// heldRun is a run and the incarnation of this node that holds it.
type heldRun struct {
	dispatcher.HeldRun
	node   dispatcher.NodeID
	due    time.Time // when it may begin, by the database's clock
	lane   lane
	weight int // its app's
	// definition is what its job was when it was claimed here; nil: it was not.
	definition *definition
	// delayed tells that its end arms a fixed delay, or, of a run that was not claimed here, that
	// it may.
	delayed bool
	// slowed tells that its attempt has taken so long that it moved to the slow share.
	slowed bool
	missed *dispatcher.MissedRange // what a catch-up run stands for, if it is known
	// schedule is that by which its instant was claimed or settled; nil: not by this node.
	schedule *schedule.Schedule
	cancel   context.CancelFunc // while a worker has it
}

// attemptKey tells attempts of a run apart: one that was cancelled may still be in flight
// when the next begins.
type attemptKey struct {
	dispatcher.RunKey
	token   dispatcher.Token
	attempt int
}

func keyOf(run dispatcher.HeldRun) attemptKey {
	return attemptKey{run.RunKey, run.Token, run.Attempt}
}

// errCutOff is the cause of attempts that end because the drain time has passed.
var errCutOff = errors.New("the node shut down")

// poolSize says how much a pool may do at once.
type poolSize struct {
	least, most     int // workers for the fast share
	queue           int // runs claimed beyond those that are executed
	perApp, perHost int // runs executed at once
}

// slowShare is how many slow attempts there may be for each worker. They only wait.
const slowShare = 2

func newPool(size poolSize) *pool {
	// What holds of the workers holds in proportion of what is claimed, and of the slow share.
	limitsOf := func(total int, inBatches bool) *limits {
		return newLimits(total, max(total*size.perApp/size.most, 1), max(total*size.perHost/size.most, 1), inBatches)
	}
	slow := slowShare * size.most
	p := &pool{
		least: size.least, allowed: size.least, most: size.most + slow,
		claimed:   shares{limitsOf(size.most+size.queue, true), limitsOf(slow+size.queue/4, true)},
		executing: shares{limitsOf(size.most, false), limitsOf(slow, false)},
		slow:      newSlowJobs(), queue: newFairQueue[*heldRun](), inLine: map[int64]*inLine{},
		until: time.Until, freed: make(chan struct{}, 1), stopped: make(chan struct{}),
		running: map[attemptKey]*heldRun{}, owned: map[attemptKey]bool{},
	}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// start makes the pool ready; ctx must outlive stop and wait.
func (p *pool) start(ctx context.Context) {
	ctx, p.cutOff = context.WithCancelCause(ctx)
	p.spawn = func(run *heldRun) { p.done.Go(func() { p.work(ctx, run) }) }
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alarm = time.AfterFunc(time.Hour, p.wakePending)
	p.schedulePending()
}

// admit takes a place for a fire that is about to be claimed, if there is one in its lane.
func (p *pool) admit(in lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.stopping && p.claimed.admit(in)
}

// release gives back places of fires that were not won.
func (p *pool) release(lanes ...lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range lanes {
		if p.claimed.release(in) {
			wake(p.freed)
		}
	}
}

// promise is how many places are promised: any, and of the part for catching up.
type promise struct{ any, late int }

// reserve promises places to anyone who does not know the lanes yet, at most limit, and returns
// how many; place redeems the promise. It is 0 while there is too little room to be worth it.
func (p *pool) reserve(limit int, late bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	fast := p.claimed.fast
	if p.stopping || fast.total.closed || late && fast.late.closed {
		return 0
	}
	n := min(limit, fast.total.most-fast.total.n-p.promised.any-p.promised.late)
	if late {
		n = min(n, fast.late.most-fast.late.n-p.promised.late)
	}
	switch {
	case n <= 0:
		return 0
	case late:
		p.promised.late += n
	default:
		p.promised.any += n
	}
	return n
}

// place takes places for runs that were won on a promise of so many.
func (p *pool) place(runs []*heldRun, promised promise) {
	p.mu.Lock()
	p.promised.any -= promised.any
	p.promised.late -= promised.late
	for _, run := range runs {
		p.claimed.force(run.lane)
	}
	p.mu.Unlock()
	p.submit(runs)
}

// submit takes over runs that have their places.
func (p *pool) submit(runs []*heldRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, run := range runs {
		p.owned[keyOf(run.HeldRun)] = true
		heap.Push(&p.pending, run)
	}
	p.schedulePending()
}

// wakePending is schedulePending for the timer.
func (p *pool) wakePending() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schedulePending()
}

// schedulePending queues what is due and sets the timer to what is next. p.mu is held.
func (p *pool) schedulePending() {
	if p.alarm == nil {
		return // start does it
	}
	for len(p.pending) > 0 && !p.stopping {
		if wait := p.until(p.pending[0].due); wait > 0 {
			p.alarm.Reset(wait)
			break
		}
		run := heap.Pop(&p.pending).(*heldRun)
		p.enqueue(run)
	}
	p.dispatch()
}

// held returns how many runs the pool has.
func (p *pool) held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claimed.total()
}

// heldSlow returns how many of them are in the slow share.
func (p *pool) heldSlow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claimed.slow.total.n
}

// busy tells whether there are attempts in flight besides one that has just ended.
func (p *pool) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.running)+p.queue.len() > 1
}

// size returns how many workers there are.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers
}

// owns tells whether a run is here: queued, in flight, or on its way to be recorded.
func (p *pool) owns(run dispatcher.HeldRun) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owned[keyOf(run)]
}

// recorded lets go of runs whose outcome is stored.
func (p *pool) recorded(records []dispatcher.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, record := range records {
		delete(p.owned, attemptKey{record.RunKey, record.Token, record.Attempt})
	}
}

// cancel cuts off the attempts of a run that are here, and drops those that wait.
func (p *pool) cancel(run dispatcher.RunKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, one := range p.running {
		if key.RunKey == run && one.cancel != nil {
			one.cancel()
		}
	}
	match := func(one *heldRun) bool { return one.RunKey == run }
	queued := p.queue.remove(match)
	p.left(queued...)
	for _, one := range append(queued, p.pending.remove(match)...) {
		p.forget(one)
	}
}

// forget lets go of a run that was not begun. p.mu is held.
func (p *pool) forget(run *heldRun) {
	delete(p.owned, keyOf(run.HeldRun))
	if p.claimed.release(run.lane) {
		wake(p.freed)
	}
}

// halt begins no more runs and has no more places, from now on. What is submitted later is for
// stop to return.
func (p *pool) halt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return
	}
	p.stopping = true
	close(p.stopped)
	p.alarm.Stop()
}

// stop halts and returns the runs that were submitted and not begun. Nobody may submit afterwards.
func (p *pool) stop() []dispatcher.HeldRun {
	p.halt()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.waiting > 0 {
		p.changed.Wait()
	}
	all := func(*heldRun) bool { return true }
	queued := p.queue.remove(all)
	p.left(queued...)
	for _, run := range append(queued, p.pending.remove(all)...) {
		p.unsent = append(p.unsent, run.HeldRun)
		p.forget(run)
	}
	return p.takeUnsent()
}

// takeUnsent returns what was given up since it was last asked. p.mu is held.
func (p *pool) takeUnsent() []dispatcher.HeldRun {
	unsent := p.unsent
	p.unsent = nil
	return unsent
}

// giveUp notes that an attempt was cut off before anything was sent.
func (p *pool) giveUp(run dispatcher.HeldRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.owned, keyOf(run))
	p.unsent = append(p.unsent, run)
}

// wait waits for the runs in flight, at most so long, then cuts off the rest, and returns
// how many it cut off, and those of the rest of which nothing had been sent.
func (p *pool) wait(atMost time.Duration) (cut int, unsent []dispatcher.HeldRun) {
	finished := make(chan struct{})
	go func() {
		p.done.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(atMost):
		p.mu.Lock()
		cut = len(p.running)
		p.mu.Unlock()
	}
	p.cutOff(errCutOff)
	<-finished
	p.mu.Lock()
	defer p.mu.Unlock()
	unsent = p.takeUnsent()
	return cut - len(unsent), unsent
}

// runHeap is a heap by when runs are due.
type runHeap []*heldRun

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h runHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)        { *h = append(*h, x.(*heldRun)) }

func (h *runHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// remove takes out what matches.
func (h *runHeap) remove(match func(*heldRun) bool) []*heldRun {
	var removed []*heldRun
	*h = slices.DeleteFunc(*h, func(run *heldRun) bool {
		if match(run) {
			removed = append(removed, run)
			return true
		}
		return false
	})
	heap.Init(h)
	return removed
}
