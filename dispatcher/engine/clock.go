package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// clock is a lower bound of the database's clock, read without asking it.
//
// A sample is the database's answer, taken as the time at which the answer arrived: the
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
// it by the answer's round trip at most.
type sample struct {
	local, database time.Time
	roundTrip       time.Duration
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
	c.add(sample{local: answered, database: database, roundTrip: answered.Sub(asked)})
	return nil
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
