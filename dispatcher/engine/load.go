package engine

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// load counts what the node does, for its heartbeats.
type load struct {
	mu     sync.Mutex
	recent []claims // of the last minute, oldest first
	lag    time.Duration
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

// began notes how late an attempt began.
func (l *load) began(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = max(l.lag, late)
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

// report is what the node says of itself in a heartbeat.
func (e *Engine) report() dispatcher.NodeReport {
	fires, lag := e.metrics.load.read()
	return dispatcher.NodeReport{
		InFlight: e.pool.Held(), Fires: fires, Lag: dispatcher.Duration(lag.Round(time.Millisecond)),
		ClockOffset: dispatcher.Duration(e.clock.offset().Round(time.Millisecond)),
	}
}

// slowLoop lets slow jobs recover.
func (e *Engine) slowLoop(ctx context.Context) {
	e.every(ctx, "slow jobs", time.Minute, nil, func(context.Context, time.Time) error {
		e.pool.NextMinute()
		return nil
	})
}
