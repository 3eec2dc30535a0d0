package pool

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// workers are the workers of a pool, and how many there may be.
type workers[T any] struct {
	least, most int
	count       int
	allowed     int          // how many there may be for now
	growing     bool         // runs wait for allowed to grow
	idle        []*worker[T] // the one that worked last is last
	spawn       func(*Run[T])
}

// worker makes one attempt after the other.
type worker[T any] struct {
	runs chan *Run[T] // the next run, one at most
}

const (
	// growAfter is how long runs wait for a worker before more workers start.
	growAfter = 2 * time.Millisecond
	// idleAfter is how long a worker beyond the least waits for a run before it leaves.
	idleAfter = 10 * time.Second
)

// dispatch gives queued runs to workers, as many as may begin now. p.mu is held.
func (p *Pool[T]) dispatch() {
	w := &p.workers
	for p.queue.Len() > 0 && !p.closing.closed {
		free := len(w.idle) + max(w.allowed-w.count, 0)
		if free == 0 {
			p.growSoon()
			return
		}
		next := p.queue.Take(free, func(in QueueKey) Admission { return p.shares.admit(in, attempted) })
		p.dequeued(next)
		for _, run := range next {
			p.running[run] = true
			p.give(run)
		}
		if len(next) < free {
			break // an attempt that ends makes room for the others
		}
	}
	w.growing = false
}

// give gives a run to a worker. It prefers the one that worked last: its stack is warm, and the others can
// leave. p.mu is held.
func (p *Pool[T]) give(run *Run[T]) {
	w := &p.workers
	if n := len(w.idle); n > 0 {
		last := w.idle[n-1]
		w.idle = w.idle[:n-1]
		last.runs <- run
		return
	}
	w.count++
	w.spawn(run)
}

// growSoon allows half as many workers again once runs have waited for one. p.mu is held.
func (p *Pool[T]) growSoon() {
	w := &p.workers
	if w.growing || w.allowed >= w.most {
		return
	}
	w.growing = true
	time.AfterFunc(growAfter, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !w.growing || p.closing.closed {
			return // a worker became free
		}
		w.growing = false
		w.allowed = min(w.allowed+w.allowed/2+1, w.most)
		p.dispatch()
	})
}

// workLoop executes a run and those that follow, until none has come for a while. A worker that finds its next run at
// the end of one takes it at once: under load, each run takes the lock twice.
func (p *Pool[T]) workLoop(ctx context.Context, run *Run[T]) {
	w := &worker[T]{runs: make(chan *Run[T], 1)}
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	// The context of one attempt serves the next one, unless it was cancelled.
	attempt, cancel := context.WithCancel(ctx)
	defer func() { cancel() }()
	p.mu.Lock()
	for run != nil {
		if attempt.Err() != nil {
			attempt, cancel = context.WithCancel(ctx)
		}
		if run.cancel = cancel; run.cut {
			cancel()
		}
		p.execute(attempt, run)
		run = nil
		if p.closing.closed {
			p.workers.count--
			break
		}
		p.workers.idle = append(p.workers.idle, w)
		p.dispatch()
		select {
		case run = <-w.runs:
		default:
			p.mu.Unlock()
			run = p.nextRun(w, idle)
			p.mu.Lock()
		}
	}
	p.mu.Unlock()
}

// nextRun returns the next run of a worker, or nil when the worker should leave. A worker that was needed at the end of
// its time waits without a limit: the pool grows beyond the least again only after every idle worker has had a run.
func (p *Pool[T]) nextRun(w *worker[T], idle *time.Timer) *Run[T] {
	idle.Reset(idleAfter)
	for {
		select {
		case run := <-w.runs:
			return run
		case <-p.closing.stop:
		case <-idle.C:
		}
		p.mu.Lock()
		at := slices.Index(p.workers.idle, w)
		switch {
		case at < 0: // it got a run meanwhile
			p.mu.Unlock()
			return <-w.runs
		case p.closing.closed || p.workers.count > p.workers.least:
			p.workers.idle = append(p.workers.idle[:at], p.workers.idle[at+1:]...)
			p.workers.count--
			p.workers.allowed = max(p.workers.count, p.workers.least)
			p.mu.Unlock()
			return nil
		}
		p.mu.Unlock()
	}
}

