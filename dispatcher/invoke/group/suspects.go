package group

import (
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// suspect is an endpoint that could not be connected, or that was ejected because its responses are failures. Until a time,
// it is tried after all others; from then on, the next request that goes to it decides.
type suspect struct {
	url      string // that it had; at another one it is not suspect
	why      string
	ejected  bool
	pause    time.Duration
	until    time.Time
	failedAt time.Time
}

// Bounds of the pause of a suspect, which doubles with each failure.
const (
	firstSuspicion = time.Second
	mostSuspicion  = 30 * time.Second
	firstEjection  = 10 * time.Second
	mostEjection   = 5 * time.Minute
)

// failed notes that an endpoint could not be connected by an attempt that began at began. Of attempts that fail together,
// one counts.
func (s *state) failed(endpoint *target.Endpoint, why string, began, now time.Time) {
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
	known.pause = max(known.pause, min(max(2*known.pause, firstSuspicion), mostSuspicion)) // that of an ejection may be longer
	known.why, known.failedAt, known.until = why, now, now.Add(known.pause)
	s.version = nil
}

// retried notes that a request is about to go to an endpoint. If that was suspect, others wait for what becomes of this
// one.
func (s *state) retried(endpoint string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.suspects[endpoint]; known != nil && !now.Before(known.until) {
		known.until = now.Add(known.pause)
		s.version = nil
	}
}

// succeeded notes that an endpoint could be connected. One that was ejected has to do better; see judged.
func (s *state) succeeded(endpoint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.suspects[endpoint]; known != nil && !known.ejected {
		delete(s.suspects, endpoint)
		s.version = nil
	}
}

// judged notes the outcome of a request that an endpoint of a group got, by an attempt that began at began. After some
// failures in a row, the endpoint is ejected, unless half of the group is ejected already. One success ends that; another
// failure makes the pause longer.
func (s *state) judged(
	group *target.GroupVersion, endpoint *target.Endpoint, outcome run.Outcome, began, now time.Time,
) {
	if group.EjectAfter == 0 || outcome.Class == run.ClassCancelled {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.suspects[endpoint.ID]
	ejected := known != nil && known.ejected && known.url == endpoint.URL
	if !failureOfEndpoint(outcome) {
		delete(s.failures, endpoint.ID)
		if known != nil && known.ejected {
			delete(s.suspects, endpoint.ID)
			s.version = nil
		}
		return
	}
	if ejected && began.Before(known.failedAt) {
		return // it failed together with those that led to the ejection
	}
	if s.failures[endpoint.ID]++; !ejected && (s.failures[endpoint.ID] < group.EjectAfter || s.halfEjected(group, now)) {
		return
	}
	if !ejected {
		known = &suspect{url: endpoint.URL, ejected: true}
		s.suspects[endpoint.ID] = known
	}
	known.pause = min(max(2*known.pause, firstEjection), mostEjection)
	known.why = fmt.Sprintf("ejected after %d failures in a row, the latest of class %s", s.failures[endpoint.ID], outcome.Class)
	known.failedAt, known.until = now, now.Add(known.pause)
	s.version = nil
}

// halfEjected tells whether one endpoint more would make more than half of a group ejected. s.mu is held.
func (s *state) halfEjected(group *target.GroupVersion, now time.Time) bool {
	ejected := 1
	for _, known := range s.suspects {
		if known.ejected && now.Before(known.until) {
			ejected++
		}
	}
	return 2*ejected > len(group.Live)
}

// failureOfEndpoint tells whether an outcome says that an endpoint is in trouble, rather than that it refuses a job.
func failureOfEndpoint(outcome run.Outcome) bool {
	switch outcome.Class {
	case run.ClassHTTP5xx, run.ClassReset, run.ClassTimeout, run.ClassProtocol:
		return true
	}
	return false
}
