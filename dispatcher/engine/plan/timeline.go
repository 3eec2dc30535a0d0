package plan

import (
	"container/heap"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// timeline is the fires that are due before the next poll: a heap of future ones, and a fair queue of those that are
// due and wait for a place in the pool. It is a cache: an entry that is out of date loses its claim and is dropped. It
// is safe for concurrent use.
type timeline struct {
	mu      sync.Mutex
	heap    entries
	due     *pool.FairQueue[*Entry]
	onTime  int // entries of due that do not catch up
	byID    map[int64]*Entry
	Changed loop.Signal // the head may be earlier than before
	full    bool        // there was no room for a fire
	refill  loop.Signal

	// taken are the entries whose claims are under way, or were won during a poll: a trigger that
	// the poll read meanwhile may be from before the claim.
	taken   map[int64]*Entry
	won     []*Entry // those of taken that stay only until the poll ends
	readers int
	// claiming is the batch whose claim is under way. It may take as long as the database is unreachable.
	claiming []*Entry
}

// mostPlanned bounds the timeline, and with it the jobs in memory. Further fires wait ahead of it, until half of
// it has been claimed.
const mostPlanned = 40_000

func newTimeline() *timeline {
	return &timeline{
		due: pool.NewFairQueue[*Entry](), byID: map[int64]*Entry{}, taken: map[int64]*Entry{}, Changed: loop.NewSignal(),
	}
}

// add plans a fire. It replaces the planned fire of its trigger if that has an older revision or an earlier time. It
// returns false when the timeline is full.
func (t *timeline) add(planned Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if taken, ok := t.taken[planned.ID]; ok && !planned.supersedes(taken) {
		return true
	}
	if old, ok := t.byID[planned.ID]; ok {
		// A poll may have read the trigger before a claim that has advanced it since.
		if !planned.supersedes(old) {
			return true
		}
		if old.index < 0 {
			old.stale = true
		} else {
			heap.Remove(&t.heap, old.index)
		}
	} else if len(t.byID) >= mostPlanned {
		t.full = true
		return false
	}
	e := &planned
	t.byID[e.ID] = e
	heap.Push(&t.heap, e)
	if e.index == 0 {
		t.Changed.Notify()
	}
	return true
}

// has reports whether a fire, or a newer one of its trigger, is planned or being claimed.
func (t *timeline) has(due *dispatcher.DueTrigger) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	planned, isPlanned := t.byID[due.ID]
	taken, isTaken := t.taken[due.ID]
	return isPlanned && !supersedes(due, &planned.DueTrigger) || isTaken && !supersedes(due, &taken.DueTrigger)
}

// IsFull reports whether there was no room for a fire, and half of the timeline has not been claimed since.
func (t *timeline) IsFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full
}

// Take removes and returns fires due by until, at most limit, in fair order. It asks admit for a
// place in the queue of each, and releases the places of fires that were planned again.
func (t *timeline) Take(until time.Time, limit int, admit func(pool.QueueKey) pool.Admission, release func(...pool.QueueKey)) []*Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.heap) > 0 && !t.heap[0].DueAt.After(until) {
		e := heap.Pop(&t.heap).(*Entry)
		e.index, e.Queue.Late = -1, e.late()
		if !e.Queue.Late {
			t.onTime++
		}
		t.due.Push(e, e.Queue, e.Weight)
	}
	var due []*Entry
	for _, e := range t.due.Take(limit, admit) {
		if !e.Queue.Late {
			t.onTime--
		}
		if e.stale {
			release(e.Queue)
			continue
		}
		delete(t.byID, e.ID)
		t.taken[e.ID] = e
		due = append(due, e)
	}
	t.claiming = due
	if t.full && len(t.byID) <= mostPlanned/2 {
		t.full = false
		t.refill.Notify()
	}
	return due
}

// Claimed notes the entries that were won, of those that were taken.
func (t *timeline) Claimed(taken []*Entry, won map[int64]*run.HeldRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.claiming = nil
	for _, e := range taken {
		if _, ok := won[e.ID]; ok && t.readers > 0 {
			t.won = append(t.won, e)
		} else {
			delete(t.taken, e.ID)
		}
	}
}

// reading notes that a poll reads the window. done notes that it has planned the result.
func (t *timeline) reading() (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.readers--; t.readers > 0 {
			return
		}
		for _, e := range t.won {
			if t.taken[e.ID] == e {
				delete(t.taken, e.ID)
			}
		}
		t.won = nil
	}
}

// overdue reports whether fires that were due by then still wait to be claimed, apart from those that catch up.
func (t *timeline) overdue(then time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.onTime > 0 || len(t.heap) > 0 && t.heap[0].DueAt.Before(then)
}

// Oldest returns the due time of the earliest unclaimed fire.
func (t *timeline) Oldest() (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) > 0 {
		at, ok = t.heap[0].DueAt, true
	}
	unclaimed := func(e *Entry) {
		if !e.stale && (!ok || e.DueAt.Before(at)) {
			at, ok = e.DueAt, true
		}
	}
	for e := range t.due.All() {
		unclaimed(e)
	}
	for _, e := range t.claiming {
		unclaimed(e)
	}
	return at, ok
}

// Waiting returns how many fires are due and have no place yet.
func (t *timeline) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.due.Len()
}

// Len returns how many fires are planned.
func (t *timeline) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// Head returns when the earliest fire to come is due.
func (t *timeline) Head() (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].DueAt, true
}

// entries is a heap by due time, then trigger, so that all nodes break ties in the same way.
type entries []*Entry

func (h entries) Len() int { return len(h) }

func (h entries) Less(i, j int) bool {
	if !h[i].DueAt.Equal(h[j].DueAt) {
		return h[i].DueAt.Before(h[j].DueAt)
	}
	return h[i].ID < h[j].ID
}

func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *entries) Push(x any) {
	e := x.(*Entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *entries) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
