package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// clock is a lower bound of the database's clock, read without asking it.
//
// A sample is the database's answer, taken as the time at which the response arrived: the
// database's clock was at least there. The bound is late by at most the way back of that
// answer, and it runs on the node's monotonic clock, which no correction of the wall clock
// moves. Of the latest samples the best bound counts.
type clock struct {
	store   dispatcher.Store
	mu      sync.RWMutex
	samples []sample // at most keepSamples, oldest first
	base    sample   // the best of them
}

// sample says that at a local instant the database's clock was at or past a time, and past
// it by the response's round trip at most.
type sample struct {
	local, database time.Time
	roundTrip       time.Duration
	// offset is how far the wall clock was ahead of the database's, as if the response had taken
	// half of the round trip.
	offset time.Duration
}

// keepSamples forgets what is older than some heartbeats, so that a slowly drifting clock
// is followed.
const keepSamples = 12

func newClock(store dispatcher.Store) *clock {
	now := time.Now()
	return &clock{store: store, base: sample{local: now, database: now.UTC()}}
}

// sample asks the database once.
func (c *clock) sample(ctx context.Context) error {
	asked := time.Now()
	database, err := c.store.Clock(ctx)
	if err != nil {
		return err
	}
	answered := time.Now()
	took := answered.Sub(asked)
	c.add(sample{local: answered, database: database, roundTrip: took, offset: answered.Round(0).Sub(database.Add(took / 2))})
	return nil
}

// offset returns how far this node's wall clock is ahead of the database's: of the latest
// samples, what the quickest says. No fire depends on it.
func (c *clock) offset() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	latest := c.samples[max(0, len(c.samples)-offsetSamples):]
	if len(latest) == 0 {
		return 0
	}
	return slices.MinFunc(latest, func(a, b sample) int { return cmp.Compare(a.roundTrip, b.roundTrip) }).offset
}

// offsetSamples is how many of the latest samples the offset is taken from, so that a wall
// clock that was set is noticed after as many heartbeats.
const offsetSamples = 4

const (
	// warnSkew is the offset from which on a node warns of its clock.
	warnSkew = time.Second
	// mostSkew is the offset from which on a node is not ready: what it logs and shows would
	// mislead.
	mostSkew = 30 * time.Second
)

// warnOfSkew warns while the node's clock is off.
func (e *Engine) warnOfSkew(ctx context.Context) {
	if offset := e.clock.offset(); offset.Abs() > warnSkew {
		e.log.WarnContext(ctx, "clock is off the database's; fires keep to the database's", "node", e.fleet.id().String(), "offset", offset.String())
	}
}

func (c *clock) add(s sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A bound that the database's clock cannot have reached by s was true before that clock
	// was set back.
	latest := s.database.Add(s.roundTrip)
	c.samples = slices.DeleteFunc(c.samples, func(older sample) bool { return older.at(s.local).After(latest) })
	c.samples = append(c.samples, s)
	if len(c.samples) > keepSamples {
		c.samples = c.samples[1:]
	}
	c.base = s
	for _, older := range c.samples {
		if older.at(s.local).After(c.base.at(s.local)) {
			c.base = older
		}
	}
}

// at returns what s says of the database's clock at a local instant.
func (s sample) at(local time.Time) time.Time { return s.database.Add(local.Sub(s.local)) }

// now returns the lower bound of the database's clock.
func (c *clock) now() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base.at(time.Now())
}

// until returns how long it takes until the database's clock has surely reached t.
func (c *clock) until(t time.Time) time.Duration { return t.Sub(c.now()) }

// of returns the database's time at a recent local instant.
func (c *clock) of(local time.Time) time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base.at(local).UTC().Truncate(time.Millisecond)
}
