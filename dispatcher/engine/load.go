package engine

import (
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// tally counts what the node does, for its heartbeats.
type tally struct {
	mu     sync.Mutex
	recent []claims // of the last minute, oldest first
	lag    time.Duration
}

// claims is how many fires were claimed about a time.
type claims struct {
	at    time.Time
	fires int
}

// claimed counts fires.
func (t *tally) claimed(fires int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if last := len(t.recent) - 1; last >= 0 && now.Sub(t.recent[last].at) < time.Second {
		t.recent[last].fires += fires
		return
	}
	t.recent = append(t.recent, claims{now, fires})
}

// began notes how late an attempt began.
func (t *tally) began(late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lag = max(t.lag, late)
}

// read returns the fires of the last minute, and the lag since the last call.
func (t *tally) read() (fires int, lag time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for len(t.recent) > 0 && now.Sub(t.recent[0].at) > time.Minute {
		t.recent = t.recent[1:]
	}
	for _, c := range t.recent {
		fires += c.fires
	}
	lag, t.lag = t.lag, 0
	return fires, lag
}

// report is what the node says of itself.
func (e *Engine) report() dispatcher.NodeReport {
	fires, lag := e.work.read()
	return dispatcher.NodeReport{
		InFlight: e.pool.held(), Fires: fires, Lag: dispatcher.Duration(lag.Round(time.Millisecond)),
		ClockOffset: dispatcher.Duration(e.clock.offset().Round(time.Millisecond)),
	}
}
