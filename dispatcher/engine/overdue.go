package engine

import (
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// overdue is the oldest fire that was due when the node last read the database: in its window, among the fires
// of other nodes, and among those that the handler settles. Together with the timeline it says how long a fire waits at most.
type overdue struct {
	mu                     sync.Mutex
	window, others, misses sighting
}

// sighting is the oldest due fire that a read of the database found.
type sighting struct {
	due time.Time // zero: none
	at  time.Time // of the read, by the database's clock
}

// polled notes the oldest fire that a poll found; zero: none.
func (o *overdue) polled(due, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.window = sighting{due, now}
}

// swept notes the oldest fire that a sweep of all nodes found; zero: none, or none was made.
func (o *overdue) swept(due, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.others = sighting{due, now}
}

// sawOthers reports whether the latest sweep of all nodes found a fire. It is taken to wait until the next finds none.
func (o *overdue) sawOthers() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.others.due.IsZero()
}

// settling notes the oldest fire that is still to be settled by this node; zero: none.
func (o *overdue) settling(due, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.misses = sighting{due, now}
}

// wait returns how long the fire had been due when it was seen. If no read has succeeded for a while, the
// fire is assumed to wait still. What was due for less than the grace was its preferred node's to claim.
func (s sighting) wait(now time.Time, fresh, grace time.Duration) time.Duration {
	switch seen := s.at.Sub(s.due); {
	case s.due.IsZero() || seen < grace:
		return 0
	case now.Sub(s.at) < fresh:
		return seen
	}
	return now.Sub(s.due)
}

// oldestOverdue returns how long the oldest due fire that nobody has claimed waits, as far as this node
// knows; 0 if there is none that is due for longer than the grace, or while the node is paused. It counts
//   - the fires that this node has planned, whether the node is saturated or the database unreachable;
//   - those that the latest poll found, and those of other nodes that the latest sweep found;
//   - those that are too late, while this node settles them.
//
// Fires of jobs that require labels which this node lacks do not count: more nodes like this one would
// not help them.
func (e *Engine) oldestOverdue(now time.Time) time.Duration {
	if !e.fleet.claims() {
		return 0
	}
	e.overdue.mu.Lock()
	wait := max(
		e.overdue.window.wait(now, 3*e.opts.Window, e.opts.Grace),
		e.overdue.others.wait(now, 3*farSweep*e.opts.Grace, e.opts.Grace),
		e.overdue.misses.wait(now, 3*e.opts.Handler, e.opts.Grace))
	e.overdue.mu.Unlock()
	for _, oldest := range []func() (time.Time, bool){e.timeline.oldest, e.ahead.head} {
		if planned, ok := oldest(); ok && now.Sub(planned) >= e.opts.Grace {
			wait = max(wait, now.Sub(planned))
		}
	}
	return wait
}

// oldestServed returns when the first of a page was due whose labels this node has; zero: none.
func (e *Engine) oldestServed(page []dispatcher.DueTrigger) time.Time {
	for i := range page {
		if e.opts.Labels.Have(page[i].NodeLabels) {
			return page[i].DueAt
		}
	}
	return time.Time{}
}