// execute makes one attempt and gives its places back. p.mu is held, but not while it waits and attempts.
func (p *Pool[T]) execute(ctx context.Context, run *Run[T]) {
	p.closing.undecided++
	p.mu.Unlock()
	may := p.work.WaitUntilDue(ctx, *run, p.closing.stop)
	p.mu.Lock()
	p.closing.undecided--
	p.closing.decided.Broadcast()
	if may {
		p.mu.Unlock()
		p.work.Attempt(ctx, *run)
		p.mu.Lock()
	} else {
		delete(p.owned, KeyOf(run.HeldRun))
		if p.closing.closed {
			p.closing.notAttempted = append(p.closing.notAttempted, run.HeldRun)
		}
	}
	delete(p.running, run)
	p.shares.release(run.share, run.Queue.Late, attempted)
	p.releaseClaimed(run.share, run.Queue.Late)
}

// ErrCutOff is the cause of attempts that end because the time to drain has passed.
var ErrCutOff = errors.New("the node shut down")

// closing is the progress of a pool's shutdown.
type closing struct {
	closed       bool
	stop         chan struct{} // closed by Close
	cutOff       context.CancelCauseFunc
	undecided    int           // runs of workers that wait until they may begin
	decided      *sync.Cond    // undecided is lower
	notAttempted []run.HeldRun // given up because the pool closes
	workers      sync.WaitGroup
}

// Close begins no more attempts and gives no more places. TakeNotAttempted returns runs that are submitted later.
func (p *Pool[T]) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.closed {
		return
	}
	p.closing.closed = true
	close(p.closing.stop)
	p.pending.timer.Stop()
}

// TakeNotAttempted closes the pool, and removes and returns the runs that were submitted and not
// begun. Nothing may be submitted afterwards.
func (p *Pool[T]) TakeNotAttempted() []run.HeldRun {
	p.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.closing.undecided > 0 {
		p.closing.decided.Wait()
	}
	for _, run := range p.takeWaiting(func(*Run[T]) bool { return true }) {
		p.closing.notAttempted = append(p.closing.notAttempted, run.HeldRun)
		p.drop(run)
	}
	return p.closing.takeNotAttempted()
}

// takeNotAttempted returns the runs that were given up since the last call. The pool's mutex is held.
func (c *closing) takeNotAttempted() []run.HeldRun {
	runs := c.notAttempted
	c.notAttempted = nil
	return runs
}

// HandBack notes that an attempt was cut off before anything was sent; Drain returns its run.
func (p *Pool[T]) HandBack(run run.HeldRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.owned, KeyOf(run))
	p.closing.notAttempted = append(p.closing.notAttempted, run)
}

// Drain waits for the attempts in flight, atMost long, and cuts off the rest. It returns how many of these may have
// sent a request, and the runs of the others.
func (p *Pool[T]) Drain(atMost time.Duration) (cutOff int, notAttempted []run.HeldRun) {
	finished := make(chan struct{})
	go func() {
		p.closing.workers.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(atMost):
		p.mu.Lock()
		cutOff = len(p.running)
		p.mu.Unlock()
	}
	p.closing.cutOff(ErrCutOff)
	<-finished
	p.mu.Lock()
	defer p.mu.Unlock()
	notAttempted = p.closing.takeNotAttempted()
	return cutOff - len(notAttempted), notAttempted
}

// pending is the runs that are not due yet, as a heap by due time.
type pending[T any] struct {
	runs  []*Run[T]
	timer *time.Timer // fires when the first of them is due; nil before Start
}

// queueDue queues the runs that are due and sets the timer for the next. p.mu is held.
func (p *Pool[T]) queueDue() {
	if p.pending.timer == nil {
		return // Start calls it again
	}
	for p.pending.Len() > 0 && !p.closing.closed {
		if wait := p.work.Until(p.pending.runs[0].Due); wait > 0 {
			p.pending.timer.Reset(wait)
			break
		}
		p.enqueue(heap.Pop(&p.pending).(*Run[T]))
	}
	p.dispatch()
}

func (h *pending[T]) Len() int           { return len(h.runs) }
func (h *pending[T]) Less(i, j int) bool { return h.runs[i].Due.Before(h.runs[j].Due) }
func (h *pending[T]) Swap(i, j int)      { h.runs[i], h.runs[j] = h.runs[j], h.runs[i] }
func (h *pending[T]) Push(x any)         { h.runs = append(h.runs, x.(*Run[T])) }

func (h *pending[T]) Pop() any {
	last := len(h.runs) - 1
	run := h.runs[last]
	h.runs[last] = nil
	h.runs = h.runs[:last]
	return run
}

func (h *pending[T]) remove(match func(*Run[T]) bool) (removed []*Run[T]) {
	h.runs = slices.DeleteFunc(h.runs, func(run *Run[T]) bool {
		if match(run) {
			removed = append(removed, run)
			return true
		}
		return false
	})
	heap.Init(h)
	return removed
}
