package engine

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// hosts decides when a host may be called. There are two reasons to wait: the host failed too often, or its
// rate is used up. Each node learns about hosts by itself. Times are local.
//
// A host has a circuit for each app, and in it each job that failed has a memory of its own:
//   - After as many failures in a row as the threshold, of any of the app's jobs, the circuit is open. Then one
//     request a second goes to the host, as a probe, until anything succeeds.
//   - A job that fails while the circuit is open, or as often in a row as the threshold by itself, is blocked. One
//     request of it goes as a probe after a pause. Each failed probe doubles the pause.
//
// So a job that fails for reasons of its own, such as its time-out, its certificates or its path, ends up
// blocked alone: the first probe of any other job closes the circuit. The probes of a host that is down rotate
// over its jobs, because each job has its own pause.
type hosts struct {
	threshold int           // less than 0: circuits never open
	interval  time.Duration // between two requests to one host; 0: no limit

	failing  atomic.Int32 // hosts in circuits: while there are none, attempts do not wait for mu
	mu       sync.Mutex
	circuits map[hostOfApp]*circuit  // hosts at which the latest request of some job failed
	rates    map[hostOfApp]time.Time // when the next turn comes, by rated
	reserved map[run.Key]time.Time   // the turns of deferred runs, by their time
	probes   map[run.Key]time.Time   // runs that may go as probes, and when they were adopted
	swept    time.Time
}

type hostOfApp struct{ app, host string }

// rated returns the key under which a rate counts requests: a host's are of all apps, a group's of its own app.
func (h hostOfApp) rated() hostOfApp {
	if !target.IsGroupHost(h.host) {
		h.app = ""
	}
	return h
}

// circuit is the state of a failing host on this node.
type circuit struct {
	failures int // in a row, of any job
	jobs     map[int64]*jobFailures
	probeAt  time.Time // while the circuit is open: when the next request may go
	used     time.Time
	class    run.Class // of the latest failure; empty: another node had the failure
}

// jobFailures is the state of a job on this node after its latest request failed.
type jobFailures struct {
	failures int           // in a row
	pause    time.Duration // 0: it is not blocked
	until    time.Time     // when the next probe may go
	probing  bool          // one is in flight
	class    run.Class
}

// request is a request that is about to be made.
type request struct {
	host hostOfApp
	job  int64
	run  run.Key
	// last marks the last request that the run may make, if it is also its first: no circuit stops it.
	last bool
}

// deferral is the reason and the time for which a request waits.
type deferral struct {
	wait  time.Duration
	pause time.Duration // of a circuit
	class run.Class
	error
}

const (
	firstPause = 5 * time.Second
	mostPause  = 2 * time.Minute
	// probePause is the time between two requests to a host while nothing has succeeded there.
	probePause = time.Second
	// circuitAge is how long a circuit is kept without a request. It is longer than any pause.
	circuitAge = 10 * time.Minute
	// rateBurst is how much of a host's rate may be used at once.
	rateBurst = 100 * time.Millisecond
	// reservedSlack is how much the node's bound of the database's clock may move while a run waits.
	reservedSlack = 100 * time.Millisecond
)

func newHosts(threshold, rate int) *hosts {
	h := &hosts{
		threshold: threshold, circuits: map[hostOfApp]*circuit{}, rates: map[hostOfApp]time.Time{},
		reserved: map[run.Key]time.Time{}, probes: map[run.Key]time.Time{},
	}
	if rate > 0 {
		h.interval = time.Second / time.Duration(rate)
	}
	return h
}

// admit takes the turn of a request, or returns why the request has to wait.
func (h *hosts) admit(r request, now time.Time) *deferral {
	if h.interval == 0 && h.failing.Load() == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(now)
	c := h.circuits[r.host]
	if _, ok := h.probes[r.run]; ok {
		delete(h.probes, r.run) // it took its turns when it was adopted
		return nil
	}
	if c != nil && !r.last {
		if d := h.blocked(c, r, now); d != nil {
			return d
		}
	}
	if h.interval > 0 {
		if wait := h.turn(r.host, r.run, now); wait > 0 {
			return &deferral{wait, 0, run.ClassHostRate, fmt.Errorf(
				"this node makes at most %d requests per second to host %s; the run waits %s for its turn",
				time.Second/h.interval, r.host.host, wait.Round(time.Millisecond))}
		}
	}
	if c != nil {
		h.begin(c, r.job, now)
	}
	return nil
}

