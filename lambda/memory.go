package lambda

import (
	"context"
	"encoding/json"
	"sync"
)

// Memory keeps fences and the latest results in the memory of one instance. It is safe for
// concurrent use. The zero value is ready to use.
type Memory struct {
	// Most is the number of results that are kept; 0 means 1,000.
	Most int

	mu      sync.Mutex
	results map[string]json.RawMessage
	order   []string
	fences  map[string]int64
}

var (
	_ Results = (*Memory)(nil)
	_ Fences  = (*Memory)(nil)
)

// Result returns the result of an event; nil if there is none.
func (m *Memory) Result(_ context.Context, eventID string) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results[eventID], nil
}

// Keep stores the result of an event, and drops the oldest result if there are too many.
func (m *Memory) Keep(_ context.Context, eventID string, result json.RawMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.results == nil {
		m.results = map[string]json.RawMessage{}
	}
	if _, again := m.results[eventID]; !again {
		m.order = append(m.order, eventID)
	}
	m.results[eventID] = result
	most := m.Most
	if most == 0 {
		most = 1000
	}
	for len(m.order) > most {
		delete(m.results, m.order[0])
		m.order = m.order[1:]
	}
	return nil
}

// Raise sets the fence of a trigger. It returns false, and changes nothing, if the fence is higher.
func (m *Memory) Raise(_ context.Context, trigger string, fence int64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fences == nil {
		m.fences = map[string]int64{}
	}
	if fence < m.fences[trigger] {
		return false, nil
	}
	m.fences[trigger] = fence
	return true, nil
}
