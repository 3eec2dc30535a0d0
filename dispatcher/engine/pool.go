package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// pool executes claimed runs with a bounded number of workers behind a queue. Who claims
// reserves room first, so the queue is bounded, submit never blocks and nothing is ever
// rejected.
type pool struct {
	// hold waits until a run may begin; false means that it may not, or that stop came first.
	hold func(ctx context.Context, run heldRun, stop <-chan struct{}) bool
	// fire makes the attempt.
	fire     func(ctx context.Context, run heldRun)
	workers  int
	capacity int           // runs held at once: queued, waiting and in flight
	lowWater int           // see reserve
	freed    chan struct{} // there is room again
	cutOff   context.CancelCauseFunc
	stopped  chan struct{}
	done     sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // of queue, waiting and stopping
	queue    []heldRun
	reserved int // room promised to claims under way
	busy     int // runs held
	waiting  int // runs that a worker has, not begun
	stopping bool
	running  map[attemptKey]context.CancelFunc
	owned    map[attemptKey]bool  // submitted and neither recorded nor given up
	unsent   []dispatcher.HeldRun // given up because the pool stops
}

// heldRun is a run and the incarnation of this node that holds it.
type heldRun struct {
	dispatcher.HeldRun
	node dispatcher.NodeID
	due  time.Time // when it may begin, by the database's clock
}

// heldBy returns runs that node holds, each due at its instant.
func heldBy(node dispatcher.NodeID, runs []dispatcher.HeldRun) []heldRun {
	held := make([]heldRun, len(runs))
	for i, run := range runs {
		held[i] = heldRun{HeldRun: run, node: node, due: run.ScheduledAt}
	}
	return held
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

func newPool(workers, queue int) *pool {
	p := &pool{
		workers: workers, capacity: workers + queue, lowWater: min((workers+queue)/8, queue),
		freed: make(chan struct{}, 1), stopped: make(chan struct{}),
		running: map[attemptKey]context.CancelFunc{}, owned: map[attemptKey]bool{},
	}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// start begins the workers; ctx must outlive stop and wait.
func (p *pool) start(ctx context.Context) {
	ctx, p.cutOff = context.WithCancelCause(ctx)
	for range p.workers {
		p.done.Go(func() {
			for p.executeNext(ctx) {
			}
		})
	}
}

// executeNext waits for a run and executes it. It returns false once the pool is stopped.
func (p *pool) executeNext(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 && !p.stopping {
		p.changed.Wait()
	}
	if p.stopping {
		return false
	}
	run := p.queue[0]
	p.queue[0] = heldRun{}
	p.queue = p.queue[1:]
	key := keyOf(run.HeldRun)
	p.running[key] = cancel
	p.waiting++

	p.unlocked(func() {
		if !p.hold(ctx, run, p.stopped) {
			p.giveUp(run)
			return
		}
		p.begun()
		p.fire(ctx, run)
	})
	delete(p.running, key)
	p.busy--
	if p.busy == 0 || p.capacity-p.busy-p.reserved >= p.lowWater {
		wake(p.freed)
	}
	return true
}

// unlocked runs step without the lock.
func (p *pool) unlocked(step func()) {
	p.mu.Unlock()
	defer p.mu.Lock()
	step()
}

// begun notes that a waiting run has begun.
func (p *pool) begun() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	p.changed.Broadcast()
}

// giveUp lets go of a run that may not begin.
func (p *pool) giveUp(run heldRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	delete(p.owned, keyOf(run.HeldRun))
	if p.stopping {
		p.unsent = append(p.unsent, run.HeldRun)
	}
	p.changed.Broadcast()
}

// reserve promises room for runs that are about to be claimed, at most limit, and returns
// how many; submit redeems the promise. It is 0 while there is too little room to be worth a
// claim, so that under load claims come in batches and not one by one.
func (p *pool) reserve(limit int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.capacity - p.busy - p.reserved
	if p.stopping || free <= 0 || free < p.lowWater {
		return 0
	}
	n := min(free, limit)
	p.reserved += n
	return n
}

// submit queues runs that were claimed on a promise of room for promised ones.
func (p *pool) submit(runs []heldRun, promised int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved -= promised
	p.busy += len(runs)
	for _, run := range runs {
		p.owned[keyOf(run.HeldRun)] = true
		p.queue = append(p.queue, run)
	}
	if len(runs) < promised {
		wake(p.freed)
	}
	p.changed.Broadcast()
}

// held returns how many runs the pool has.
func (p *pool) held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy
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
	for key, cancel := range p.running {
		if key.RunKey == run {
			cancel()
		}
	}
	p.queue = slices.DeleteFunc(p.queue, func(queued heldRun) bool {
		if queued.RunKey != run {
			return false
		}
		delete(p.owned, keyOf(queued.HeldRun))
		p.busy--
		return true
	})
}

// stop begins no more runs and returns those that it had and did not begin. Nobody may
// submit afterwards.
func (p *pool) stop() []dispatcher.HeldRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping = true
	close(p.stopped)
	p.changed.Broadcast()
	for p.waiting > 0 {
		p.changed.Wait()
	}
	for _, run := range p.queue {
		p.unsent = append(p.unsent, run.HeldRun)
	}
	p.busy -= len(p.queue)
	p.queue = nil
	return p.unsent
}

// wait waits for the runs in flight, at most so long, then cuts off the rest, and returns
// how many it cut off.
func (p *pool) wait(atMost time.Duration) (cut int) {
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
	return cut
}
