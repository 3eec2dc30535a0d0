package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// progress is when each of the node's loops last showed that it turns. A loop that waits for the
// database turns: its statements have deadlines, and it marks each try.
type progress struct {
	mu    sync.Mutex
	loops map[string]loopProgress
}

// loopProgress is what is known of one loop.
type loopProgress struct {
	at       time.Time     // local, monotonic
	interval time.Duration // longest time that the loop rests
}

// leastPatience is more than the statements between two marks of a loop take together, even if each
// of them ends with its deadline.
const leastPatience = 30 * time.Second

// onLoop is the key of a context's mark.
type onLoop struct{}

// watch notes that a loop begins, and returns the context by which its steps mark their progress. A
// loop that ended is no longer watched.
func (p *progress) watch(ctx context.Context, name string, interval time.Duration) (watched context.Context, end func()) {
	mark := func(rests bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.loops, name)
		if !rests {
			p.loops[name] = loopProgress{time.Now(), interval}
		}
	}
	mark(false)
	return context.WithValue(ctx, onLoop{}, mark), func() { mark(true) }
}

// turned marks that the loop of ctx makes progress: it begins a round, a page or another try. In
// tests, which call steps by hand, ctx is of no loop.
func turned(ctx context.Context) { markLoop(ctx, false) }

// rests marks that the loop of ctx waits for something that may never come, until it turns again.
func rests(ctx context.Context) { markLoop(ctx, true) }

func markLoop(ctx context.Context, rests bool) {
	if mark, ok := ctx.Value(onLoop{}).(func(rests bool)); ok {
		mark(rests)
	}
}

// stalled returns the loops without progress for longer than they rest, plus a patience.
func (p *progress) stalled(now time.Time, patience time.Duration) error {
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

// Stalled returns nil while the node's loops turn: heartbeat, poll, sweep, claim, adopt and handler. An
// unreachable database stalls none of them. A loop that is stuck stays stuck, so only a new process
// helps. A node that has not started, or has drained, is not stalled.
func (e *Engine) Stalled(now time.Time) error {
	return e.progress.stalled(now, max(e.opts.DeadAfter, leastPatience))
}
