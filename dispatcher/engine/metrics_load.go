package engine

import (
	"sync"
	"time"
)

// load counts what the node does, for its heartbeats.
type load struct {
	mu     sync.Mutex
	recent []claims // of the last minute, oldest first
	lag    time.Duration
	late   largest // of first attempts
}

// claims is how many fires were claimed within a second.
type claims struct {
	at    time.Time
	fires int
}

// claimed counts fires.
func (l *load) claimed(fires int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last := len(l.recent) - 1; last >= 0 && now.Sub(l.recent[last].at) < time.Second {
		l.recent[last].fires += fires
		return
	}
	l.recent = append(l.recent, claims{now, fires})
}

// began notes how late an attempt began. first says that it is the first of a scheduled fire.
func (l *load) began(late time.Duration, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = max(l.lag, late)
	if first {
		l.late.add(late, time.Now())
	}
}

// latest returns how late the latest first attempt of the last minute began.
func (l *load) latest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late.read(time.Now())
}

// read returns the fires of the last minute, and the lag since the last call.
func (l *load) read() (fires int, lag time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.recent) > 0 && now.Sub(l.recent[0].at) > time.Minute {
		l.recent = l.recent[1:]
	}
	for _, c := range l.recent {
		fires += c.fires
	}
	lag, l.lag = l.lag, 0
	return fires, lag
}
