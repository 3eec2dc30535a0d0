package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Bounds of the health checks of this node.
const (
	mostChecks      = 64 // at once
	mostChecksOfApp = 16 // at once, so that no app takes all
)

// health is the result of the health checks of an endpoint.
type health struct {
	url      string // of the endpoint when it was checked; another one is checked from the start
	next     time.Time
	checking bool
	down     bool
	well     bool // the latest check
	streak   int  // how many checks in a row had this result
	why      string
	until    time.Time // how long down counts if no further check comes
}

// checks are the health checks under way.
type checks struct {
	mu      sync.Mutex
	all     int
	of      map[string]int // by app
	closed  bool
	end     map[*groupAttempt]context.CancelFunc
	running sync.WaitGroup
}

func (c *checks) close() {
	c.mu.Lock()
	c.closed = true
	for _, end := range c.end {
		end()
	}
	c.mu.Unlock()
	c.running.Wait()
}

// begin runs a check of an app, unless too many are under way.
func (c *checks) begin(ctx context.Context, a *groupAttempt, check func(context.Context)) (begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.all >= mostChecks || c.of[a.call.App] >= mostChecksOfApp {
		return false
	}
	c.all++
	c.of[a.call.App]++
	ctx, cancel := context.WithCancel(ctx)
	c.end[a] = cancel
	c.running.Go(func() {
		defer func() {
			cancel()
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.end, a)
			c.all--
			if c.of[a.call.App]--; c.of[a.call.App] == 0 {
				delete(c.of, a.call.App)
			}
		}()
		check(ctx)
	})
	return true
}

type dueCheck struct {
	*groupAttempt
	endpoint *target.Endpoint
	at       time.Time
}

// CheckHealth begins the health checks of groups that are due at now, those that have waited for longest first, and
// does not wait for them. A call needs an app, its bounds and a group. Checks beyond the limit wait for the next call.
func (g *Groups) CheckHealth(ctx context.Context, calls []target.Call, now time.Time) {
	var due []dueCheck
	for _, call := range calls {
		if call.Group == nil || call.Group.HealthCheck == nil || call.Bounds == nil || call.Bounds.Suspended {
			continue
		}
		due = append(due, g.dueChecks(ctx, call, now)...)
	}
	slices.SortStableFunc(due, func(a, b dueCheck) int { return a.at.Compare(b.at) })
	for _, one := range due {
		one.begin(ctx, g.checks, now)
	}
}

// dueChecks returns the checks of a group that are due. An endpoint that is new is checked at a random time within an
// interval, so that checks spread evenly.
func (g *Groups) dueChecks(ctx context.Context, call target.Call, now time.Time) (due []dueCheck) {
	g.known.mu.Lock()
	state := g.known.made(groupKey{call.App, call.Group.Name})
	g.known.mu.Unlock()
	call.Group = g.withNames(ctx, state, call, now, false)
	interval := call.Group.HealthCheck.Resolved().Interval.Std()
	state.mu.Lock()
	defer state.mu.Unlock()
	if len(state.health) > len(call.Group.Live) {
		state.forgetGone(call.Group)
	}
	for n := range call.Group.Live {
		endpoint := &call.Group.Live[n]
		h := state.health[endpoint.ID]
		if h == nil || h.url != endpoint.URL {
			h = &health{url: endpoint.URL, next: now.Add(rand.N(interval))}
			state.health[endpoint.ID] = h
		}
		if !h.checking && !h.next.After(now) {
			scopes := newScopes(call.Group, call.Bounds.Egress)
			a := &groupAttempt{state: state, hooks: g.hooks, scopes: scopes, call: call, started: now}
			a.content.Webhook = &target.Webhook{Auth: call.Group.Auth, TLS: call.Group.TLS}
			due = append(due, dueCheck{a, endpoint, h.next})
		}
	}
	return due
}

// begin begins a check, unless too many are under way.
func (d dueCheck) begin(ctx context.Context, c *checks, now time.Time) {
	settings := d.call.Group.HealthCheck.Resolved()
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.health[d.endpoint.ID]
	if h == nil {
		return
	}
	h.checking = c.begin(ctx, d.groupAttempt, func(ctx context.Context) {
		why, responded := d.check(ctx, settings)
		if ctx.Err() != nil {
			why = notChecked
		}
		if responded {
			d.succeeded(d.endpoint.ID)
		}
		d.checked(h, settings, why, time.Now())
	})
	if h.checking {
		if h.next = h.next.Add(settings.Interval.Std()); h.next.Before(now) {
			h.next = now
		}
	}
}

// notChecked stands for a check that was cut off.
const notChecked = "cut off"

// check checks the health of an endpoint; why is empty if it is healthy. responded is false if no response came.
func (d dueCheck) check(ctx context.Context, settings target.HealthCheck) (why string, responded bool) {
	defer func() {
		if r := recover(); r != nil {
			why, responded = fmt.Sprint("panic: ", r), false
		}
	}()
	bounded, cancel := context.WithTimeout(ctx, settings.Timeout.Std())
	defer cancel()
	r, err := d.probeRequest(bounded, d.destination(d.endpoint, settings.Path))
	if err != nil {
		return err.Error(), false
	}
	got, err := r.Send(bounded, &attempt.Stopwatch{Start: d.started})
	switch {
	case err != nil:
		return r.Redaction().Clean(attempt.Classify(ctx, bounded, err, settings.Timeout).Error), false
	case got.Status < 200 || got.Status > 299:
		return fmt.Sprintf("responded to the health check with status %d", got.Status), true
	}
	return "", true
}

// checked notes the result of a check: the reason why an endpoint is not healthy, or an empty one.
func (s *state) checked(h *health, settings target.HealthCheck, why string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.checking = false
	if why == notChecked {
		return
	}
	if well := why == ""; well != h.well {
		h.well, h.streak = well, 0
	}
	h.streak++
	h.why = why
	h.until = now.Add(3*settings.Interval.Std() + settings.Timeout.Std())
	threshold := settings.UnhealthyThreshold
	if h.down {
		threshold = settings.HealthyThreshold
	}
	if h.down == h.well && h.streak >= threshold {
		h.down = !h.down
		s.version = nil
	}
}
