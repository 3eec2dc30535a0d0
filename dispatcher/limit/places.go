package limit

import (
	"context"
	"sync"
)

// Places bounds how many requests are under way at once, under each of several keys, such as a token and an address.
// Its memory is bounded by the requests under way.
type Places struct {
	mu    sync.Mutex
	taken map[string]int
	// freed is closed when a place becomes free.
	freed chan struct{}
}

// Place is one of Most places under a key.
type Place struct {
	Key  string
	Most int
}

// NewPlaces returns Places with none taken.
func NewPlaces() *Places { return &Places{taken: map[string]int{}, freed: make(chan struct{})} }

// Take waits until there is a place under each key, takes all of them, and returns a function to call when the
// request is over. If ctx ends before, Take takes none and returns the first of wanted that is full, and no release.
func (p *Places) Take(ctx context.Context, wanted ...Place) (release func(), full Place) {
	for {
		full, freed := p.try(wanted)
		if freed == nil {
			return sync.OnceFunc(func() { p.release(wanted) }), Place{}
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, full
		}
	}
}

// try takes the places if all are free, otherwise it returns one that is not, and a channel that is closed when some place
// becomes free.
func (p *Places) try(wanted []Place) (full Place, freed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range wanted {
		if p.taken[one.Key] >= one.Most {
			return one, p.freed
		}
	}
	for _, one := range wanted {
		p.taken[one.Key]++
	}
	return Place{}, nil
}

// Len returns the number of keys with taken places.
func (p *Places) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken)
}

func (p *Places) release(taken []Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range taken {
		if p.taken[one.Key]--; p.taken[one.Key] <= 0 {
			delete(p.taken, one.Key)
		}
	}
	close(p.freed)
	p.freed = make(chan struct{})
}

// Memory bounds the bytes that requests use at once, in total and for each caller, which may use half of them.
type Memory struct {
	total int64

	mu       sync.Mutex
	used     int64
	byCaller map[string]int64
	// freed is closed when memory becomes free.
	freed chan struct{}
}

// NewMemory returns a Memory of total bytes.
func NewMemory(total int64) *Memory {
	return &Memory{total: total, byCaller: map[string]int64{}, freed: make(chan struct{})}
}

// Take waits until caller may use the bytes, and returns a function that releases them. It returns the error of ctx
// if that ends first. A caller that uses none may use any number of free bytes, or the total.
func (m *Memory) Take(ctx context.Context, caller string, bytes int64) (release func(), err error) {
	bytes = min(bytes, m.total)
	for {
		freed, ok := m.try(caller, bytes)
		if ok {
			return sync.OnceFunc(func() { m.release(caller, bytes) }), nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try takes bytes if they are free, otherwise it returns a channel that is closed when some become free.
func (m *Memory) try(caller string, bytes int64) (freed chan struct{}, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.byCaller[caller]
	if m.used+bytes > m.total || own > 0 && own+bytes > m.total/2 {
		return m.freed, false
	}
	m.used += bytes
	m.byCaller[caller] = own + bytes
	return nil, true
}

func (m *Memory) release(caller string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= bytes
	if m.byCaller[caller] -= bytes; m.byCaller[caller] <= 0 {
		delete(m.byCaller, caller)
	}
	close(m.freed)
	m.freed = make(chan struct{})
}
