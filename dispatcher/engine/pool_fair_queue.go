package engine

// fairQueue orders what waits to be claimed, or for a worker: apps take turns by their
// weights, within an app what is on time goes before what catches up, then the higher priority
// goes first, and of one priority what was queued first. Things of one lane leave in the order in which they came. It is not safe for
// concurrent use.
type fairQueue[T any] struct {
	lines map[lane]*line[T]
	turns map[string]*turn[T] // by app, those with something waiting
	moved float64             // how far the app that had the last turn has moved
	count int
	seen  int64
}

// lane is what things have in common as far as their place in line goes.
type lane struct {
	app, host string
	priority  int // higher goes first
	atOnce    int // how many of the host's may be executed at once; 0: as many as of any
	slow      bool
	late      bool // it catches up
}

// mayBeSlow tells whether what takes long may move to the slow share. What has a bound of its own
// takes no more places than that, and would have it twice.
func (l lane) mayBeSlow() bool { return l.atOnce == 0 }

// line is what waits in one lane, in the order in which it came.
type line[T any] struct {
	lane
	items  []ticket[T]
	closed bool // for the rest of one take
}

// ticket tells who came first.
type ticket[T any] struct {
	item T
	at   int64
}

// turn is an app's place among the apps. Each thing that leaves moves its app on by the
// inverse of its weight, and the app that has moved least is next (stride scheduling).
type turn[T any] struct {
	weight float64
	moved  float64
	lines  []*line[T]
}

func newFairQueue[T any]() *fairQueue[T] {
	return &fairQueue[T]{lines: map[lane]*line[T]{}, turns: map[string]*turn[T]{}}
}

// push queues an item. weight is its app's; less than 1 counts as 1.
func (q *fairQueue[T]) push(item T, in lane, weight int) {
	l, ok := q.lines[in]
	if !ok {
		l = &line[T]{lane: in}
		q.lines[in] = l
		t, ok := q.turns[in.app]
		if !ok {
			// Who had nothing waiting has saved nothing up.
			t = &turn[T]{moved: q.moved}
			q.turns[in.app] = t
		}
		t.lines = append(t.lines, l)
	}
	q.turns[in.app].weight = float64(max(weight, 1))
	q.count++
	q.seen++
	l.items = append(l.items, ticket[T]{item, q.seen})
}

// take removes and returns up to limit items, the next first. admit is asked before each;
// when it refuses, the rest of that lane stays.
func (q *fairQueue[T]) take(limit int, admit func(lane) bool) []T {
	var taken []T
	var closed []*line[T]
	for len(taken) < limit {
		l, t := q.next()
		if l == nil {
			break
		}
		if !admit(l.lane) {
			l.closed = true
			closed = append(closed, l)
			continue
		}
		taken = append(taken, l.items[0].item)
		l.items[0] = ticket[T]{}
		l.items = l.items[1:]
		q.count--
		t.moved += 1 / t.weight
		q.moved = t.moved
		if len(l.items) == 0 {
			q.drop(l)
		}
	}
	for _, l := range closed {
		l.closed = false
	}
	return taken
}

// next returns the line whose head is next, nil if none may go.
func (q *fairQueue[T]) next() (next *line[T], of *turn[T]) {
	for _, t := range q.turns {
		if of != nil && t.moved > of.moved {
			continue
		}
		best := t.best()
		// Of two apps that have moved equally far, who came first: a map has no order.
		if best == nil || of != nil && t.moved == of.moved && best.items[0].at > next.items[0].at {
			continue
		}
		next, of = best, t
	}
	return next, of
}

// best returns the line of an app whose head is next, nil if none may go.
func (t *turn[T]) best() (best *line[T]) {
	for _, l := range t.lines {
		if l.closed {
			continue
		}
		if best == nil || l.before(best) {
			best = l
		}
	}
	return best
}

// before tells whether the head of l goes before that of another line of the app.
func (l *line[T]) before(other *line[T]) bool {
	switch {
	case l.late != other.late:
		return other.late
	case l.priority != other.priority:
		return l.priority > other.priority
	}
	return l.items[0].at < other.items[0].at
}

// remove takes out what matches, wherever it stands.
func (q *fairQueue[T]) remove(match func(T) bool) []T {
	var removed []T
	for _, l := range q.lines {
		kept := l.items[:0:0]
		for _, t := range l.items {
			if match(t.item) {
				removed = append(removed, t.item)
			} else {
				kept = append(kept, t)
			}
		}
		q.count -= len(l.items) - len(kept)
		if l.items = kept; len(kept) == 0 {
			q.drop(l)
		}
	}
	return removed
}

// drop forgets a line that is empty.
func (q *fairQueue[T]) drop(l *line[T]) {
	delete(q.lines, l.lane)
	t := q.turns[l.app]
	for i := range t.lines {
		if t.lines[i] == l {
			last := len(t.lines) - 1
			t.lines[i], t.lines[last] = t.lines[last], nil
			t.lines = t.lines[:last]
			break
		}
	}
	if len(t.lines) == 0 {
		delete(q.turns, l.app)
	}
}

// len returns how many items wait.
func (q *fairQueue[T]) len() int { return q.count }
