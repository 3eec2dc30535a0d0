package pool

import (
	"container/heap"
	"iter"
)

// FairQueue orders items that wait to be claimed, or for a worker. Apps take turns by weight. Within an app, items on
// time go before items that catch up, then a higher priority goes first, and items of one priority leave in the order
// of their arrival. Items of one job that are all on time, or all late, never overtake each other. It is not safe for
// concurrent use.
//
// It is a tree of heaps, of apps, of their hosts, and of the jobs at each host, so that a full app, host or job is
// skipped at once, however many items it has.
type FairQueue[T any] struct {
	nodes map[line]*node[T]
	root  node[T]
	free  []*node[T] // for reuse: most jobs have one item at a time
	moved float64    // how far the app that had the last turn has moved
	seen  int64
}

// mostFree bounds the nodes that are kept for reuse.
const mostFree = 4096

// QueueKey is the queue of a run, and the places that it uses.
type QueueKey struct {
	App, Host string
	Job       int64
	Priority  int  // higher goes first
	AtOnce    int  // the job's own bound of attempts in flight; 0: none
	Late      bool // it catches up
}

// line names a node. A job has two, for its items on time and for those that are late.
type line struct {
	path
	late bool
}

// node holds the waiting items of an app, a host or a job.
type node[T any] struct {
	line
	parent   *node[T]
	children children[T] // those that may go, the next first
	index    int         // among the children of parent; -1: it may not go now
	waiting  int         // in it and all below it
	entries  []entry[T]  // of a job, in order of arrival

	// An app moves on with each item that leaves, by the inverse of its weight, and the app that has
	// moved least is next (stride scheduling).
	moved, weight float64
}

// entry is an item and the time of its arrival.
type entry[T any] struct {
	item T
	key  QueueKey
	at   int64
}

// NewFairQueue returns an empty queue.
func NewFairQueue[T any]() *FairQueue[T] { return &FairQueue[T]{nodes: map[line]*node[T]{}} }

// Len returns how many items wait.
func (f *FairQueue[T]) Len() int { return f.root.waiting }

// Push queues an item. weight is its app's; less than 1 counts as 1.
func (f *FairQueue[T]) Push(item T, in QueueKey, weight int) {
	job := f.find(line{path{ofJob, in.App, in.Host, in.Job}, in.Late})
	job.parent.parent.weight = float64(max(weight, 1))
	f.seen++
	job.entries = append(job.entries, entry[T]{item, in, f.seen})
	job.count(1)
	if job.index < 0 {
		job.attach()
	}
}

// find returns a node, and makes it if it is missing.
func (f *FairQueue[T]) find(at line) *node[T] {
	if at.level == ofPool {
		return &f.root
	}
	if found, ok := f.nodes[at]; ok {
		return found
	}
	made := f.node(at)
	parent := line{path: path{level: at.level - 1, app: at.app}}
	if at.level == ofJob {
		parent.host = at.host
	}
	if made.parent = f.find(parent); at.level == ofApp {
		made.moved = f.moved // an app without waiting items does not save turns
	}
	f.nodes[at] = made
	return made
}

// node returns a node with nothing in it.
func (f *FairQueue[T]) node(at line) *node[T] {
	last := len(f.free) - 1
	if last < 0 {
		return &node[T]{line: at, index: -1}
	}
	made := f.free[last]
	f.free = f.free[:last]
	*made = node[T]{line: at, index: -1, children: made.children[:0], entries: made.entries[:0]}
	return made
}

// All yields the waiting items, in no order.
func (f *FairQueue[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, n := range f.nodes {
			for _, one := range n.entries {
				if !yield(one.item) {
					return
				}
			}
		}
	}
}

