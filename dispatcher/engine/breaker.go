package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// gate says when a host may be called. It knows two reasons to wait: the host's circuit is open,
// because it failed too often in a row, and its rate is used up. What one node learns of a host
// the others learn by themselves. Times are local ones.
type gate struct {
	threshold int           // failures in a row that open a circuit; less than 0: none do
	interval  time.Duration // between two requests to one host; 0: no limit

	failing  atomic.Int32 // hosts in circuits: while there are none, nobody waits for mu
	mu       sync.Mutex
	circuits map[string]*circuit // of hosts whose latest request failed
	rates    map[string]time.Time
	promised map[dispatcher.RunKey]time.Time // the turns of runs that were defers until then
	swept    time.Time
}

// circuit is open while now is before until. At until one request is let through, and the others
// wait again, for twice as long; a response to any closes it.
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
	// promiseSlack is how much the node's idea of the database's clock may move while a run waits.
	promiseSlack = 100 * time.Millisecond
)

func newGate(threshold, rate int) *gate {
	g := &gate{threshold: threshold, circuits: map[string]*circuit{}, rates: map[string]time.Time{}, promised: map[dispatcher.RunKey]time.Time{}}
	if rate > 0 {
		g.interval = time.Second / time.Duration(rate)
	}
	return g
}

// admit tells how long a run has to wait for its host, and why; 0: not at all, and it takes its turn.
func (g *gate) admit(host string, run dispatcher.RunKey, now time.Time) (wait time.Duration, class dispatcher.Class, reason error) {
	if g.interval == 0 && g.failing.Load() == 0 {
		return 0, "", nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.circuits[host]; ok && c.pause > 0 {
		if wait := c.until.Sub(now); wait > 0 {
			// Not all at once: the first may find the host well again, and then the others may go on.
			wait += randomBelow(c.pause / 2)
			return wait, dispatcher.ClassCircuitOpen, fmt.Errorf("host %s failed %d times in a row and is left alone for %s", host, c.failures, wait.Round(time.Second))
		}
		c.pause = min(2*c.pause, mostPause)
		c.until = now.Add(c.pause)
	}
	if g.interval == 0 {
		return 0, "", nil
	}
	if wait = g.turn(host, run, now); wait > 0 {
		return wait, dispatcher.ClassHostRate, fmt.Errorf("this node makes %d requests per second to host %s; the turn of the run comes in %s",
			time.Second/g.interval, host, wait.Round(time.Millisecond))
	}
	return 0, "", nil
}

// turn takes the next turn at a host, and returns when it comes (the generic cell rate algorithm).
// g.mu is held.
func (g *gate) turn(host string, run dispatcher.RunKey, now time.Time) time.Duration {
	if at, ok := g.promised[run]; ok {
		delete(g.promised, run)
		if now.After(at.Add(-promiseSlack)) {
			return 0
		}
	}
	g.sweep(now)
	next := g.rates[host]
	if next.Before(now) {
		next = now
	}
	g.rates[host] = next.Add(g.interval)
	wait := next.Sub(now) - max(0, rateBurst-g.interval)
	if wait > 0 {
		g.promised[run] = now.Add(wait)
	}
	return wait
}

// sweep forgets what was promised to runs that other nodes took, and idle hosts. g.mu is held.
func (g *gate) sweep(now time.Time) {
	if now.Sub(g.swept) < time.Minute {
		return
	}
	g.swept = now
	for run, at := range g.promised {
		if now.Sub(at) > time.Minute {
			delete(g.promised, run)
		}
	}
	for host, next := range g.rates {
		if next.Before(now) {
			delete(g.rates, host)
		}
	}
}

// report notes how a request to a host ended.
func (g *gate) report(host string, o dispatcher.Outcome, now time.Time) {
	switch {
	case g.threshold < 0, o.State == dispatcher.RunCancelled,
		o.Class == dispatcher.ClassSecret, o.Class == dispatcher.ClassTemplate, o.Class == dispatcher.ClassEgressDenied:
		return // which says nothing about the host
	}
	of := o.Class.OfHost()
	if !of && g.failing.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() { g.failing.Store(int32(len(g.circuits))) }()
	if !of {
		delete(g.circuits, host)
		return
	}
	c, ok := g.circuits[host]
	if !ok {
		c = &circuit{}
		g.circuits[host] = c
	}
	if c.failures++; c.failures >= g.threshold && c.pause == 0 {
		c.pause, c.until = firstPause, now.Add(firstPause)
	}
}

// open returns how many circuits are open.
func (g *gate) open() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.circuits {
		if c.pause > 0 {
			n++
		}
	}
	return n
}
