package limit

import (
	"context"
	"sync"
)

// Memory bounds the bytes that requests use at once, in all and for each caller, who may use half of them.
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

// Take waits until caller may use so many bytes, and returns what to call when it does not any more. It returns the error
// of ctx if it has waited in vain. A caller that uses nothing may use any number of bytes that are free, or all there are.
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
