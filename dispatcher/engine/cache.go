package engine

// generations is a bounded map that forgets what was not used for longest, half of its room at a time:
// what is used moves to the recent generation, and when that has grown to half of the room, it becomes the
// older one, and the older one goes. So what was put or used last is never dropped. It is not safe for
// concurrent use.
type generations[V any] struct {
	half          int // of the room
	size          int // of recent
	sizeOf        func(V) int
	recent, older map[int64]V
}

// newGenerations returns a cache of at most most in the unit of sizeOf, and of what one more value takes.
func newGenerations[V any](most int, sizeOf func(V) int) generations[V] {
	return generations[V]{half: most / 2, sizeOf: sizeOf, recent: map[int64]V{}, older: map[int64]V{}}
}

func (g *generations[V]) get(id int64) (V, bool) {
	if v, ok := g.recent[id]; ok {
		return v, true
	}
	v, ok := g.older[id]
	if ok {
		delete(g.older, id)
		g.put(id, v)
	}
	return v, ok
}

func (g *generations[V]) put(id int64, v V) {
	g.drop(id)
	if g.size > g.half {
		g.older, g.recent, g.size = g.recent, map[int64]V{}, 0
	}
	g.recent[id] = v
	g.size += g.sizeOf(v)
}

func (g *generations[V]) drop(id int64) {
	if old, ok := g.recent[id]; ok {
		g.size -= g.sizeOf(old)
		delete(g.recent, id)
	}
	delete(g.older, id)
}

// dropIf drops all values that match.
func (g *generations[V]) dropIf(match func(V) bool) {
	for _, generation := range []map[int64]V{g.recent, g.older} {
		for id, v := range generation {
			if match(v) {
				g.drop(id)
			}
		}
	}
}
