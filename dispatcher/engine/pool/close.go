package pool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// ErrCutOff is the cause of attempts that end because the time to drain has passed.
var ErrCutOff = errors.New("the node shut down")

// closing is how far a pool has come in shutting down.
type closing struct {
	closed       bool
	stop         chan struct{} // closed by Close
	cutOff       context.CancelCauseFunc
	undecided    int           // runs of workers that wait until they may begin
	decided      *sync.Cond    // undecided is lower
	notAttempted []run.HeldRun // given up because the pool closes
	workers      sync.WaitGroup
}

// Close begins no more attempts and gives no more places. TakeNotAttempted returns what is
// submitted later.
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

// Drain waits for the attempts in flight, atMost long, and cuts off the rest. It returns how many
// were cut off with a request perhaps sent, and the runs of the others.
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
