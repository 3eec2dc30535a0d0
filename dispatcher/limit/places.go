package limit

import (
	"context"
	"sync"
)

// Places bounds how many requests are under way at once, under each of several keys, such as a token and an address. What it
// keeps is bounded by the requests under way.
type Places struct {
	mu    sync.Mutex
	taken map[string]int
	// freed is closed when a place becomes free.
	freed chan struct{}
}

// Place is one of the places under a key, of which there are Most.
type Place struct {
	Key  string
	Most int
}

// NewPlaces returns Places of which none is taken.
func NewPlaces() *Places { return &Places{taken: map[string]int{}, freed: make(chan struct{})} }

// Take waits until there is a place under each key, takes all of them, and returns what to call when the request is over. If
// ctx ends before, Take takes none and returns the first of wanted that is full, and no release.
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
