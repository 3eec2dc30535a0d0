package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// pool executes claimed runs with a bounded number of workers behind a bounded queue. The
// engine claims only what the pool has room for, so submit never blocks and nothing is
// ever rejected.
type pool struct {
	// hold waits until a run may begin; false means that it may not, or that stop came first.
	hold func(ctx context.Context, run heldRun, stop <-chan struct{}) bool
	// fire makes the attempt.
	fire     func(ctx context.Context, run heldRun)
	workers  int
	capacity int           // runs held at once: queued, waiting and in flight
	freed    chan struct{} // there is room again
	queue    chan heldRun
	cutOff   context.CancelCauseFunc
	stopped  chan struct{}
	done     sync.WaitGroup

	mu       sync.Mutex
	busy     int // runs held
	queued   int // runs that no worker has yet
	waiting  int // runs that a worker has, not begun
	settled  *sync.Cond
	stopping bool
	running  map[dispatcher.RunKey]context.CancelFunc
	owned    map[dispatcher.RunKey]bool // submitted and neither recorded nor given up
	unsent   []dispatcher.HeldRun       // not begun when the pool was stopped
}

// heldRun is a run and the incarnation of this node that holds it.
type heldRun struct {
	dispatcher.HeldRun
	node dispatcher.NodeID
}

// errCutOff is the cause of attempts that end because the drain time has passed.
var errCutOff = errors.New("the node shut down")

func newPool(workers, queue int) *pool {
	p := &pool{
		workers: workers, capacity: workers + queue,
		freed: make(chan struct{}, 1), queue: make(chan heldRun, workers+queue),
		stopped: make(chan struct{}), running: map[dispatcher.RunKey]context.CancelFunc{},
		owned: map[dispatcher.RunKey]bool{},
	}
	p.settled = sync.NewCond(&p.mu)
	return p
}

// start begins the workers; ctx must outlive stop and wait.
func (p *pool) start(ctx context.Context) {
	ctx, p.cutOff = context.WithCancelCause(ctx)
	for range p.workers {
		p.done.Go(func() {
			for run := range p.queue {
				p.execute(ctx, run)
			}
		})
	}
}

func (p *pool) execute(ctx context.Context, run heldRun) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	p.running[run.RunKey] = cancel
	p.queued--
	p.waiting++
	p.mu.Unlock()

	begin := p.hold(ctx, run, p.stopped)

	p.mu.Lock()
	p.waiting--
	if !begin {
		delete(p.owned, run.RunKey)
	}
	if !begin && p.stopping {
		p.unsent = append(p.unsent, run.HeldRun)
	}
	p.settled.Broadcast()
	p.mu.Unlock()

	if begin {
		p.fire(ctx, run)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, run.RunKey)
	p.busy--
	if p.busy == 0 || p.capacity-p.busy >= p.lowWater() {
		wake(p.freed)
	}
}

// lowWater is how much room must come together before it is offered, so that under load
// claims come in batches and not one by one.
func (p *pool) lowWater() int { return p.capacity / 8 }

// room returns how many runs the pool takes now, at most limit; 0 while it is too little to
// be worth a claim.
func (p *pool) room(limit int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.capacity - p.busy
	if p.stopping || free < p.lowWater() {
		return 0
	}
	return min(free, limit)
}

// held returns how many runs the pool has.
func (p *pool) held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy
}

// submit queues runs for which room was asked. Two callers (claims and the handler) may
// each have been told of the same room, so the queue may be overdrawn: the caller then waits.
func (p *pool) submit(node dispatcher.NodeID, runs []dispatcher.HeldRun) {
	p.mu.Lock()
	if p.stopping {
		p.unsent = append(p.unsent, runs...)
		p.mu.Unlock()
		return
	}
	p.busy += len(runs)
	p.queued += len(runs)
	for _, run := range runs {
		p.owned[run.RunKey] = true
	}
	p.mu.Unlock()
	for _, run := range runs {
		p.queue <- heldRun{HeldRun: run, node: node}
	}
}

// owns tells whether a run is here: queued, in flight, or on its way to be recorded.
func (p *pool) owns(run dispatcher.RunKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owned[run]
}

// recorded lets go of runs whose outcome is stored.
func (p *pool) recorded(records []dispatcher.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, record := range records {
		delete(p.owned, record.RunKey)
	}
}

// cancel cuts off the attempt of a run, if it is here.
func (p *pool) cancel(run dispatcher.RunKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel, ok := p.running[run]; ok {
		cancel()
	}
}

// stop begins no more runs and returns those that it had and did not begin. Nobody may
// submit at the same time.
func (p *pool) stop() []dispatcher.HeldRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping = true
	close(p.stopped)
	close(p.queue)
	for run := range p.queue {
		p.unsent = append(p.unsent, run.HeldRun)
		p.busy--
		p.queued--
	}
	for p.queued > 0 || p.waiting > 0 {
		p.settled.Wait()
	}
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
		cut = p.held()
	}
	p.cutOff(errCutOff)
	<-finished
	return cut
}
