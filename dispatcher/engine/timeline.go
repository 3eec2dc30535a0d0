package engine

import (
	"cmp"
	"container/heap"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// timeline is the fires that are due before the next poll: a heap of those to come, and in
// fair order those that are due and wait for a place in the pool. It is a cache: an entry that
// is out of date loses its claim and is dropped. It is safe for concurrent use.
type timeline struct {
	slow func(job int64) bool // tells which jobs are slow by now

	mu      sync.Mutex
	heap    entries
	due     *fairQueue[*entry]
	onTime  int // of due, those that do not catch up
	byID    map[int64]*entry
	changed chan struct{} // the head may be earlier than before

	// taken are the entries whose claims are under way, or were won while somebody was reading
	// the window: what was read meanwhile may be from before the claim.
	taken   map[int64]*entry
	won     []*entry // those of taken that only the readers keep there
	readers int
}

// entry is the next fire of one trigger.
type entry struct {
	dispatcher.DueTrigger
	schedule *schedule.Schedule
	lane     lane
	weight   int // its app's
	// definition is what its job was at the trigger's revision, so that this is what a claim
	// executes; nil: it is another already, and the claim will be lost.
	definition *definition
	index      int  // in the heap; -1: it is due
	stale      bool // planned again since it became due
}

// mostPlanned bounds the timeline; what exceeds it is found by a later poll.
const mostPlanned = 200_000

func newTimeline(slow func(job int64) bool) *timeline {
	return &timeline{slow: slow, due: newFairQueue[*entry](), byID: map[int64]*entry{}, taken: map[int64]*entry{}, changed: make(chan struct{}, 1)}
}

// add plans a fire, in place of what was planned for its trigger under an older definition
// or an earlier instant. It returns false when the timeline is full.
func (t *timeline) add(planned entry) bool {
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
		return false
	}
	e := &planned
	t.byID[e.ID] = e
	heap.Push(&t.heap, e)
	if e.index == 0 {
		wake(t.changed)
	}
	return true
}

// supersedes tells whether e is newer than what was planned for its trigger.
func (e *entry) supersedes(old *entry) bool {
	return cmp.Or(
		cmp.Compare(e.Revision, old.Revision),
		cmp.Compare(e.CalendarRevision, old.CalendarRevision),
		e.NextFireTime.Compare(old.NextFireTime),
	) > 0
}

// take removes and returns fires due by until, at most limit, in fair order. admit is asked
// for a place in the lane of each; release takes back those of fires that are not wanted any
// more.
func (t *timeline) take(until time.Time, limit int, admit func(lane) bool, release func(...lane)) []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.heap) > 0 && !t.heap[0].DueAt.After(until) {
		e := heap.Pop(&t.heap).(*entry)
		e.index, e.lane.slow, e.lane.late = -1, e.lane.mayBeSlow() && t.slow(e.JobID), e.late()
		if !e.lane.late {
			t.onTime++
		}
		t.due.push(e, e.lane, e.weight)
	}
	var due []*entry
	for _, e := range t.due.take(limit, admit) {
		if !e.lane.late {
			t.onTime--
		}
		if e.stale {
			release(e.lane)
			continue
		}
		delete(t.byID, e.ID)
		t.taken[e.ID] = e
		due = append(due, e)
	}
	return due
}

// claimed says which of the entries that were taken have been won.
func (t *timeline) claimed(taken []*entry, won map[int64]dispatcher.HeldRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range taken {
		if _, ok := won[e.ID]; ok && t.readers > 0 {
			t.won = append(t.won, e)
		} else {
			delete(t.taken, e.ID)
		}
	}
}

// reading says that somebody reads the window to plan what is in it; done that all is planned.
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

// overdue tells whether fires that were due by then still wait to be claimed; those that catch
// up may.
func (t *timeline) overdue(then time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.onTime > 0 || len(t.heap) > 0 && t.heap[0].DueAt.Before(then)
}

// waiting returns how many fires are due that found no place yet.
func (t *timeline) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.due.len()
}

// len returns how many fires are planned.
func (t *timeline) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// head returns when the earliest fire to come is due.
func (t *timeline) head() (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].DueAt, true
}

// entries is a heap by when it is due, then trigger, so that nodes meet ties in the same order.
type entries []*entry

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
	e := x.(*entry)
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
