// Package cache keeps values that can be fetched again, within a bound of memory.
package cache

import "sync"

// Cache is a bounded map that drops the values with the oldest use, half of its room at a time: a used value moves to
// the recent generation, and when that has grown to half of the room, it becomes the older one, and the older one is
// dropped. So the half that was put or used last is always kept. It is safe for concurrent use.
//
// Package golang-lru only counts values, but jobs, groups and broadcasts are bounded by their bytes. It also keeps a
// list next to its map that each Get changes; here a Get of a recent value changes nothing.
type Cache[K comparable, V any] struct {
	half   int // of the room
	sizeOf func(V) int

	mu            sync.Mutex
	size          int // of recent
	recent, older map[K]V
}

// New returns a cache of at most most values, but at least 2.
func New[K comparable, V any](most int) *Cache[K, V] {
	return Sized[K](most, func(V) int { return 1 })
}

// Sized returns a cache of at most most in the unit of sizeOf, plus the size of two values.
func Sized[K comparable, V any](most int, sizeOf func(V) int) *Cache[K, V] {
	return &Cache[K, V]{half: max(1, most/2), sizeOf: sizeOf, recent: map[K]V{}}
}

// Get returns a value, and keeps it for longer.
func (c *Cache[K, V]) Get(key K) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if value, found = c.recent[key]; found {
		return value, true
	}
	if value, found = c.older[key]; found {
		c.put(key, value)
	}
	return value, found
}

// Put stores a value, and replaces an earlier one.
func (c *Cache[K, V]) Put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(key, value)
}

func (c *Cache[K, V]) put(key K, value V) {
	c.drop(key)
	if c.size >= c.half {
		c.older, c.recent, c.size = c.recent, map[K]V{}, 0
	}
	c.recent[key] = value
	c.size += c.sizeOf(value)
}

func (c *Cache[K, V]) drop(key K) {
	if old, found := c.recent[key]; found {
		c.size -= c.sizeOf(old)
		delete(c.recent, key)
	}
	delete(c.older, key)
}

// Delete drops a value.
func (c *Cache[K, V]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
}

// DeleteFunc drops all values that match.
func (c *Cache[K, V]) DeleteFunc(match func(V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, generation := range []map[K]V{c.recent, c.older} {
		for key, value := range generation {
			if match(value) {
				c.drop(key)
			}
		}
	}
}

// Clear drops all values.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent, c.older, c.size = map[K]V{}, nil, 0
}

// Len returns how many values are kept.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.recent) + len(c.older)
}
