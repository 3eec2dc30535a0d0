package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

const (
	// upcomingWithin is how far the count of upcoming fires looks ahead: time enough to start nodes.
	upcomingWithin = 15 * time.Minute
	// mostUpcoming bounds the count, and with it what it costs.
	mostUpcoming = 100_000
)

// upcoming is what this node counted last.
type upcoming struct {
	mu      sync.Mutex
	count   int
	awaited int // callbacks
	at      time.Time
	turns   turns // only countUpcoming uses them
}

// countUpcoming counts the triggers that are due soon, so that a fleet can grow before a herd, and the runs that wait for
// their callbacks. One node counts in a minute.
func (e *Engine) countUpcoming(ctx context.Context, now time.Time) error {
	if !e.fleet.active() {
		return nil
	}
	// Nodes that serve other apps count for themselves.
	name := strings.Join(append([]string{dispatcher.LockUpcoming}, e.opts.Apps...), "/")
	if mine, err := e.upcoming.turns.take(ctx, e, name, now); err != nil || !mine {
		return err
	}
	count, err := e.store.Upcoming(ctx, e.opts.Apps, now.Add(upcomingWithin), mostUpcoming)
	if err != nil {
		return fmt.Errorf("count upcoming fires: %w", err)
	}
	awaited, err := e.store.AwaitedCallbacks(ctx, e.opts.Apps, mostUpcoming)
	if err != nil {
		return err
	}
	e.upcoming.mu.Lock()
	defer e.upcoming.mu.Unlock()
	e.upcoming.count, e.upcoming.awaited, e.upcoming.at = count, awaited, now
	return nil
}

// read returns the count until another node must have one: it can be two handler intervals late. Another
// node that counts meanwhile gets about the same, so the largest count of all nodes is the fleet's.
func (u *upcoming) read(now time.Time, handler time.Duration) int {
	fires, _ := u.counts(now, handler)
	return fires
}

// readAwaited is read for the runs that wait for a callback.
func (u *upcoming) readAwaited(now time.Time, handler time.Duration) int {
	_, callbacks := u.counts(now, handler)
	return callbacks
}

func (u *upcoming) counts(now time.Time, handler time.Duration) (fires, callbacks int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.IsZero() || now.Sub(u.at) > countInterval+2*handler {
		return 0, 0
	}
	return u.count, u.awaited
}
