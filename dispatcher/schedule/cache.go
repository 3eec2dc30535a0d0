package schedule

import (
	"container/list"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Cache parses specs and keeps the results, so that a million triggers with a thousand
// different expressions cost a thousand parses. It is safe for concurrent use.
//
// It keeps the checked expression, which all specs that differ only in their bounds share; the
// Schedule around it is small. It keeps schedules with a repeat count whole, because finding
// their end takes a walk. It keeps problems too.
type Cache struct {
	mu       sync.Mutex
	programs lru[cacheKey, compiled]
	repeated lru[cacheKey, *Schedule]
}

// cacheKey has the time zone data, too: a process may come to use others.
type cacheKey struct {
	Spec
	zones *Zones
}

type compiled struct {
	program *program
	errs    input.Problems
}

// NewCache returns a cache that keeps at most limit expressions and at most limit schedules
// with a repeat count, dropping the least recently used. A limit below 1 means 1.
func NewCache(limit int) *Cache {
	return &Cache{programs: newLRU[cacheKey, compiled](limit), repeated: newLRU[cacheKey, *Schedule](limit)}
}

// Parse is the function Parse, with this cache.
func (c *Cache) Parse(spec Spec) (*Schedule, error) {
	zones := CurrentZones()
	whole := cacheKey{spec.normalised(), zones}
	text := cacheKey{Spec{
		Expression: spec.Expression, Dialect: spec.Dialect, Timezone: spec.Timezone,
		Gap: spec.Gap, Overlap: spec.Overlap, OnExcluded: spec.OnExcluded, DriftHour: spec.DriftHour,
	}, zones}
	if UsesHash(spec.Expression) {
		text.Identity = spec.Identity
	}

	c.mu.Lock()
	if spec.RepeatCount > 0 {
		if s, ok := c.repeated.get(whole); ok {
			c.mu.Unlock()
			return s, nil
		}
	}
	found, ok := c.programs.get(text)
	c.mu.Unlock()

	if !ok {
		found.program, found.errs = compile(text.Spec)
	}
	s, err := finish(spec, found.program, found.errs)

	c.mu.Lock()
	defer c.mu.Unlock()
	if CurrentZones() != zones {
		return s, err // nobody knows which data it was parsed with
	}
	// A text that is too long is a problem of any length, which would take unbounded memory.
	if !ok && len(text.Expression) <= maxText && len(text.Timezone) <= maxText {
		c.programs.put(text, found)
	}
	if err == nil && s.last != nil {
		c.repeated.put(whole, s)
	}
	return s, err
}

// lru is a bounded map that drops the entry unused for longest. It is not safe for
// concurrent use.
type lru[K comparable, V any] struct {
	max     int
	entries map[K]*list.Element
	order   *list.List // of entry[K, V], most recently used first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](most int) lru[K, V] {
	return lru[K, V]{max: max(most, 1), entries: map[K]*list.Element{}, order: list.New()}
}

func (l *lru[K, V]) get(key K) (value V, ok bool) {
	e, ok := l.entries[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(entry[K, V]).value, true
}

func (l *lru[K, V]) put(key K, value V) {
	if e, ok := l.entries[key]; ok {
		l.order.MoveToFront(e)
		e.Value = entry[K, V]{key, value}
		return
	}
	l.entries[key] = l.order.PushFront(entry[K, V]{key, value})
	if l.order.Len() > l.max {
		oldest := l.order.Back()
		delete(l.entries, oldest.Value.(entry[K, V]).key)
		l.order.Remove(oldest)
	}
}
