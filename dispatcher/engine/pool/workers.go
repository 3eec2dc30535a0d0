package pool

import (
	"context"
	"slices"
	"time"
)

// workers is how many workers there are and may be.
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
	runs chan *Run[T] // the run to do next, one at most
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
		next := p.queue.Take(free, p.admitAttempt)
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

func (p *Pool[T]) admitAttempt(in QueueKey) Admission { return p.shares.admit(in, attempted) }

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

// workLoop executes a run and those that follow, until none has come for a while. A worker that finds its next run
// at the end of one takes it at once: under load, each run takes the lock twice.
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
		run.cancel = cancel
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

// nextRun returns the next run of a worker, or nil when the worker should leave. A worker that was
// needed when its time had passed waits without end: the pool grows beyond the least again only
// after every idle worker has had a run.
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
		case at < 0: // it was given a run meanwhile
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
