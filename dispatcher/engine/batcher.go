package engine

import (
	"context"
	"time"
)

// batcher collects what comes in and handles it in batches, one batch at a time: a lone item at
// once, under load as many as fill a batch.
type batcher[T any] struct {
	inbox chan T
	most  int // in one batch
	// busy reports whether more is to come soon, so that a batch waits for it; nil: no batch waits.
	busy func() bool
	// handle handles a batch. It must not keep the slice, which is used again.
	handle func(ctx context.Context, batch []T)
	batch  []T
}

// batchWait is how long a batch may fill. If the node dies meanwhile, its requests are repeated, so
// it is short compared with a request.
const batchWait = 25 * time.Millisecond

// run handles what comes in until ctx ends.
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
