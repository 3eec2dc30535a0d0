package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
)

// every calls step at once, then at each interval or wake, until ctx ends, but not more often than
// the shortest pause. It logs a step's error; the next call is the retry. Each call is progress.
func (e *Engine) every(
	ctx context.Context, name string, interval time.Duration, wake <-chan struct{}, step func(context.Context, time.Time) error,
) {
	e.everyTurn(ctx, name, interval, wake, func(time.Time) bool { return true }, step)
}

// everyTurn is every for a step of which an interval passes that is not this node's turn.
func (e *Engine) everyTurn(
	ctx context.Context, name string, interval time.Duration, wake <-chan struct{}, mine func(time.Time) bool,
	step func(context.Context, time.Time) error,
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
		for asked := false; !asked && ctx.Err() == nil; turned(ctx) {
			select {
			case <-ctx.Done():
			case <-ticker.C:
				asked = mine(e.clock.now())
			case <-wake:
				asked = true
			}
		}
	}
}

// shortestPause keeps a flood of notifications from becoming a flood of queries.
const shortestPause = 20 * time.Millisecond

// untilDone calls ask, which asks the database about count things, until it succeeds or ctx
// ends, and reports whether it succeeded.
func untilDone(ctx context.Context, log *slog.Logger, step string, count int, ask func() error) bool {
	return persist(ctx, ask, func(f backoff.Failure) bool {
		log.ErrorContext(ctx, "step failed and is repeated", "step", step, "count", count, "err", f.Err)
		return true
	}) == nil
}

// persist calls ask, which asks the database, until it succeeds, again refuses another try or ctx ends. Each
// try is progress.
func persist(ctx context.Context, ask func() error, again func(backoff.Failure) bool) error {
	return backoff.Pauses{First: 100 * time.Millisecond, Most: 5 * time.Second}.Repeat(ctx, func() error {
		turned(ctx)
		return ask()
	}, again)
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) { backoff.Sleep(ctx, d) }

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
