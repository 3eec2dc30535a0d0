package pool

import (
	"container/heap"
	"slices"
	"time"
)

// pending is the runs that are not due yet, as a heap by due time.
type pending[T any] struct {
	runs  []*Run[T]
	timer *time.Timer // fires when the first of them is due; nil before Start
}

// queueDue queues the runs that are due and sets the timer for the next. p.mu is held.
func (p *Pool[T]) queueDue() {
	if p.pending.timer == nil {
		return // Start calls it again
	}
	for p.pending.Len() > 0 && !p.closing.closed {
		if wait := p.work.Until(p.pending.runs[0].Due); wait > 0 {
			p.pending.timer.Reset(wait)
			break
		}
		p.enqueue(heap.Pop(&p.pending).(*Run[T]))
	}
	p.dispatch()
}

func (h *pending[T]) Len() int           { return len(h.runs) }
func (h *pending[T]) Less(i, j int) bool { return h.runs[i].Due.Before(h.runs[j].Due) }
func (h *pending[T]) Swap(i, j int)      { h.runs[i], h.runs[j] = h.runs[j], h.runs[i] }
func (h *pending[T]) Push(x any)         { h.runs = append(h.runs, x.(*Run[T])) }

func (h *pending[T]) Pop() any {
	last := len(h.runs) - 1
	run := h.runs[last]
	h.runs[last] = nil
	h.runs = h.runs[:last]
	return run
}

// remove takes out the runs that match.
func (h *pending[T]) remove(match func(*Run[T]) bool) (removed []*Run[T]) {
	h.runs = slices.DeleteFunc(h.runs, func(run *Run[T]) bool {
		if match(run) {
			removed = append(removed, run)
			return true
		}
		return false
	})
	heap.Init(h)
	return removed
}
