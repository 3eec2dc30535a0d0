package api

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// registrations counts the endpoints that registered and deregistered with this node, so that a fleet that comes and goes
// takes one line of the log in a minute. Lines for each endpoint are for debugging. What expires the handler logs.
type registrations struct {
	log    *slog.Logger
	mu     sync.Mutex
	counts map[endpointEvent]int
	groups map[[2]string]bool // app and name
}

// endpointEvent says what an endpoint did.
type endpointEvent string

const (
	cameEndpoint endpointEvent = "registered"
	leftEndpoint endpointEvent = "deregistered"
)

// registrationsTurn is how often they are logged, and maxGroupsCounted how many groups are told apart meanwhile.
const (
	registrationsTurn = time.Minute
	maxGroupsCounted  = 10_000
)

func newRegistrations(log *slog.Logger) *registrations {
	return &registrations{log: log, counts: map[endpointEvent]int{}, groups: map[[2]string]bool{}}
}

// note counts an endpoint that came or left.
func (c *registrations) note(ctx context.Context, event endpointEvent, app, group, id string) {
	c.log.DebugContext(ctx, "endpoint came or left", "event", string(event), "app", app, "group", group, "endpoint", id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[event]++
	if len(c.groups) < maxGroupsCounted {
		c.groups[[2]string{app, group}] = true
	}
}

// run logs what came and left in each turn until ctx ends, and then for the last time.
func (c *registrations) run(ctx context.Context) {
	ticker := time.NewTicker(registrationsTurn)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
		c.turn(ctx)
	}
}

// turn logs what came and left since the last call, if anything did.
func (c *registrations) turn(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.counts) == 0 {
		return
	}
	c.log.InfoContext(ctx, "endpoints registered and deregistered", "registered", c.counts[cameEndpoint],
		"deregistered", c.counts[leftEndpoint], "groups", len(c.groups))
	clear(c.counts)
	clear(c.groups)
}
