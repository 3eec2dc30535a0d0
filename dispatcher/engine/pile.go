package engine

import "sync"

// pile collects items for one loop, which takes all of them at once. Unlike a batcher it never makes anyone wait.
type pile[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{} // has a value when there are items
}

func newPile[T any]() *pile[T] { return &pile[T]{wake: make(chan struct{}, 1)} }

// add adds items and wakes the loop.
func (p *pile[T]) add(items ...T) {
	if len(items) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.items = append(p.items, items...)
	wake(p.wake)
}

// take removes and returns all items.
func (p *pile[T]) take() []T {
	p.mu.Lock()
	defer p.mu.Unlock()
	items := p.items
	p.items = nil
	return items
}