// open reports whether only probes may go to a host.
func (h *hosts) open(c *circuit) bool { return h.threshold > 0 && c.failures >= h.threshold }

// blocked returns why a circuit does not let a request through now. h.mu is held.
func (h *hosts) blocked(c *circuit, r request, now time.Time) *deferral {
	c.used = now
	if job := c.jobs[r.job]; job != nil && job.pause > 0 && now.Before(job.until) {
		return &deferral{job.until.Sub(now), job.pause, run.ClassCircuitOpen, fmt.Errorf(
			"host %s failed %d requests of the job in a row%s; the run waits until a request of the job succeeds",
			r.host.host, job.failures, lastly(job.class))}
	}
	if h.open(c) && now.Before(c.probeAt) {
		return &deferral{c.probeAt.Sub(now), probePause, run.ClassCircuitOpen, fmt.Errorf(
			"host %s failed %d requests in a row%s; the run waits until a request to the host succeeds",
			r.host.host, c.failures, lastly(c.class))}
	}
	return nil
}

// lastly names the class of the latest failure, so that a waiting run shows what is wrong with its host.
func lastly(class run.Class) string {
	if class == "" {
		return ""
	}
	return ", the latest with " + string(class)
}

// begin notes a request to a failing host. No other goes until its outcome is known, or a pause has passed. h.mu is
// held.
func (h *hosts) begin(c *circuit, id int64, now time.Time) {
	if h.open(c) {
		c.probeAt = now.Add(probePause)
	}
	if job := c.jobs[id]; job != nil && job.pause > 0 {
		job.until, job.probing = now.Add(longer(job.pause)), true
	}
}

// longer returns the pause that follows a failed probe.
func longer(pause time.Duration) time.Duration { return min(max(2*pause, firstPause), mostPause) }

// turn takes the next turn at a host, and returns when it comes (the generic cell rate algorithm).
// h.mu is held.
func (h *hosts) turn(of hostOfApp, run run.Key, now time.Time) time.Duration {
	if at, ok := h.reserved[run]; ok {
		delete(h.reserved, run)
		if now.After(at.Add(-reservedSlack)) {
			return 0
		}
	}
	wait, host := h.untilTurn(of, now), of.rated()
	h.rates[host] = input.Later(now, h.rates[host]).Add(h.interval)
	if wait > 0 {
		h.reserved[run] = now.Add(wait)
	}
	return wait
}

// untilTurn returns when the next turn at a host comes; 0 or less: now. h.mu is held.
func (h *hosts) untilTurn(host hostOfApp, now time.Time) time.Duration {
	return input.Later(now, h.rates[host.rated()]).Sub(now) - max(0, rateBurst-h.interval)
}

// sweep removes the turns of runs that other nodes took, hosts without recent requests, and with them deleted jobs.
// h.mu is held.
func (h *hosts) sweep(now time.Time) {
	if now.Sub(h.swept) < time.Minute {
		return
	}
	h.swept = now
	old := func(_ run.Key, at time.Time) bool { return now.Sub(at) > time.Minute }
	maps.DeleteFunc(h.reserved, old)
	maps.DeleteFunc(h.probes, old)
	maps.DeleteFunc(h.rates, func(_ hostOfApp, next time.Time) bool { return next.Before(now) })
	for _, c := range h.circuits {
		maps.DeleteFunc(c.jobs, func(_ int64, job *jobFailures) bool { return now.Sub(job.until) > circuitAge })
	}
	maps.DeleteFunc(h.circuits, func(_ hostOfApp, c *circuit) bool { return now.Sub(c.used) > circuitAge || len(c.jobs) == 0 })
	h.failing.Store(int32(len(h.circuits)))
}

