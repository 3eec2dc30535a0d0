package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// clock is a lower bound of the database's clock, read without asking it.
//
// A sample is the time in the database's response, taken as the time at which the response arrived:
// the database's clock had reached at least that. The bound is late by at most the response's way
// back. It runs on the node's monotonic clock, which no correction of the wall clock moves. The best
// bound of the latest samples counts.
type clock struct {
	store Store
	// margin is how far the clocks of the database's servers differ at most. A response tells that of one server;
	// the clock of another had reached that less the margin.
	margin  time.Duration
	mu      sync.RWMutex
	samples []sample // at most keepSamples, oldest first
	base    sample   // the best of them

	heartbeats int // so far
}

// sample says that at a local instant the database's clock was at or past a time, by the round trip
// at most.
type sample struct {
	local, database time.Time
	roundTrip       time.Duration
	// offset is how far the wall clock was ahead of the database's, if the response took half of
	// the round trip.
	offset time.Duration
	wall   time.Time // what the wall clock showed then, which goes on while a machine is suspended; zero: unknown
}

// replied takes the time of a heartbeat, which was sent at the local instant sent, as a sample. It is worse than one of
// its own, because the response also waits for the commit, but it costs no statement.
func (c *clock) replied(sent time.Time, database time.Time) {
	now := time.Now()
	took := now.Sub(sent) + time.Millisecond // the time is cut off to the millisecond
	c.add(sample{local: now, database: database, roundTrip: took, offset: now.Round(0).Sub(database.Add(took / 2)), wall: now.Round(0)})
}

// sampleInterval is of how many heartbeats one asks for the time by itself. Those of the start all do.
const sampleInterval = 4

// sampleNow reports whether the next heartbeat is to ask for the time.
func (c *clock) sampleNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heartbeats++
	return c.heartbeats <= sampleInterval || c.heartbeats%sampleInterval == 0
}

// keepSamples is some heartbeats long, so that the bound follows a slowly drifting clock.
const keepSamples = 12

func newClock(store Store) *clock {
	now := time.Now()
	return &clock{store: store, base: sample{local: now, database: now.UTC(), wall: now.Round(0)}}
}

// sample asks the database once.
func (c *clock) sample(ctx context.Context) error {
	asked := time.Now()
	database, err := c.store.Clock(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	took := now.Sub(asked)
	c.add(sample{local: now, database: database, roundTrip: took, offset: now.Round(0).Sub(database.Add(took / 2)), wall: now.Round(0)})
	return nil
}

// offset returns how far this node's wall clock is ahead of the database's, by the quickest of the
// latest samples. No fire depends on it.
func (c *clock) offset() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	latest := c.samples[max(0, len(c.samples)-offsetSamples):]
	if len(latest) == 0 {
		return 0
	}
	return slices.MinFunc(latest, func(a, b sample) int { return cmp.Compare(a.roundTrip, b.roundTrip) }).offset
}

// offsetSamples is how many of the latest samples count for the offset. A wall clock that was set is
// noticed after as many heartbeats.
const offsetSamples = 4

const (
	// warnSkew is the offset beyond which a node warns about its clock.
	warnSkew = time.Second
	// mostSkew is the offset beyond which a node is not ready: its logs would mislead.
	mostSkew = 30 * time.Second
)

// warnOfSkew warns while the node's clock is off.
func (e *Engine) warnOfSkew(ctx context.Context) {
	if offset := e.clock.offset(); offset.Abs() > warnSkew {
		e.log.WarnContext(ctx, "clock differs from the database's; fires follow the database's",
			"node", e.fleet.id().String(), "offset", offset.String())
	}
}

func (c *clock) add(s sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A bound beyond what the database's clock can have reached by s is from before that clock was
	// set back, unless it is from another server.
	latest := s.database.Add(s.roundTrip + c.margin)
	c.samples = slices.DeleteFunc(c.samples, func(older sample) bool { return older.at(s.local).After(latest) })
	c.samples = append(c.samples, s)
	if len(c.samples) > keepSamples {
		c.samples = c.samples[1:]
	}
	c.base = slices.MaxFunc(c.samples, func(a, b sample) int { return a.at(s.local).Compare(b.at(s.local)) })
}

// at returns what s says of the database's clock at a local instant.
func (s sample) at(local time.Time) time.Time { return s.database.Add(local.Sub(s.local)) }

// now returns the lower bound of the database's clock, on whichever server.
func (c *clock) now() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base.at(time.Now()).Add(-c.margin)
}

// until returns how long it takes until the database's clock has surely reached t.
func (c *clock) until(t time.Time) time.Duration { return t.Sub(c.now()) }

// of returns the database's time at a recent local instant, by the server that is ahead.
func (c *clock) of(local time.Time) time.Time { return c.best().of(local) }

func (s sample) of(local time.Time) time.Time { return s.at(local).UTC().Truncate(time.Millisecond) }

// best returns the sample that counts now.
func (c *clock) best() sample {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base
}

// suspicion is by how much the wall clock may leave the monotonic clock behind before the machine is taken to have been
// suspended, which stops the monotonic clock alone.
const suspicion = 100 * time.Millisecond

// sampleIfSuspended asks the database if this machine may have been suspended since the sample that counts: its bound is
// then late by the time that the machine slept. The end of ctx does not cut the question off.
func (c *clock) sampleIfSuspended(ctx context.Context) error {
	s, now := c.best(), time.Now()
	if s.wall.IsZero() || now.Round(0).Sub(s.wall)-now.Sub(s.local) < suspicion {
		return nil
	}
	return c.sample(context.WithoutCancel(ctx)) // made here only, as each attempt asks
}
