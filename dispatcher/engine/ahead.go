package engine

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// ahead is the fires of the window that the poll has only read: their triggers' definitions and their jobs are
// read a moment before they are due, some at a time. So a poll is short, and a herd that is due at one instant
// does not fill the memory with its jobs. It is safe for concurrent use.
type ahead struct {
	mu     sync.Mutex
	byID   map[int64]dispatcher.DueTrigger
	heap   aheadHeap // may hold what is out of date
	full   bool      // a poll found no room
	refill chan<- struct{}
	wake   chan struct{} // the head may be earlier than before, or the timeline has room
}

const (
	// mostAhead bounds the fires that are only read. Each takes some 200 bytes.
	mostAhead = 200_000
	// mostAtOnce is how many triggers are looked up at once. A poll that finds no more than that looks all of them
	// up itself: where fires are few, more statements would cost more than they save.
	mostAtOnce = 500
	// soon is how long before a fire is due its trigger is looked up.
	soon = time.Second
)

func newAhead(refill chan<- struct{}) *ahead {
	return &ahead{byID: map[int64]dispatcher.DueTrigger{}, refill: refill, wake: make(chan struct{}, 1)}
}

// add adds a fire, in place of an older one of its trigger. It returns false if there is no room.
func (a *ahead) add(due dispatcher.DueTrigger) bool {
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
		wake(a.wake)
	}
	return true
}

// has reports whether a fire is there, or a newer one of its trigger.
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
		wake(a.refill)
	}
	return next
}

// prune removes what is out of date from the head. a.mu is held.
func (a *ahead) prune() {
	for len(a.heap) > 0 {
		if one, there := a.byID[a.heap[0].id]; there && one.DueAt.Equal(a.heap[0].dueAt) {
			return
		}
		heap.Pop(&a.heap)
	}
}

// head returns when the earliest fire is due.
func (a *ahead) head() (at time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.prune(); len(a.heap) == 0 {
		return at, false
	}
	return a.heap[0].dueAt, true
}

func (a *ahead) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.byID)
}

// aheadLoop looks up the triggers of the fires that are due soon.
func (e *Engine) aheadLoop(ctx context.Context) {
	ctx, end := e.progress.watch(ctx, "ahead", claimPause)
	defer end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		turned(ctx)
		more, err := e.planAhead(ctx, e.clock.now())
		switch {
		case err != nil:
			e.logIf(ctx, "look up triggers", err)
			sleep(ctx, leasePause)
			continue
		case more:
			continue
		}
		wait := claimPause // unless a poll, or room in the timeline, ends it earlier
		if head, ok := e.ahead.head(); ok && !e.timeline.isFull() {
			wait = min(wait, e.clock.until(head.Add(-soon)))
		}
		timer.Reset(max(wait, shortestPause))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-e.ahead.wake:
		}
	}
}

// planAhead plans the next fires, if the first of them is due soon. It reports whether there were any.
func (e *Engine) planAhead(ctx context.Context, now time.Time) (more bool, err error) {
	if e.timeline.isFull() {
		return false, nil
	}
	next := e.ahead.take(now.Add(soon), mostAtOnce)
	if len(next) == 0 {
		return false, nil
	}
	next = slices.DeleteFunc(next, func(d dispatcher.DueTrigger) bool { return !e.fleet.fires(d) }) // the shares may have moved
	due, err := e.evaluate(ctx, next)
	if err != nil {
		for _, one := range next {
			e.ahead.add(one)
		}
		return false, err
	}
	for _, one := range due {
		if !e.timeline.add(one) {
			e.ahead.add(one.DueTrigger)
		}
	}
	return true, nil
}

// aheadFire is a fire in order.
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