// takeProbe lets a waiting run go as a probe, or returns how long no probe of its host may go.
func (h *hosts) takeProbe(of dispatcher.HostWait, host hostOfApp, now time.Time) (wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(now)
	c, job := h.remember(host, of.JobID, now)
	job.pause = max(job.pause, of.Pause)
	if d := h.blocked(c, request{host: host, job: of.JobID}, now); d != nil {
		return d.wait
	}
	if h.interval > 0 {
		if wait = h.untilTurn(host, now); wait > 0 {
			return wait // no request is made, so the pause stays as it is
		}
		h.rates[host.rated()] = input.Later(now, h.rates[host.rated()]).Add(h.interval)
	}
	h.begin(c, of.JobID, now)
	return 0
}

// untilProbe returns how long a job must not probe a host; 0: it may now.
func (h *hosts) untilProbe(host hostOfApp, job int64, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.circuits[host]; c != nil {
		if d := h.blocked(c, request{host: host, job: job}, now); d != nil {
			return d.wait
		}
	}
	return 0
}

// adopted notes a run that goes as a probe, so that admit lets it through.
func (h *hosts) adopted(probe run.Key, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probes[probe] = now
}

// mayFlow reports whether all runs of a job that waited for a host may go.
func (h *hosts) mayFlow(host hostOfApp, job int64, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.circuits[host]
	return c == nil || h.blocked(c, request{host: host, job: job}, now) == nil
}

// remember returns the state of a failing host and of a job at that host, and makes it if needed. h.mu is held.
func (h *hosts) remember(host hostOfApp, id int64, now time.Time) (*circuit, *jobFailures) {
	c, ok := h.circuits[host]
	if !ok {
		c = &circuit{jobs: map[int64]*jobFailures{}}
		h.circuits[host] = c
		h.failing.Store(int32(len(h.circuits)))
	}
	job, ok := c.jobs[id]
	if !ok {
		job = &jobFailures{until: now}
		c.jobs[id] = job
	}
	c.used = now
	return c, job
}

// report notes the outcome of a request. responds is true if the job was blocked until now.
func (h *hosts) report(host hostOfApp, id int64, o run.Outcome, now time.Time) (responds bool) {
	failed := o.Class.OfHost()
	if h.threshold < 0 || !failed && h.failing.Load() == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case o.State == run.Cancelled,
		o.Class == run.ClassSecret, o.Class == run.ClassTemplate, o.Class == run.ClassEgressDenied,
		o.Class == run.ClassBounds, o.Class == run.ClassOAuth2:
		// The outcome says nothing about the host, so the next request may go as a probe.
		if c, ok := h.circuits[host]; ok && c.jobs[id] != nil && c.jobs[id].probing {
			c.jobs[id].probing, c.jobs[id].until = false, now
		}
		return false
	case failed:
		h.failed(host, id, o.Class, now)
		return false
	}
	c, ok := h.circuits[host]
	if !ok {
		return false
	}
	c.failures = 0
	responds = c.jobs[id] != nil && c.jobs[id].pause > 0
	if delete(c.jobs, id); len(c.jobs) == 0 {
		delete(h.circuits, host)
		h.failing.Store(int32(len(h.circuits)))
	}
	return responds
}

// failed notes a request that failed. h.mu is held.
func (h *hosts) failed(host hostOfApp, id int64, class run.Class, now time.Time) {
	c, job := h.remember(host, id, now)
	c.class, job.class = class, class
	c.failures++
	job.failures++
	switch {
	case job.probing:
		job.probing, job.pause = false, longer(job.pause)
		job.until = now.Add(job.pause)
	case job.pause > 0: // it was in flight when the job was blocked
	case h.open(c) || job.failures >= h.threshold:
		job.pause, job.until = firstPause, now.Add(firstPause)
	default:
		job.until = now
	}
}

// forget removes jobs from circuits, and circuits without jobs.
func (h *hosts) forget(left func(host hostOfApp, id int64) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for host, c := range h.circuits {
		maps.DeleteFunc(c.jobs, func(id int64, _ *jobFailures) bool { return left(host, id) })
	}
	maps.DeleteFunc(h.circuits, func(_ hostOfApp, c *circuit) bool { return len(c.jobs) == 0 })
	h.failing.Store(int32(len(h.circuits)))
}

// openCircuits returns the number of hosts at which some requests have to wait.
func (h *hosts) openCircuits(now time.Time) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(now)
	for _, c := range h.circuits {
		open := h.open(c)
		for _, job := range c.jobs {
			open = open || job.pause > 0
		}
		if open {
			n++
		}
	}
	return n
}
