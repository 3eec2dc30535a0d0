package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// permits ask the database, in batches, for permission to begin runs. There are three kinds:
//   - Begin, for at_most_once jobs: it commits that a request is about to be sent. A run that was begun is never
//     repeated; if its node dies, it ends as lost.
//   - Acquire, for jobs that limit how many of their runs there may be at once: it takes a slot.
//   - AcquireEndpoints, for jobs that send one run at a time to an endpoint: it takes the endpoint's slot.
//
// The inputs and states that runs need before they begin are read in the same way: see stateReads and inputReads.
type permits[Q, A any] struct {
	batcher[permitRequest[Q, A]]
	step  string
	key   func(Q) pool.AttemptKey
	grant func(context.Context, []Q) (map[pool.AttemptKey]A, error)
	log   *slog.Logger
}

// permitRequest is the request of a run, and the channel for the response.
type permitRequest[Q, A any] struct {
	asks    Q
	granted chan A // has room for the response
}

// runPermits are permits to begin a run: yes or no.
type runPermits = permits[run.HeldRun, bool]

// newRunPermits returns permits by grant, which returns the runs that may begin.
func newRunPermits(
	step string, grant func(context.Context, []run.HeldRun) ([]run.HeldRun, error), batch int, log *slog.Logger,
) *runPermits {
	return newPermits(step, pool.KeyOf, func(ctx context.Context, runs []run.HeldRun) (map[pool.AttemptKey]bool, error) {
		may, err := grant(ctx, runs)
		granted := make(map[pool.AttemptKey]bool, len(may))
		for _, run := range may {
			granted[pool.KeyOf(run)] = true
		}
		return granted, err
	}, batch, log)
}

// newPermits returns permits by grant, which returns a response for each request that it grants. key returns the
// attempt that a request is for.
func newPermits[Q, A any](
	step string, key func(Q) pool.AttemptKey, grant func(context.Context, []Q) (map[pool.AttemptKey]A, error), batch int, log *slog.Logger,
) *permits[Q, A] {
	p := &permits[Q, A]{step: step, key: key, grant: grant, log: log}
	p.batcher = batcher[permitRequest[Q, A]]{inbox: make(chan permitRequest[Q, A], batch), most: batch, handle: p.respond}
	return p
}

// request returns the response to a request. It waits for the database. The zero value means that the run may not
// begin, for example because another node has it by now, or because ctx ended.
func (p *permits[Q, A]) request(ctx context.Context, asks Q) (none A) {
	one := permitRequest[Q, A]{asks, make(chan A, 1)}
	select {
	case p.inbox <- one:
	case <-ctx.Done():
		return none
	}
	select {
	case granted := <-one.granted:
		return granted
	case <-ctx.Done():
		return none
	}
}

// respond asks for one batch until the database responds. Asking again is harmless; guessing the response could send a
// request twice or not at all. Requests that the database could not decide are asked again with a later batch, so that
// they do not delay the others.
func (p *permits[Q, A]) respond(ctx context.Context, batch []permitRequest[Q, A]) {
	asked := make([]Q, len(batch))
	for i := range batch {
		asked[i] = batch[i].asks
	}
	var granted map[pool.AttemptKey]A
	undecided := map[pool.AttemptKey]bool{}
	loop.UntilDone(ctx, p.log, p.step, len(asked), func() (err error) {
		granted, err = p.grant(ctx, asked)
		if some, is := errors.AsType[*dispatcher.UndecidedError](err); is {
			for _, run := range some.Runs {
				undecided[pool.KeyOf(run)] = true
			}
			return nil
		}
		return err
	})
	for _, one := range batch {
		if key := p.key(one.asks); undecided[key] {
			time.AfterFunc(loop.Spread(undecidedPause), func() {
				var none A
				select {
				case p.inbox <- one:
				case <-ctx.Done():
					one.granted <- none
				}
			})
		} else {
			one.granted <- granted[key]
		}
	}
}

// undecidedPause is how long a run of a locked job waits. A change of the definition, which may hold the lock, mostly
// takes less.
const undecidedPause = 100 * time.Millisecond

// begin commits that a request is about to be sent, for a job that wants it at most once. It is a step of an attempt.
func (e *Engine) begin(ctx context.Context, a *attempt) result {
	if occupies(a) {
		return proceed // it begins once it has the slot of an endpoint
	}
	if a.call.Delivery != dispatcher.AtMostOnce {
		return proceed
	}
	return allowed(e.begins.request(ctx, a.run.HeldRun))
}

// batcher collects items and handles them in batches, one batch at a time: a lone item at once, and under load as many
// as fill a batch.
type batcher[T any] struct {
	inbox chan T
	most  int // in one batch
	// busy reports whether more items come soon, so that a batch waits for them; nil: no batch waits.
	busy func() bool
	// handle handles a batch. It must not keep the slice, which is used again.
	handle func(ctx context.Context, batch []T)
	batch  []T
}

// batchWait is how long a batch may fill. If the node dies meanwhile, its requests are repeated, so
// it is short compared with a request.
const batchWait = 25 * time.Millisecond

// run handles items until ctx ends.
func (b *batcher[T]) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-b.inbox:
			batch := b.fill(ctx, first)
			b.handle(ctx, batch)
			clear(batch)
		}
	}
}

// fill returns a batch that begins with first.
func (b *batcher[T]) fill(ctx context.Context, first T) []T {
	if b.batch == nil {
		b.batch = make([]T, 0, b.most)
	}
	batch := append(b.batch, first)
	if b.busy == nil || !b.busy() && len(b.inbox) == 0 {
		for len(batch) < b.most && len(b.inbox) > 0 {
			batch = append(batch, <-b.inbox)
		}
		return batch
	}
	filled := time.NewTimer(batchWait)
	defer filled.Stop()
	for len(batch) < b.most {
		select {
		case next := <-b.inbox:
			batch = append(batch, next)
		case <-filled.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// pile collects items for one loop, which takes all of them at once. Unlike a batcher it never makes the caller wait.
type pile[T any] struct {
	mu    sync.Mutex
	items []T
	wake  loop.Signal // has a value when there are items
}

func newPile[T any]() *pile[T] { return &pile[T]{wake: loop.NewSignal()} }

// add adds items and wakes the loop.
func (p *pile[T]) add(items ...T) {
	if len(items) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.items = append(p.items, items...)
	p.wake.Notify()
}

// serve calls do, which takes the items, whenever there are some, until ctx ends.
func (p *pile[T]) serve(ctx context.Context, do func(context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			do(ctx)
		}
	}
}

// take removes and returns all items.
func (p *pile[T]) take() []T {
	p.mu.Lock()
	defer p.mu.Unlock()
	items := p.items
	p.items = nil
	return items
}
