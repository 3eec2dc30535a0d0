package engine

import (
	"context"
	"sync"
	"time"
)

// slowJobs are the jobs whose attempts take long. They have a share of the pool of their own,
// so that they do not keep others waiting, until they recover. (XXL-JOB has a fast and a slow
// pool of threads by the same rule.)
type slowJobs struct {
	mu sync.Mutex
	// attempts counts the slow attempts of each job in this minute and in the one before.
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

// is tells whether a job counts as slow: by its attempts of the last minute or two, or because
// one is slow right now, and may be the first of many that hang.
func (s *slowJobs) is(job int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight[job] > 0 || s.attempts[job] > slowAttempts || s.before[job] > slowAttempts
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

// turn begins a minute.
func (s *slowJobs) turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.attempts = s.attempts, map[int64]int{}
}

// slowLoop lets slow jobs recover.
func (e *Engine) slowLoop(ctx context.Context) {
	e.every(ctx, "slow jobs", time.Minute, nil, func(context.Context, time.Time) error {
		e.pool.slow.turn()
		return nil
	})
}
