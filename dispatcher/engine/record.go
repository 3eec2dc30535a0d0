package engine

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// recorder stores outcomes in batches. It keeps them through an outage of the database. When its buffer is full,
// workers wait, the pool fills, and claiming stops.
type recorder struct {
	batcher[dispatcher.Record]
	store   Store
	stored  func([]dispatcher.Record) // called with records that were stored or dropped
	log     *slog.Logger
	pending tally
}

const (
	// recordBuffer is how many outcomes may wait to be stored.
	recordBuffer = 8192
	// mostResponses is how many of them may wait with the target's response, up to 64 KiB each. When the database lags,
	// the responses of the rest are dropped: only people read them.
	mostResponses = 512
)

func newRecorder(store Store, stored func([]dispatcher.Record), busy func() bool, batch int, log *slog.Logger) *recorder {
	r := &recorder{store: store, stored: stored, log: log}
	r.batcher = batcher[dispatcher.Record]{inbox: make(chan dispatcher.Record, recordBuffer), most: batch, busy: busy, handle: r.keep}
	return r
}

// put hands over an outcome. While the buffer is full it waits, but not beyond the end of the
// attempt: then the outcome is dropped, and the node that adopts the run records it as lost.
func (r *recorder) put(ctx context.Context, record dispatcher.Record) {
	if len(r.inbox) > mostResponses {
		record.Outcome.Response = nil
	}
	r.pending.add(1)
	select {
	case r.inbox <- record:
		return
	default:
	}
	select {
	case r.inbox <- record:
	case <-ctx.Done():
		r.pending.add(-1)
		r.stored([]dispatcher.Record{record})
	}
}

// run stores records until ctx ends, when no more are handed over.
func (r *recorder) run(ctx context.Context) {
	r.batcher.run(ctx)
	for range len(r.inbox) {
		r.pending.add(-1) // drain does not wait for dropped records
	}
}

// keep stores one batch, and repeats it until the database takes it.
func (r *recorder) keep(ctx context.Context, records []dispatcher.Record) {
	loop.UntilDone(ctx, r.log, "record outcomes", len(records), func() error {
		err := r.store.Record(ctx, records)
		failpoint.Hit(failpoint.AfterRecord)
		return err
	})
	r.stored(records)
	r.pending.add(-len(records))
}

// drain waits until everything handed over is stored, atMost long. The nodes that adopt the remaining runs repeat them.
func (r *recorder) drain(atMost time.Duration) (stored bool) {
	select {
	case <-r.pending.none():
		return true
	case <-time.After(atMost):
		return false
	}
}

// tally counts pending records. Unlike a WaitGroup it may grow from zero while a caller waits.
type tally struct {
	mu    sync.Mutex
	count int
	empty chan struct{} // closed when nothing is left; nil while no caller waits
}

func (t *tally) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count += n; t.count == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

// none returns a channel that is closed once nothing is pending.
func (t *tally) none() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	empty := t.empty
	if empty == nil {
		empty = make(chan struct{})
		if t.empty = empty; t.count == 0 {
			close(empty)
			t.empty = nil
		}
	}
	return empty
}

// record hands over the outcome of an attempt. next is when the run is attempted again; nil: never.
func (e *Engine) record(ctx context.Context, run plan.Held, outcome run.Outcome, next *dispatcher.NextAttempt) {
	if run.Detail.Delayed {
		e.delays.expect(run.TriggerID)
	}
	outcome, next = e.placed(run, outcome, next)
	e.recorder.put(ctx, dispatcher.Record{
		Key: run.Key, JobID: run.JobID, Revision: run.Revision, ClaimedAt: run.ClaimedAt,
		Node: run.Node, Token: run.Token, Attempt: run.Attempt, Outcome: outcome, Next: next,
		Followed: e.followed(run, outcome),
	})
}

// recorded follows up outcomes that are stored.
func (e *Engine) recorded(records []dispatcher.Record) {
	attempts := make([]pool.AttemptKey, len(records))
	for i := range records {
		attempts[i] = pool.RecordKey(records[i])
	}
	e.pool.Disown(attempts...)
	e.delays.recorded(records)
	e.retries.recorded(records, e.clock.Until)
	e.plan.Floors.Recorded(records, e.clock.Now())
	e.slots.recorded(records)
	e.gone.recorded(records)
	e.broadcasts.recorded(records)
	for i := range records {
		one := &records[i]
		if one.Followed {
			e.wakeFollow.Notify()
		}
		if one.Kind == run.KindBackfill && one.Shard == 0 && one.Next == nil {
			e.wakeBackfill.Notify()
		}
	}
}

// ended counts the end of an attempt, and logs one that failed.
func (e *Engine) ended(ctx context.Context, a *attempt) {
	// An attempt that was not resolved, such as one of a deleted job, has no call.
	of := e.metrics.apps.Of(cmp.Or(a.call.App, a.run.Queue.App))
	if counter, known := of.attempts[a.outcome.State]; known {
		counter.Inc()
	}
	if a.run.Accepted != nil {
		of.accepted.Inc()
	}
	if counter, known := of.credentials[view.CredentialReasonOf(a.outcome.Class, a.outcome.HTTPStatus)]; known {
		counter.Inc()
	}
	switch a.outcome.State {
	case run.Failed, run.TimedOut, run.Lost:
		e.logFailure(ctx, a, of.lines)
	}
}

// timeAttempt notes how long a request took.
func (e *Engine) timeAttempt(a *attempt) {
	if seconds, known := e.metrics.seconds[attemptKey{a.call.Target.Kind(), a.outcome.State}]; known && !a.outcome.NotSent {
		seconds.observe(a.outcome.EndedAt.Sub(a.outcome.StartedAt), &a.call, a.outcome.EndedAt)
	}
}

// logFailure logs an attempt that failed, if its app has a line left. It leaves the target's message out: that may
// contain any text, and the run has it.
func (e *Engine) logFailure(ctx context.Context, a *attempt, lines *limit.Lines) {
	left, log := lines.May("attempt failed", a.outcome.EndedAt)
	if left > 0 {
		e.log.InfoContext(ctx, "failed attempts not logged", "app", cmp.Or(a.call.App, a.run.Queue.App), "count", left)
	}
	if !log {
		return
	}
	attributes := []slog.Attr{
		slog.String("run", a.run.String()), slog.String("app", cmp.Or(a.call.App, a.run.Queue.App)), slog.String("job", a.call.Job),
		slog.String("trigger", a.call.Trigger), slog.Int("attempt", a.run.Attempt), slog.String("node", a.run.Node.String()),
		slog.String("state", string(a.outcome.State)), slog.String("class", string(a.outcome.Class)),
		slog.Int("http_status", a.outcome.HTTPStatus), slog.String("took", a.outcome.EndedAt.Sub(a.outcome.StartedAt).String()),
	}
	if a.call.Sampling == run.Sampled {
		attributes = append(attributes, slog.String("trace_id", a.call.TraceID().String()))
	}
	e.log.LogAttrs(ctx, slog.LevelInfo, "attempt failed", attributes...)
}

// linesPerSecond is how many failed attempts of an app a node logs in a second. A target that is down can fail
// thousands, and the log has to show other apps, too.
const linesPerSecond = 10
