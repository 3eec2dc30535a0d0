package pool

import (
	"sync"
	"time"
)

// slowJobs are the jobs whose attempts take long. They have a share of the pool of their own until
// they recover, so that others need not wait for them. (XXL-JOB has a fast and a slow thread pool
// by the same rule.)
type slowJobs struct {
	mu sync.Mutex
	// attempts counts the slow attempts of each job in this minute, before those in the last.
	attempts, before map[int64]int
	// inFlight counts the attempts under way that have become slow.
	inFlight map[int64]int
}

const (
	// slowAfter is how long an attempt may take before it counts as slow.
	slowAfter = 500 * time.Millisecond
	// slowAttempts in a minute are allowed before the job counts as slow.
	slowAttempts = 10
)

func newSlowJobs() *slowJobs {
	return &slowJobs{attempts: map[int64]int{}, before: map[int64]int{}, inFlight: map[int64]int{}}
}

// IsSlow reports whether a job counts as slow: by its attempts of the last minute or two, or because
// one is slow now and may be the first of many that hang.
func (p *Pool[T]) IsSlow(job int64) bool {
	s := p.slow
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight[job] > 0 || s.attempts[job] > slowAttempts || s.before[job] > slowAttempts
}

// NextMinute lets slow jobs recover. Call it once a minute.
func (p *Pool[T]) NextMinute() {
	s := p.slow
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.attempts = s.attempts, map[int64]int{}
}

// began notes that an attempt under way has become slow.
func (s *slowJobs) began(job int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[job]++
	s.inFlight[job]++
}

// ended notes the end of an attempt that had become slow.
func (s *slowJobs) ended(job int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[job]--; s.inFlight[job] == 0 {
		delete(s.inFlight, job)
	}
}
