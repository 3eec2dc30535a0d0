package engine

import (
	"context"
	"time"
)

// worker makes one attempt after the other.
type worker struct {
	runs chan *heldRun // one at most: what it is to do next
	run  *heldRun      // what it does, or did last
	late *time.Timer   // fires when its attempt has become slow
}

const (
	// growAfter is how long runs wait for a worker before there are more of them.
	growAfter = 2 * time.Millisecond
	// idleAfter is how long a worker beyond the least waits for a run before it leaves.
	idleAfter = 10 * time.Second
)

// dispatch gives queued runs to workers, as many as may begin now. p.mu is held.
func (p *pool) dispatch() {
	for p.queue.len() > 0 && !p.stopping {
		if len(p.idle) == 0 && p.workers >= p.allowed {
			p.growSoon()
			return
		}
		next := p.queue.take(1, p.executing.admit)
		if len(next) == 0 {
			return // anyone who ends makes room
		}
		p.left(next...)
		run := next[0]
		p.running[keyOf(run.HeldRun)] = run
		if n := len(p.idle); n > 0 {
			// The one that worked last: its stack is warm, and the others get to leave.
			w := p.idle[n-1]
			p.idle = p.idle[:n-1]
			w.runs <- run
			continue
		}
		p.workers++
		p.spawn(run)
	}
	p.growing = false
}

// growSoon allows more workers once runs have waited for one: half as many again. p.mu is held.
func (p *pool) growSoon() {
	if p.growing || p.allowed >= p.most {
		return
	}
	p.growing = true
	time.AfterFunc(growAfter, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.growing || p.stopping {
			return // they have got one
		}
		p.growing = false
		p.allowed = min(p.allowed+p.allowed/2+1, p.most)
		p.dispatch()
	})
}

// work executes a run and those that come after it, until none has come for long.
func (p *pool) work(ctx context.Context, run *heldRun) {
	w := &worker{runs: make(chan *heldRun, 1)}
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for run != nil {
		p.execute(ctx, w, run)
		p.mu.Lock()
		if p.stopping {
			p.workers--
			p.mu.Unlock()
			return
		}
		p.idle = append(p.idle, w)
		p.dispatch()
		p.mu.Unlock()
		run = p.await(w, idle)
	}
}

// await returns the next run of a worker, nil when it is to leave. One that was needed when its
// time had passed waits without end: there are more workers than the least again only after all
// that were idle have had a run.
func (p *pool) await(w *worker, idle *time.Timer) *heldRun {
	idle.Reset(idleAfter)
	for {
		select {
		case run := <-w.runs:
			return run
		case <-p.stopped:
		case <-idle.C:
		}
		p.mu.Lock()
		at := indexOf(p.idle, w)
		switch {
		case at < 0: // a run was given meanwhile
			p.mu.Unlock()
			return <-w.runs
		case p.stopping || p.workers > p.least:
			p.idle = append(p.idle[:at], p.idle[at+1:]...)
			p.workers--
			p.allowed = max(p.workers, p.least)
			p.mu.Unlock()
			return nil
		}
		p.mu.Unlock()
	}
}

func indexOf(idle []*worker, w *worker) int {
	for i := range idle {
		if idle[i] == w {
			return i
		}
	}
	return -1
}

// execute makes one attempt, and gives its places back.
func (p *pool) execute(ctx context.Context, w *worker, run *heldRun) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	run.cancel = cancel
	attempt := *run // the run itself may move to the slow share meanwhile
	p.waiting++
	p.mu.Unlock()

	may := p.hold(ctx, attempt, p.stopped)
	p.mu.Lock()
	p.waiting--
	p.changed.Broadcast()
	if !may {
		delete(p.owned, keyOf(run.HeldRun))
		if p.stopping {
			p.unsent = append(p.unsent, run.HeldRun)
		}
	}
	p.mu.Unlock()
	if may {
		w.begin(p, run)
		p.fire(ctx, attempt)
		w.late.Stop()
	}
	p.end(run)
}

// begin arms the timer that moves a slow attempt to the slow share.
func (w *worker) begin(p *pool, run *heldRun) {
	p.mu.Lock()
	w.run = run
	p.mu.Unlock()
	if w.late == nil {
		w.late = time.AfterFunc(slowAfter, func() { p.slowDown(w) })
		return
	}
	w.late.Reset(slowAfter)
}

// slowDown notes that the attempt of a worker has become slow. If the slow share has room, it
// moves there, so that others can go on in its place.
func (p *pool) slowDown(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	run := w.run
	if run == nil || p.running[keyOf(run.HeldRun)] != run || run.slowed {
		return // it ended as the timer fired
	}
	run.slowed = true
	p.slow.began(run.JobID)
	to := run.lane
	to.slow = true
	if run.lane.slow || !run.lane.mayBeSlow() || !p.executing.admit(to) {
		return
	}
	p.executing.release(run.lane)
	p.move(run, to)
	p.allowed = min(p.allowed+1, p.most)
	p.dispatch()
}

// end gives back the places of a run that is over.
func (p *pool) end(run *heldRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if run.slowed {
		p.slow.ended(run.JobID)
	}
	delete(p.running, keyOf(run.HeldRun))
	p.executing.release(run.lane)
	if p.claimed.release(run.lane) || p.claimed.total() == 0 {
		wake(p.freed)
	}
}
