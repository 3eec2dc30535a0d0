package plan

import (
	"cmp"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// A poll need not look at what was due before the earliest fire that is left: the database may still hold many
// traces of such fires, because somebody reads an old snapshot, and walks through all of them. The due time of a
// trigger only grows, so nothing appears before the least one of a share, except by a change of a definition, a
// switch or a share. Nodes hear of these, and look again at everything; a node that may not have heard, because its
// connection to listen was lost or its lease ran out, does so, too.
//
// In case a notification gets lost without anybody's notice, nodes look back once in a minute, and at everything
// each quarter of an hour. That is enough: a change schedules fires from its own time on, so a minute finds all that
// became visible within 25 s of being due. What it does not find was due for longer when a switch or a resume made it
// visible, and every node lost the notification: a single one that heard it fires it by its sweep. If it is too
// late by then, the handler settles it within five minutes; only if its misfire_after is longer than 90 s may it
// wait the quarter of an hour, and is on time then. A look at everything each minute would not be free: next to a dump
// of an hour it walks through millions of traces, on each node.
//
// When a node joins or leaves, the shares of all change. Each then goes on from where its sweep of all nodes found
// nothing left. A look of every node at everything would be the heavier the more nodes there are, just when some are
// being replaced.

const (
	// lookBackInterval is how often a look goes back by lookBack.
	lookBackInterval = time.Minute
	// lookBack is more than the threshold at which a fire is a misfire by default, so that nothing that is on time
	// was due earlier, unless its trigger has a longer one.
	lookBack = 90 * time.Second
	// fullInterval is how often a look goes back without bound.
	fullInterval = 15 * time.Minute
	// missesInterval is the same for what is overdue.
	missesInterval = 5 * time.Minute
	// retriesInterval is the same for retries.
	retriesInterval = time.Minute
	// RetriesMargin is how long after a retry is due the record that plans it may commit, and be found by a node that has not made it
	// before the next look without bound.
	RetriesMargin = 5 * time.Second
)

// floors are the lower bounds of what this node reads: for its window, for its sweeps of the nodes shortly before
// it and of all, for what is overdue, for retries, and for ends of runs that something follows.
type floors struct{ Window, near, far, Misses, Retries, Ends floor }

func newFloors(o Options) floors {
	return floors{near: floor{never: true, bounded: true}, far: floor{never: true}, Misses: floor{never: true, every: missesInterval},
		Retries: floor{never: true, every: retriesInterval}, Ends: floor{never: true, every: o.Handler * 9 / 10}}
}

// floor is the time before which nothing is left in what its looks cover.
type floor struct {
	never   bool          // it never looks back: the nodes whose fires these are do
	bounded bool          // nor at everything: another floor covers the same
	every   time.Duration // how often a look goes back without bound, if not as often as fullInterval

	mu       sync.Mutex
	at       time.Time // zero: unknown
	version  int       // of the shares that at is about
	resets   int       // counts the calls of reset
	lookedAt time.Time // when a look last went back by lookBack, by the database's clock
	fullAt   time.Time // the same without bound
}

// Look is one reading from a floor on.
type Look struct {
	From    time.Time // zero: of everything
	Now     time.Time
	version int
	resets  int
}

func (l Look) full() bool { return l.From.IsZero() }

// Begin begins to read shares of a version. If they are others than before, it reads what is due from others on: before
// that, nothing is left in any share; zero: that is not known.
func (f *floor) Begin(now time.Time, version int, others time.Time) Look {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := Look{From: f.at, Now: now, version: version, resets: f.resets}
	switch {
	case !f.bounded && Passed(f.fullAt, now, cmp.Or(f.every, fullInterval)):
		l.From = time.Time{}
	case f.version != version || f.at.IsZero():
		l.From = others
	case !f.never && Passed(f.lookedAt, now, lookBackInterval):
		if back := now.Add(-lookBack); back.Before(l.From) {
			l.From = back
		}
	}
	return l
}

// Passed reports whether an interval has passed since a time. It has, too, if the clock was set back.
func Passed(since, now time.Time, interval time.Duration) bool {
	return now.Before(since) || now.Sub(since) >= interval
}

// End notes what a look has found that has read everything: the least due time, zero if none, and the most
// that the floor may be, which leaves time for changes that are on their way.
func (f *floor) End(l Look, least, most time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.resets != l.resets {
		return // what has changed meanwhile is perhaps not in it
	}
	if l.full() {
		f.fullAt = l.Now
	}
	if l.full() || !l.From.After(l.Now.Add(-lookBack)) {
		f.lookedAt = l.Now
	}
	f.version, f.at = l.version, most
	if !least.IsZero() && least.Before(most) {
		f.at = least
	}
}

// Known returns the floor of shares of a version; zero: it is unknown.
func (f *floor) Known(version int) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.version != version {
		return time.Time{}
	}
	return f.at
}

// lower notes that something is due at a time, if it is not zero.
func (f *floor) lower(due time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !due.IsZero() && due.Before(f.at) {
		f.at = due
	}
	f.resets++ // a look that has begun may not have seen it
}

// Reset makes the next look go back without bound.
func (f *floor) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resets++
	f.at, f.fullAt = time.Time{}, time.Time{}
}

// Left returns the time before which nothing is left in any share, by the sweeps of all nodes; zero: this node has made
// none yet.
func (f *floors) Left() time.Time { return f.far.Known(0) }

// Reset makes the next look of each kind go back without bound.
func (f *floors) Reset() {
	for _, one := range []*floor{&f.Window, &f.near, &f.far, &f.Misses, &f.Retries, &f.Ends} {
		one.Reset()
	}
}

// Recorded notes the retries and the ends among records that are of a while ago when they are stored: other looks may have passed
// them. What is later is above every floor.
func (f *floors) Recorded(records []dispatcher.Record, now time.Time) {
	past := now.Add(-RetriesMargin / 2)
	for _, record := range records {
		switch next := record.Next; {
		case next != nil && next.Wait == nil && next.At.Before(past):
			f.Retries.lower(next.At)
		case next == nil && record.Followed && record.Outcome.EndedAt.Before(past):
			f.Ends.lower(record.Outcome.EndedAt)
		}
	}
}
