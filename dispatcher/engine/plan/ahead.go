package plan

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
)

// ahead is the fires of the window that the poll has only read. Their triggers' definitions and their jobs are read a
// moment before they are due, some at a time. So a poll is short, and a herd that is due at one instant does not fill
// the memory with its jobs. It is safe for concurrent use.
type ahead struct {
	mu     sync.Mutex
	byID   map[int64]dispatcher.DueTrigger
	heap   aheadHeap // may hold entries that are out of date
	full   bool      // a poll found no room
	refill loop.Signal
	Wake   loop.Signal // the head may be earlier than before, or the timeline has room
}

const (
	// mostAhead bounds the fires that are only read. Each takes some 200 bytes.
	mostAhead = 200_000
	// mostAtOnce is how many triggers are looked up at once. A poll that finds no more than that looks all of them up
	// itself: where fires are few, more statements would cost more than they save.
	mostAtOnce = 500
	// Soon is how long before a fire its trigger is looked up.
	Soon = time.Second
)

func newAhead(refill loop.Signal) *ahead {
	return &ahead{byID: map[int64]dispatcher.DueTrigger{}, refill: refill, Wake: loop.NewSignal()}
}

// Add adds a fire, in place of an older one of its trigger. It returns false if there is no room.
func (a *ahead) Add(due dispatcher.DueTrigger) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, there := a.byID[due.ID]
	switch {
	case there && !supersedes(&due, &old):
		return true
	case !there && len(a.byID) >= mostAhead:
		a.full = true
		return false
	}
	a.byID[due.ID] = due
	heap.Push(&a.heap, aheadFire{due.DueAt, due.ID})
	if a.heap[0].id == due.ID {
		a.Wake.Notify()
	}
	return true
}

// has reports whether a fire, or a newer one of its trigger, is ahead.
func (a *ahead) has(due *dispatcher.DueTrigger) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, there := a.byID[due.ID]
	return there && !supersedes(due, &old)
}

// take removes and returns the next fires in order, limit at most, if the first of them is due by until.
func (a *ahead) take(until time.Time, limit int) []dispatcher.DueTrigger {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.prune(); len(a.heap) == 0 || a.heap[0].dueAt.After(until) {
		return nil
	}
	var next []dispatcher.DueTrigger
	for ; len(a.heap) > 0 && len(next) < limit; a.prune() {
		first := heap.Pop(&a.heap).(aheadFire)
		next = append(next, a.byID[first.id])
		delete(a.byID, first.id)
	}
	if a.full && len(a.byID) <= mostAhead/2 {
		a.full = false
		a.refill.Notify()
	}
	return next
}

// prune removes entries that are out of date from the head. a.mu is held.
func (a *ahead) prune() {
	for len(a.heap) > 0 {
		if one, there := a.byID[a.heap[0].id]; there && one.DueAt.Equal(a.heap[0].dueAt) {
			return
		}
		heap.Pop(&a.heap)
	}
}

// Head returns when the earliest fire is due.
func (a *ahead) Head() (at time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.prune(); len(a.heap) == 0 {
		return at, false
	}
	return a.heap[0].dueAt, true
}

func (a *ahead) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.byID)
}

// PlanAhead plans the next fires, if the first of them is due soon. It returns false if there were none.
func (p *Planner) PlanAhead(ctx context.Context, now time.Time) (more bool, err error) {
	if p.Timeline.IsFull() {
		return false, nil
	}
	next := p.Ahead.take(now.Add(Soon), mostAtOnce)
	if len(next) == 0 {
		return false, nil
	}
	next = slices.DeleteFunc(next, func(d dispatcher.DueTrigger) bool { return !p.Fleet.fires(d) }) // the shares may have moved
	due, err := p.Evaluate(ctx, next)
	if err != nil {
		for _, one := range next {
			p.Ahead.Add(one)
		}
		return false, err
	}
	for _, one := range due {
		if !p.Timeline.add(one) {
			p.Ahead.Add(one.DueTrigger)
		}
	}
	return true, nil
}

// aheadFire is the key of a fire in the heap.
type aheadFire struct {
	dueAt time.Time
	id    int64
}

type aheadHeap []aheadFire

func (h aheadHeap) Len() int { return len(h) }

func (h aheadHeap) Less(i, j int) bool {
	if !h[i].dueAt.Equal(h[j].dueAt) {
		return h[i].dueAt.Before(h[j].dueAt)
	}
	return h[i].id < h[j].id
}

func (h aheadHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *aheadHeap) Push(x any) { *h = append(*h, x.(aheadFire)) }

func (h *aheadHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
