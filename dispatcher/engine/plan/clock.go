package plan

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Clock is a lower bound of the database's clock, read without asking it.
//
// A sample is the time in the database's response, taken as the time at which the response arrived:
// the database's clock had reached at least that. The bound is late by at most the response's way
// back. It runs on the node's monotonic clock, which no correction of the wall clock moves. The best
// bound of the latest samples counts.
type Clock struct {
	store clockStore
	// Margin is how far the clocks of the database's servers differ at most. A response has the time of one server; the
	// clock of another had reached at least that time less the margin.
	Margin  time.Duration
	mu      sync.RWMutex
	samples []Sample // at most keepSamples, oldest first
	base    Sample   // the best of them

	heartbeats int // so far
}

// Sample is a lower bound of the database's clock at a local instant, too low by the round trip at most.
type Sample struct {
	Local, Database time.Time
	roundTrip       time.Duration
	// Offset is how far the wall clock was ahead of the database's, if the response took half of the round trip.
	Offset time.Duration
	Wall   time.Time // what the wall clock showed then; it goes on while a machine is suspended; zero: unknown
}

// Replied takes the time of a heartbeat that was sent at the local instant sent as a sample. It is worse than one of
// its own, because the response also waits for the commit, but it costs no statement.
func (c *Clock) Replied(sent time.Time, database time.Time) {
	now := time.Now()
	took := now.Sub(sent) + time.Millisecond // the time is cut off to the millisecond
	c.Add(Sample{Local: now, Database: database, roundTrip: took, Offset: now.Round(0).Sub(database.Add(took / 2)), Wall: now.Round(0)})
}

// In every sampleInterval heartbeats, one asks for the time separately. At the start all do.
const sampleInterval = 4

// SampleNow reports whether the next heartbeat is to ask for the time.
func (c *Clock) SampleNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heartbeats++
	return c.heartbeats <= sampleInterval || c.heartbeats%sampleInterval == 0
}

// keepSamples covers some heartbeats, so that the bound follows a slowly drifting clock.
const keepSamples = 12

type clockStore interface {
	Clock(ctx context.Context) (time.Time, error)
}

// NewClock returns a Clock that trusts the clock of the machine until its first sample.
func NewClock(store clockStore) *Clock {
	now := time.Now()
	return &Clock{store: store, base: Sample{Local: now, Database: now.UTC(), Wall: now.Round(0)}}
}

// Sample asks the database once.
func (c *Clock) Sample(ctx context.Context) error {
	asked := time.Now()
	database, err := c.store.Clock(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	took := now.Sub(asked)
	c.Add(Sample{Local: now, Database: database, roundTrip: took, Offset: now.Round(0).Sub(database.Add(took / 2)), Wall: now.Round(0)})
	return nil
}

// Offset returns how far this node's wall clock is ahead of the database's, by the quickest of the
// latest samples. No fire depends on it.
func (c *Clock) Offset() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	latest := c.samples[max(0, len(c.samples)-offsetSamples):]
	if len(latest) == 0 {
		return 0
	}
	return slices.MinFunc(latest, func(a, b Sample) int { return cmp.Compare(a.roundTrip, b.roundTrip) }).Offset
}

// offsetSamples is how many of the latest samples count for the offset. A correction of the wall clock shows after as
// many heartbeats.
const offsetSamples = 4

// Add takes a sample.
func (c *Clock) Add(s Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A bound that is later than the database's clock can have been in s is from before that clock was set back, unless
	// it is from another server.
	latest := s.Database.Add(s.roundTrip + c.Margin)
	c.samples = slices.DeleteFunc(c.samples, func(older Sample) bool { return older.at(s.Local).After(latest) })
	c.samples = append(c.samples, s)
	if len(c.samples) > keepSamples {
		c.samples = c.samples[1:]
	}
	c.base = slices.MaxFunc(c.samples, func(a, b Sample) int { return a.at(s.Local).Compare(b.at(s.Local)) })
}

// at returns the bound of s at a local instant.
func (s Sample) at(local time.Time) time.Time { return s.Database.Add(local.Sub(s.Local)) }

// Now returns the lower bound of the database's clock, for any server.
func (c *Clock) Now() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base.at(time.Now()).Add(-c.Margin)
}

// Until returns how long it takes until the database's clock has certainly reached t.
func (c *Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Of returns the database's time at a recent local instant, by the server that is ahead.
func (c *Clock) Of(local time.Time) time.Time { return c.Best().Of(local) }

// Of returns the time of the database at a local instant.
func (s Sample) Of(local time.Time) time.Time { return s.at(local).UTC().Truncate(time.Millisecond) }

// Best returns the sample that counts now.
func (c *Clock) Best() Sample {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base
}

// suspicion is how far the wall clock may run ahead of the monotonic clock before the machine counts as suspended. A
// suspension stops only the monotonic clock.
const suspicion = 100 * time.Millisecond

// SampleIfSuspended asks the database if this machine may have been suspended since the current sample: its bound is
// then late by the length of the suspension. The end of ctx does not cut the query off.
func (c *Clock) SampleIfSuspended(ctx context.Context) error {
	s, now := c.Best(), time.Now()
	if s.Wall.IsZero() || now.Round(0).Sub(s.Wall)-now.Sub(s.Local) < suspicion {
		return nil
	}
	return c.Sample(context.WithoutCancel(ctx)) // only here, because each attempt calls this
}
