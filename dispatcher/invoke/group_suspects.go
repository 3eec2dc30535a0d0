package invoke

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// suspect is an endpoint that could not be connected. Until a time, it is tried after all others; from then on, the next
// request that goes to it decides.
type suspect struct {
	url      string // that it had; at another one it is not suspect
	pause    time.Duration
	until    time.Time
	failedAt time.Time
}

// Bounds of the pause of a suspect, which doubles with each failure.
const (
	firstSuspicion = time.Second
	mostSuspicion  = 30 * time.Second
)

// failed notes that an endpoint could not be connected by an attempt that began at began. Of attempts that fail together,
// one counts.
func (s *groupState) failed(endpoint *dispatcher.Endpoint, began, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.suspects[endpoint.ID]
	switch {
	case known == nil || known.url != endpoint.URL:
		known = &suspect{url: endpoint.URL}
		s.suspects[endpoint.ID] = known
	case began.Before(known.failedAt):
		return
	}
	known.pause = min(max(2*known.pause, firstSuspicion), mostSuspicion)
	known.failedAt, known.until = now, now.Add(known.pause)
	s.version = nil
}

// retried notes that a request is about to go to an endpoint. If that was suspect, others wait for what becomes of this
// one.
func (s *groupState) retried(endpoint string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.suspects[endpoint]; known != nil && !now.Before(known.until) {
		known.until = now.Add(known.pause)
		s.version = nil
	}
}

// succeeded notes that an endpoint could be connected.
func (s *groupState) succeeded(endpoint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspects[endpoint] != nil {
		delete(s.suspects, endpoint)
		s.version = nil
	}
}
