package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// recorder stores outcomes in batches, one batch at a time: a lone outcome at once, under
// load as many as fill a batch or come within some milliseconds. It keeps what it has through an outage of the database;
// when its buffer is full, workers wait, the pool fills, and claiming stops.
type recorder struct {
	store   dispatcher.Store
	stored  func([]dispatcher.Record) // is told of what was stored or dropped
	busy    func() bool               // tells whether more outcomes are to come soon
	batch   int
	log     *slog.Logger
	inbox   chan dispatcher.Record
	pending sync.WaitGroup
}

const (
	// recordBuffer is how many outcomes may wait to be stored.
	recordBuffer = 8192
	// mostAnswered is how many of them may wait with what was answered, up to 64 KiB each: what is
	// only there to be read gives way when the database lags.
	mostAnswered = 512
	// recordLinger is how long a batch may fill. If the node dies meanwhile, its requests are
	// repeated, so it is short beside what a request takes.
	recordLinger = 25 * time.Millisecond
)

func newRecorder(store dispatcher.Store, stored func([]dispatcher.Record), busy func() bool, batch int, log *slog.Logger) *recorder {
	return &recorder{store: store, stored: stored, busy: busy, batch: batch, log: log, inbox: make(chan dispatcher.Record, recordBuffer)}
}

// put hands over an outcome. While the buffer is full it waits, but not beyond the end of
// the attempt: then the outcome is dropped, and anyone who adopts the run accounts for it.
func (r *recorder) put(ctx context.Context, record dispatcher.Record) {
	if len(r.inbox) > mostAnswered {
		record.Outcome.Response = nil
	}
	r.pending.Add(1)
	select {
	case r.inbox <- record:
		return
	default:
	}
	select {
	case r.inbox <- record:
	case <-ctx.Done():
		r.pending.Done()
		r.stored([]dispatcher.Record{record})
	}
}

// run stores what comes until ctx ends, when nobody hands over any more.
func (r *recorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			for range len(r.inbox) {
				r.pending.Done() // drain need not wait for what is given up
			}
			return
		case first := <-r.inbox:
			records := r.fill(ctx, first)
			r.keep(ctx, records)
			r.stored(records)
			r.pending.Add(-len(records))
		}
	}
}

// fill returns a batch that begins with first.
func (r *recorder) fill(ctx context.Context, first dispatcher.Record) []dispatcher.Record {
	records := append(make([]dispatcher.Record, 0, r.batch), first)
	if !r.busy() && len(r.inbox) == 0 {
		return records
	}
	filled := time.NewTimer(recordLinger)
	defer filled.Stop()
	for len(records) < r.batch {
		select {
		case next := <-r.inbox:
			records = append(records, next)
		case <-filled.C:
			return records
		case <-ctx.Done():
			return records
		}
	}
	return records
}

// keep stores one batch, again and again until the database takes it.
func (r *recorder) keep(ctx context.Context, records []dispatcher.Record) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := r.store.Record(ctx, records)
		failpoint.Hit(failpoint.AfterRecord)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.log.ErrorContext(ctx, "record outcomes", "count", len(records), "err", err)
		sleep(ctx, pause)
	}
}

// drain waits until everything handed over is stored, at most so long. What is not stored
// then is repeated by anyone who adopts the runs.
func (r *recorder) drain(atMost time.Duration) (stored bool) {
	done := make(chan struct{})
	go func() {
		r.pending.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(atMost):
		return false
	}
}
