package plan

import (
	"cmp"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// A poll does not look before the earliest unclaimed fire: the database may still hold many traces of earlier fires,
// because a reader keeps an old snapshot, and would walk through all of them. The due time of a trigger only grows, so
// no fire appears before the earliest one of a share, except after a change of a definition, a switch or a share. Nodes
// are notified of these, and look again at everything. A node that may have missed a notification, because its
// connection to listen was lost or its lease ran out, does so, too.
//
// In case a notification is lost unnoticed, nodes look back once in a minute, and at everything each quarter of an
// hour. That is enough: a change schedules fires from its own time on, so the look back in a minute finds all that
// became visible within 25 s of being due. A fire that it does not find was due for longer when a switch or a resume
// made it visible, and every node lost the notification: a single one that received it fires it by its sweep. If it is
// too late by then, the handler settles it within five minutes; only if its misfire_after is longer than 90 s may it
// wait the quarter of an hour, and is on time then. A look at everything each minute would be expensive: next to a dump
// of an hour it walks through millions of traces, on each node.
//
// When a node joins or leaves, all shares change. Each node then goes on from the point up to which its sweep of all
// nodes found no fires. If every node looked at everything instead, the cost would grow with the number of nodes, just
// when some are being replaced.

const (
	// lookBackInterval is how often a look goes back by lookBack.
	lookBackInterval = time.Minute
	// lookBack is more than the threshold at which a fire is a misfire by default, so that nothing that is on time
	// was due earlier, unless its trigger has a longer one.
	lookBack = 90 * time.Second
	// fullInterval is how often a look goes back without bound.
	fullInterval = 15 * time.Minute
	// missesInterval is the same for overdue fires.
	missesInterval = 5 * time.Minute
	// retriesInterval is the same for retries.
	retriesInterval = time.Minute
	// RetriesMargin is how long after a retry is due its record may commit, so that other nodes find it before the next
	// look without bound.
	RetriesMargin = 5 * time.Second
)

// floors are the lower bounds of this node's reads: of its window, of its sweeps of the nodes shortly before it and of
// all nodes, of overdue fires, of retries, and of ends of runs with followers.
type floors struct{ Window, near, far, Misses, Retries, Ends floor }

func newFloors(o Options) floors {
	return floors{near: floor{never: true, bounded: true}, far: floor{never: true}, Misses: floor{never: true, every: missesInterval},
		Retries: floor{never: true, every: retriesInterval}, Ends: floor{never: true, every: o.Handler * 9 / 10}}
}

// floor is the time before which the area of its looks holds no more fires.
type floor struct {
	never   bool          // it never looks back: the nodes that own these fires do
	bounded bool          // it never looks at everything, either: another floor covers the same
	every   time.Duration // how often a look goes back without bound; 0: fullInterval

	mu       sync.Mutex
	at       time.Time // zero: unknown
	version  int       // of the shares to which at applies
	resets   int       // counts changes that a look under way may have missed
	lookedAt time.Time // when a look last went back by lookBack, by the database's clock
	fullAt   time.Time // the same without bound
}

// Look is one reading from a floor on.
type Look struct {
	From    time.Time // zero: without bound
	Now     time.Time
	version int
	resets  int
}

func (l Look) full() bool { return l.From.IsZero() }

// Begin begins to read shares of a version. If the version changed, it reads from others on: before that time, no share
// has fires; zero: unknown.
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

// Passed reports whether an interval has passed since a time. It also has if the clock was set back.
func Passed(since, now time.Time, interval time.Duration) bool {
	return now.Before(since) || now.Sub(since) >= interval
}

// End notes the result of a look that read everything: the least due time, zero if none, and the highest floor allowed,
// which leaves time for changes that are on their way.
func (f *floor) End(l Look, least, most time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.resets != l.resets {
		return // the look may have missed a change
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

// Known returns the floor of shares of a version; zero: unknown.
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
	f.resets++ // a look under way may have missed it
}

// Reset makes the next look go back without bound.
func (f *floor) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resets++
	f.at, f.fullAt = time.Time{}, time.Time{}
}

// Left returns the time before which no share has fires, by the sweeps of all nodes; zero: this node has not swept yet.
func (f *floors) Left() time.Time { return f.far.Known(0) }

// Reset makes the next look of each kind go back without bound.
func (f *floors) Reset() {
	for _, one := range []*floor{&f.Window, &f.near, &f.far, &f.Misses, &f.Retries, &f.Ends} {
		one.Reset()
	}
}

// Recorded notes the retries and ends in records that are stored late: other looks may have passed them. Later ones are
// above every floor.
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
