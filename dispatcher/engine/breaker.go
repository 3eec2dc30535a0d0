package engine

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// hosts decides when a host may be called. There are two reasons to wait: the circuit of the host is
// open because it failed too often in a row, or its rate is used up. Each node learns about hosts by
// itself. Times are local.
type hosts struct {
	threshold int           // failures in a row that open a circuit; less than 0: circuits never open
	interval  time.Duration // between two requests to one host; 0: no limit

	failing  atomic.Int32 // hosts in circuits: while there are none, attempts do not wait for mu
	mu       sync.Mutex
	circuits map[string]*circuit // of hosts whose latest request failed
	rates    map[string]time.Time
	reserved map[dispatcher.RunKey]time.Time // the turns of runs that were deferred until then
	swept    time.Time
}

// circuit is open until a time. Then one request is let through, and the others wait again, for twice
// as long. A response to any request closes it.
type circuit struct {
	failures int
	pause    time.Duration // 0: it was never open
	until    time.Time
}

const (
	firstPause = 5 * time.Second
	mostPause  = 2 * time.Minute
	// rateBurst is how much of a host's rate may be used at once.
	rateBurst = 100 * time.Millisecond
	// reservedSlack is how much the node's bound of the database's clock may move while a run waits.
	reservedSlack = 100 * time.Millisecond
)

func newHosts(threshold, rate int) *hosts {
	h := &hosts{
		threshold: threshold, circuits: map[string]*circuit{}, rates: map[string]time.Time{}, reserved: map[dispatcher.RunKey]time.Time{},
	}
	if rate > 0 {
		h.interval = time.Second / time.Duration(rate)
	}
	return h
}

// checkHost defers an attempt whose host may not be called now: it records that the attempt is made
// later, and does not consume it. It is a step of an attempt.
func (e *Engine) checkHost(ctx context.Context, a *attempt) result {
	now := time.Now()
	wait, class, reason := e.hosts.admit(a.run.Queue.Host, a.run.RunKey, now)
	if wait <= 0 {
		return proceed
	}
	outcome := e.inDatabaseTime(notAttempted(dispatcher.RunFailed, class, reason, now))
	next := retryFrom(a.call.Retry, a.run.HeldRun, outcome.StartedAt)
	next.At, next.NotAttempted = outcome.EndedAt.Add(wait).Truncate(time.Millisecond).Add(time.Millisecond), true
	if next.At.After(next.Until) {
		next = nil
	} else {
		e.metrics.retries.WithLabelValues(string(class)).Inc()
	}
	e.record(ctx, a.run, outcome, next)
	return finished
}

// admit returns how long a run has to wait for its host, and why; 0: it may go on, and has taken its
// turn.
func (h *hosts) admit(host string, run dispatcher.RunKey, now time.Time) (wait time.Duration, class dispatcher.Class, reason error) {
	if h.interval == 0 && h.failing.Load() == 0 {
		return 0, "", nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.circuits[host]; ok && c.pause > 0 {
		if wait := c.until.Sub(now); wait > 0 {
			// Not all at once: if the first finds the host well again, the others may go on.
			wait += randomBelow(c.pause / 2)
			return wait, dispatcher.ClassCircuitOpen,
				fmt.Errorf("host %s failed %d times in a row; its circuit is open for %s", host, c.failures, wait.Round(time.Second))
		}
		c.pause = min(2*c.pause, mostPause)
		c.until = now.Add(c.pause)
	}
	if h.interval == 0 {
		return 0, "", nil
	}
	if wait = h.turn(host, run, now); wait > 0 {
		return wait, dispatcher.ClassHostRate,
			fmt.Errorf("this node makes at most %d requests per second to host %s; the run waits %s for its turn",
				time.Second/h.interval, host, wait.Round(time.Millisecond))
	}
	return 0, "", nil
}

// turn takes the next turn at a host, and returns when it comes (the generic cell rate algorithm).
// h.mu is held.
func (h *hosts) turn(host string, run dispatcher.RunKey, now time.Time) time.Duration {
	if at, ok := h.reserved[run]; ok {
		delete(h.reserved, run)
		if now.After(at.Add(-reservedSlack)) {
			return 0
		}
	}
	h.sweep(now)
	next := later(now, h.rates[host])
	h.rates[host] = next.Add(h.interval)
	wait := next.Sub(now) - max(0, rateBurst-h.interval)
	if wait > 0 {
		h.reserved[run] = now.Add(wait)
	}
	return wait
}

// sweep forgets the turns of runs that other nodes took, and idle hosts. h.mu is held.
func (h *hosts) sweep(now time.Time) {
	if now.Sub(h.swept) < time.Minute {
		return
	}
	h.swept = now
	maps.DeleteFunc(h.reserved, func(_ dispatcher.RunKey, at time.Time) bool { return now.Sub(at) > time.Minute })
	maps.DeleteFunc(h.rates, func(_ string, next time.Time) bool { return next.Before(now) })
}

// report notes how a request to a host ended.
func (h *hosts) report(host string, o dispatcher.Outcome, now time.Time) {
	switch {
	case h.threshold < 0, o.State == dispatcher.RunCancelled,
		o.Class == dispatcher.ClassSecret, o.Class == dispatcher.ClassTemplate, o.Class == dispatcher.ClassEgressDenied:
		return // it says nothing about the host
	}
	failed := o.Class.OfHost()
	if !failed && h.failing.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.failing.Store(int32(len(h.circuits))) }()
	if !failed {
		delete(h.circuits, host)
		return
	}
	c, ok := h.circuits[host]
	if !ok {
		c = &circuit{}
		h.circuits[host] = c
	}
	if c.failures++; c.failures >= h.threshold && c.pause == 0 {
		c.pause, c.until = firstPause, now.Add(firstPause)
	}
}

// open returns how many circuits are open.
func (h *hosts) open() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.circuits {
		if c.pause > 0 {
			n++
		}
	}
	return n
}