// Take removes and returns up to limit items, the next first. It asks admit for a place for each. Items without one
// stay.
func (f *FairQueue[T]) Take(limit int, admit func(QueueKey) Admission) []T {
	var taken []T
	var full []*node[T]
	for len(taken) < limit && len(f.root.children) > 0 {
		job := f.root.head()
		admission := admit(job.entries[0].key)
		if admission == PoolFull {
			break
		}
		if admission == Admitted {
			app := job.parent.parent
			app.moved += 1 / app.weight
			f.moved = app.moved
			taken = append(taken, f.pop(job))
			continue
		}
		at := job
		for range admission - JobFull {
			at = at.parent
		}
		at.detach()
		full = append(full, at)
	}
	for _, n := range full {
		n.attach()
	}
	return taken
}

// pop removes the first item of a job.
func (f *FairQueue[T]) pop(job *node[T]) T {
	first := job.entries[0].item
	job.entries[0] = entry[T]{}
	if len(job.entries) > 1 {
		job.entries = job.entries[1:]
	} else {
		job.entries = job.entries[:0]
	}
	job.count(-1)
	f.changed(job)
	return first
}

// changed moves a job to the place of its first item, and removes it if it has none.
func (f *FairQueue[T]) changed(job *node[T]) {
	if len(job.entries) > 0 {
		job.attach()
		return
	}
	job.detach()
	for n := job; n.parent != nil && n.waiting == 0; n = n.parent {
		delete(f.nodes, n.line)
		if len(f.free) < mostFree {
			f.free = append(f.free, n)
		}
	}
}

// Remove takes out the items that match, wherever they stand.
func (f *FairQueue[T]) Remove(match func(T) bool) []T {
	var removed []T
	for _, n := range f.nodes {
		kept := n.entries[:0:0]
		for _, one := range n.entries {
			if match(one.item) {
				removed = append(removed, one.item)
			} else {
				kept = append(kept, one)
			}
		}
		if gone := len(n.entries) - len(kept); gone > 0 {
			n.entries = kept
			n.count(-gone)
			f.changed(n)
		}
	}
	return removed
}

// head returns the job whose first item is next.
func (n *node[T]) head() *node[T] {
	for n.level < ofJob {
		n = n.children[0]
	}
	return n
}

// count adds to what waits.
func (n *node[T]) count(more int) {
	for ; n != nil; n = n.parent {
		n.waiting += more
	}
}

// attach puts a node, and its ancestors, where their first items belong.
func (n *node[T]) attach() {
	for ; n.parent != nil; n = n.parent {
		if n.index < 0 {
			heap.Push(&n.parent.children, n)
		} else {
			heap.Fix(&n.parent.children, n.index)
		}
	}
}

// detach takes a node out of the order, and each ancestor in which nothing else may go.
func (n *node[T]) detach() {
	heap.Remove(&n.parent.children, n.index)
	switch parent := n.parent; {
	case len(parent.children) > 0:
		parent.attach()
	case parent.parent != nil:
		parent.detach()
	}
}

// children is a heap of nodes.
type children[T any] []*node[T]

func (c children[T]) Len() int { return len(c) }

func (c children[T]) Less(i, j int) bool {
	n, other := c[i], c[j]
	if n.moved != other.moved {
		return n.moved < other.moved
	}
	a, b := &n.head().entries[0], &other.head().entries[0]
	switch {
	case n.level == ofApp: // apps that have moved equally far go in order of arrival
	case a.key.Late != b.key.Late:
		return b.key.Late
	case a.key.Priority != b.key.Priority:
		return a.key.Priority > b.key.Priority
	}
	return a.at < b.at
}

func (c children[T]) Swap(i, j int) {
	c[i], c[j] = c[j], c[i]
	c[i].index, c[j].index = i, j
}

func (c *children[T]) Push(x any) {
	n := x.(*node[T])
	n.index = len(*c)
	*c = append(*c, n)
}

func (c *children[T]) Pop() any {
	last := len(*c) - 1
	n := (*c)[last]
	(*c)[last], n.index = nil, -1
	*c = (*c)[:last]
	return n
}
