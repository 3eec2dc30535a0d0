// Package loop is the common part of a node's loops: they pause, wake each other, ask the database until it responds,
// and show that they make progress.
package loop

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
)

// ShortestPause keeps a flood of notifications from becoming a flood of queries.
const ShortestPause = 20 * time.Millisecond

// UntilDone calls ask, which asks the database about count things, until it succeeds or ctx ends. It returns true if
// ask succeeded.
func UntilDone(ctx context.Context, log *slog.Logger, step string, count int, ask func() error) bool {
	return Persist(ctx, ask, func(f backoff.Failure) bool {
		level := slog.LevelError
		if f.Tries > 1 { // one line is enough: the step goes on until it succeeds
			level = slog.LevelDebug
		}
		log.Log(ctx, level, "step failed and is repeated", "step", step, "count", count, "err", f.Err)
		return true
	}) == nil
}

// Persist calls ask, which asks the database, until it succeeds, again refuses another try, or ctx ends. Each try is
// progress.
func Persist(ctx context.Context, ask func() error, again func(backoff.Failure) bool) error {
	return backoff.Pauses{First: 100 * time.Millisecond, Most: 5 * time.Second}.Repeat(ctx, func() error {
		Turned(ctx)
		return ask()
	}, again)
}

// Signal makes a loop go round once more. One pending wake-up is enough.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Notify wakes the loop, now or when it waits next.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Spread returns an interval give or take a tenth.
func Spread(interval time.Duration) time.Duration {
	return interval - interval/10 + RandomBelow(interval/5+1)
}

// RandomBelow returns a random part of a pause, which is more than 0. It draws from the source of
// ids, which simulations replace by one that repeats.
func RandomBelow(pause time.Duration) time.Duration {
	return time.Duration(Random() % int64(pause))
}

// RandomShare returns a random number from 0 to below 1.
func RandomShare() float64 { return float64(Random()>>10) / (1 << 53) }

// Random returns a positive random number: an id or a token.
func Random() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return int64(binary.BigEndian.Uint64(b[:])>>1) | 1
}

// lifeKey is the context key of the context that ends with the node, in contexts that end with claiming.
type lifeKey struct{}

// WithLife returns ctx, which ends when claiming does, with the context that ends when the node does.
func WithLife(ctx, life context.Context) context.Context {
	return context.WithValue(ctx, lifeKey{}, life)
}

// WithoutCancel is for statements that win runs or give back locks. A shutdown waits for their responses, within its
// bounds: a statement that is cut off may still be committed after the node has looked for the runs that it won, and
// then these runs are lost with the node.
func WithoutCancel(ctx context.Context) context.Context {
	life, ok := ctx.Value(lifeKey{}).(context.Context)
	if !ok { // a test calls steps by hand
		return context.WithoutCancel(ctx)
	}
	return lasting{life, context.WithoutCancel(ctx)}
}

// lasting has the values of one context until the end of another.
type lasting struct {
	context.Context                 //nolint:containedctx // this is a context
	values          context.Context //nolint:containedctx // the same
}

// Value returns a value of the first context.
func (l lasting) Value(key any) any { return l.values.Value(key) }

// AfterFunc lets package context watch the end without a goroutine.
func (l lasting) AfterFunc(do func()) (stop func() bool) { return context.AfterFunc(l.Context, do) }

// Progress is when each of the node's loops last showed progress. A loop that waits for the database makes progress:
// its statements have deadlines, and it marks each try.
type Progress struct {
	mu    sync.Mutex
	loops map[string]loopProgress
}

type loopProgress struct {
	at       time.Time     // local, monotonic
	interval time.Duration // longest time that the loop rests
}

// onLoop is the key of a context's mark.
type onLoop struct{}

// Watch notes that a loop begins, and returns the context by which its steps mark their progress. A
// loop that ended is no longer watched.
func (p *Progress) Watch(ctx context.Context, name string, interval time.Duration) (watched context.Context, end func()) {
	mark := func(rests bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.loops == nil {
			p.loops = map[string]loopProgress{}
		}
		delete(p.loops, name)
		if !rests {
			p.loops[name] = loopProgress{time.Now(), interval}
		}
	}
	mark(false)
	return context.WithValue(ctx, onLoop{}, mark), func() { mark(true) }
}

// Turned marks that the loop of ctx makes progress: it begins a round, a page or another try. In tests, which call
// steps by hand, ctx has no loop.
func Turned(ctx context.Context) { markLoop(ctx, false) }

// Rests marks that the loop of ctx waits for something that may never come, until it turns again.
func Rests(ctx context.Context) { markLoop(ctx, true) }

func markLoop(ctx context.Context, rests bool) {
	if mark, ok := ctx.Value(onLoop{}).(func(rests bool)); ok {
		mark(rests)
	}
}

// Stalled returns an error that names the loops without progress for longer than their rest and the patience.
func (p *Progress) Stalled(now time.Time, patience time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for name, loop := range p.loops {
		if idle := now.Sub(loop.at); idle > loop.interval+patience {
			errs = append(errs, fmt.Errorf("the %s loop has not turned for %s", name, idle.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}
