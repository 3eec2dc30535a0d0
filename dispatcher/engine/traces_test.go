package engine

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// recordedSpans is a tracer that keeps its spans.
type recordedSpans struct {
	mu     sync.Mutex
	begun  []target.Call
	ended  []run.State
	starts []time.Time
}

func (r *recordedSpans) Begin(_ context.Context, call target.Call, now time.Time) (run.Sampling, func(run.Outcome)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun, r.starts = append(r.begun, call), append(r.starts, now)
	if call.Job == "unsampled" {
		return run.NotSampled, nil
	}
	return run.Sampled, func(o run.Outcome) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended = append(r.ended, o.State)
	}
}

func TestEachAttemptBeginsAndEndsItsSpan(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	spans := &recordedSpans{}
	r.opts.Tracer = spans
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, name := range []string{"sampled", "unsampled"} {
		r.declare(name, "rate(1h)", nil)
		change := input.Change{Actor: "test", Now: r.now, Traceparent: traceparent}
		if _, err := r.store.RequestRun(t.Context(), "app", name, nil, change); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.settled()
	if len(spans.begun) != 2 || !slices.Equal(spans.ended, []run.State{run.Succeeded}) {
		t.Errorf("%d spans began and %v ended, want 2 and the one that is sampled", len(spans.begun), spans.ended)
	}
	for n, call := range spans.begun {
		if call.Installation == "" || call.Requester == nil || !call.Requester.Sampled || spans.starts[n].IsZero() {
			t.Errorf("span %d began at %s with installation %q and requester %v, want all of them", n, spans.starts[n], call.Installation,
				call.Requester)
		}
	}
	sampling := map[string]run.Sampling{}
	for _, call := range r.calls {
		sampling[call.Job] = call.Sampling
	}
	if sampling["sampled"] != run.Sampled || sampling["unsampled"] != run.NotSampled {
		t.Errorf("the invoker was told %v, want what the tracer said", sampling)
	}
}

func TestNoTracerCostsNoMemory(t *testing.T) {
	e, a := &Engine{}, &attempt{}
	if n := testing.AllocsPerRun(100, func() { e.beginSpan(t.Context(), a) }); n != 0 {
		t.Errorf("an attempt without a tracer takes %v allocations, want none", n)
	}
}
