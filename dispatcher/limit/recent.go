package limit

// Recent keeps values by key, and forgets those that were not stored for the longest time. It is not safe for concurrent
// use.
type Recent[K comparable, V any] struct {
	// When recent has half of most, it becomes older, and what was older is forgotten.
	recent, older map[K]V
	most          int
}

// NewRecent returns a Recent of most keys at most.
func NewRecent[K comparable, V any](most int) *Recent[K, V] {
	return &Recent[K, V]{recent: map[K]V{}, most: max(2, most)}
}

// Get returns the value of a key.
func (r *Recent[K, V]) Get(key K) (value V, found bool) {
	if value, found = r.recent[key]; !found {
		value, found = r.older[key]
	}
	return value, found
}

// Put stores the value of a key.
func (r *Recent[K, V]) Put(key K, value V) {
	if _, there := r.recent[key]; !there && len(r.recent) >= r.most/2 {
		r.older, r.recent = r.recent, make(map[K]V)
	}
	r.recent[key] = value
}

// Delete forgets a key.
func (r *Recent[K, V]) Delete(key K) {
	delete(r.recent, key)
	delete(r.older, key)
}

// Clear forgets everything.
func (r *Recent[K, V]) Clear() { r.recent, r.older = map[K]V{}, nil }

// Len returns how many values are kept; one that is stored again may count twice.
func (r *Recent[K, V]) Len() int { return len(r.recent) + len(r.older) }
