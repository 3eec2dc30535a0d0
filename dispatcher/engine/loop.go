package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"iter"
	"log/slog"
	"time"
)

// every calls step at once, then at each interval or wake, until ctx ends, but not more often than
// the shortest pause. It logs a step's error; the next call is the retry. Each call is progress.
func (e *Engine) every(
	ctx context.Context, name string, interval time.Duration, wake <-chan struct{}, step func(context.Context, time.Time) error,
) {
	ctx, end := e.progress.watch(ctx, name, interval)
	defer end()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		turned(ctx)
		pause := shortestPause
		if err := step(ctx, e.clock.now()); err != nil && ctx.Err() == nil {
			e.logIf(ctx, name, err)
			pause += jittered(min(interval, time.Second)) / 2 // nodes do not all come back at once
		}
		sleep(ctx, pause)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-wake:
		}
	}
}

// shortestPause keeps a flood of notifications from becoming a flood of queries.
const shortestPause = 20 * time.Millisecond

// untilAnswered calls ask, which asks the database about count things, until it succeeds or ctx
// ends, and reports whether it succeeded.
func untilAnswered(ctx context.Context, log *slog.Logger, step string, count int, ask func() error) bool {
	for _, pause := range pauses() {
		if ctx.Err() != nil {
			return false
		}
		turned(ctx)
		err := ask()
		if err == nil {
			return true
		}
		log.ErrorContext(ctx, "step failed and is repeated", "step", step, "count", count, "err", err)
		sleep(ctx, pause)
	}
	return false
}

// pauses yields, without end, how many tries have failed before and how long to wait if one more
// does: 100 ms, then twice as long each time, up to 5 s.
func pauses() iter.Seq2[int, time.Duration] {
	return func(yield func(int, time.Duration) bool) {
		for tries, pause := 0, 100*time.Millisecond; yield(tries, pause); tries++ {
			pause = min(2*pause, 5*time.Second)
		}
	}
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// wake makes a loop go round once more. One pending wake-up is enough.
func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// spread returns an interval give or take a tenth.
func spread(interval time.Duration) time.Duration {
	return interval - interval/10 + randomBelow(interval/5+1)
}

// jittered returns half of a pause or more, up to all of it.
func jittered(pause time.Duration) time.Duration { return pause/2 + randomBelow(pause/2+1) }

// randomBelow returns a random part of a pause, which is more than 0. It draws from the source of
// ids, which simulations replace by one that repeats.
func randomBelow(pause time.Duration) time.Duration {
	return time.Duration(random63() % int64(pause))
}

// randomShare returns a random number from 0 to below 1.
func randomShare() float64 { return float64(random63()>>10) / (1 << 53) }

// random63 returns a positive random number: an id or a token.
func random63() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return int64(binary.BigEndian.Uint64(b[:])>>1) | 1
}
