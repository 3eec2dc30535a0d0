package pool

import (
	"iter"
	"slices"
)

// FairQueue orders what waits to be claimed, or for a worker. Apps take turns by weight. Within an
// app, items on time go before items that catch up, then a higher priority goes first, and items of
// one priority leave in the order in which they came. Items of one queue never overtake each other.
// It is not safe for concurrent use.
type FairQueue[T any] struct {
	queues map[QueueKey]*queue[T]
	turns  map[string]*turn[T] // by app, those with something waiting
	moved  float64             // how far the app that had the last turn has moved
	count  int
	seen   int64
}

// QueueKey names a queue: items that have all of it in common wait in one line.
type QueueKey struct {
	App, Host string
	Priority  int // higher goes first
	AtOnce    int // the job's own bound of attempts in flight to the host; 0: none
	Slow      bool
	Late      bool // it catches up
}

// MayBeSlow reports whether slow attempts may move to the slow share. A job with a bound of its own
// takes no more places than that, and would have it twice.
func (k QueueKey) MayBeSlow() bool { return k.AtOnce == 0 }

// queue is what waits under one key, in the order in which it came.
type queue[T any] struct {
	QueueKey
	entries []queueEntry[T]
	closed  bool // for the rest of one Take
}

// queueEntry is an item and when it came.
type queueEntry[T any] struct {
	item T
	at   int64
}

// turn is an app's place among the apps. Each item that leaves moves its app on by the inverse of
// its weight, and the app that has moved least is next (stride scheduling).
type turn[T any] struct {
	weight float64
	moved  float64
	queues []*queue[T]
}

// NewFairQueue returns an empty queue.
func NewFairQueue[T any]() *FairQueue[T] {
	return &FairQueue[T]{queues: map[QueueKey]*queue[T]{}, turns: map[string]*turn[T]{}}
}

// Push queues an item. weight is its app's; less than 1 counts as 1.
func (f *FairQueue[T]) Push(item T, in QueueKey, weight int) {
	q, ok := f.queues[in]
	if !ok {
		q = &queue[T]{QueueKey: in}
		f.queues[in] = q
		t, ok := f.turns[in.App]
		if !ok {
			// An app that had nothing waiting has saved no turns up.
			t = &turn[T]{moved: f.moved}
			f.turns[in.App] = t
		}
		t.queues = append(t.queues, q)
	}
	f.turns[in.App].weight = float64(max(weight, 1))
	f.count++
	f.seen++
	q.entries = append(q.entries, queueEntry[T]{item, f.seen})
}

// All yields what waits, in no order.
func (f *FairQueue[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, q := range f.queues {
			for _, entry := range q.entries {
				if !yield(entry.item) {
					return
				}
			}
		}
	}
}

// Take removes and returns up to limit items, the next first. It asks admit before each. When admit
// refuses, the rest of that queue stays.
func (f *FairQueue[T]) Take(limit int, admit func(QueueKey) bool) []T {
	var taken []T
	var closed []*queue[T]
	for len(taken) < limit {
		q, t := f.next()
		if q == nil {
			break
		}
		if !admit(q.QueueKey) {
			q.closed = true
			closed = append(closed, q)
			continue
		}
		taken = append(taken, q.entries[0].item)
		q.entries[0] = queueEntry[T]{}
		q.entries = q.entries[1:]
		f.count--
		t.moved += 1 / t.weight
		f.moved = t.moved
		if len(q.entries) == 0 {
			f.drop(q)
		}
	}
	for _, q := range closed {
		q.closed = false
	}
	return taken
}

// next returns the queue whose head is next, or nil if none may go.
func (f *FairQueue[T]) next() (next *queue[T], of *turn[T]) {
	for _, t := range f.turns {
		if of != nil && t.moved > of.moved {
			continue
		}
		best := t.best()
		// Two apps that have moved equally far go in the order in which they came: a map has none.
		if best == nil || of != nil && t.moved == of.moved && best.entries[0].at > next.entries[0].at {
			continue
		}
		next, of = best, t
	}
	return next, of
}

// best returns the queue of an app whose head is next, or nil if none may go.
func (t *turn[T]) best() (best *queue[T]) {
	for _, q := range t.queues {
		if q.closed {
			continue
		}
		if best == nil || q.before(best) {
			best = q
		}
	}
	return best
}

// before reports whether the head of q goes before that of another queue of the app.
func (q *queue[T]) before(other *queue[T]) bool {
	switch {
	case q.Late != other.Late:
		return other.Late
	case q.Priority != other.Priority:
		return q.Priority > other.Priority
	}
	return q.entries[0].at < other.entries[0].at
}

// Remove takes out the items that match, wherever they stand.
func (f *FairQueue[T]) Remove(match func(T) bool) []T {
	var removed []T
	for _, q := range f.queues {
		kept := q.entries[:0:0]
		for _, e := range q.entries {
			if match(e.item) {
				removed = append(removed, e.item)
			} else {
				kept = append(kept, e)
			}
		}
		f.count -= len(q.entries) - len(kept)
		if q.entries = kept; len(kept) == 0 {
			f.drop(q)
		}
	}
	return removed
}

// drop forgets a queue that is empty.
func (f *FairQueue[T]) drop(q *queue[T]) {
	delete(f.queues, q.QueueKey)
	t := f.turns[q.App]
	if i := slices.Index(t.queues, q); i >= 0 {
		last := len(t.queues) - 1
		t.queues[i], t.queues[last] = t.queues[last], nil
		t.queues = t.queues[:last]
	}
	if len(t.queues) == 0 {
		delete(f.turns, q.App)
	}
}

// Len returns how many items wait.
func (f *FairQueue[T]) Len() int { return f.count }
