package tracing

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// The results of spans.
const (
	resultExported = "exported"
	resultDropped  = "dropped" // the queue was full
	resultFailed   = "failed"  // the collector did not take them in time
)

// closing is how long what is left is sent at the end.
const closing = time.Second

// queue holds spans until they are sent. The SDK's own does not tell how many it drops.
type queue struct {
	exporter sdk.SpanExporter
	waiting  chan sdk.ReadOnlySpan
	spans    *prometheus.CounterVec
	// batch is how many spans are sent at once, and delay how long a span waits for others.
	batch          int
	delay, timeout time.Duration
	log            *slog.Logger
	failing        bool // of run alone
}

// OnStart does nothing: a span is of interest once it ends.
func (*queue) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd takes a span, or drops it if there is no room. It never waits.
func (q *queue) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	select {
	case q.waiting <- span:
	default:
		q.spans.WithLabelValues(resultDropped).Inc()
	}
}

// Shutdown and ForceFlush do nothing: run sends what is left when its context ends.
func (*queue) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing; see Shutdown.
func (*queue) ForceFlush(context.Context) error { return nil }

// run sends spans in batches until ctx ends, and then what is left, for closing at most.
func (q *queue) run(ctx context.Context) {
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(closing, cut) })()
	for ctx.Err() == nil {
		q.export(sending, q.collect(ctx))
	}
	for len(q.waiting) > 0 && sending.Err() == nil {
		q.export(sending, q.collect(ctx))
	}
	q.spans.WithLabelValues(resultFailed).Add(float64(len(q.waiting)))
	_ = q.exporter.Shutdown(sending) // it has nothing left to lose
}

// collect waits for a span, and delay for others; once ctx has ended, it takes what is there.
func (q *queue) collect(ctx context.Context) (batch []sdk.ReadOnlySpan) {
	var full <-chan time.Time
	for len(batch) < q.batch {
		select {
		case span := <-q.waiting:
			batch = append(batch, span)
			if full == nil {
				timer := time.NewTimer(q.delay)
				defer timer.Stop()
				full = timer.C
			}
		case <-full:
			return batch
		case <-ctx.Done():
			for len(batch) < q.batch && len(q.waiting) > 0 {
				batch = append(batch, <-q.waiting)
			}
			return batch
		}
	}
	return batch
}

// export sends a batch, and logs when that begins to fail and when it works again.
func (q *queue) export(ctx context.Context, batch []sdk.ReadOnlySpan) {
	if len(batch) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	err := q.exporter.ExportSpans(bounded, batch)
	switch {
	case err == nil:
		q.spans.WithLabelValues(resultExported).Add(float64(len(batch)))
		if q.failing {
			q.log.InfoContext(ctx, "spans are exported again")
		}
	default:
		q.spans.WithLabelValues(resultFailed).Add(float64(len(batch)))
		if !q.failing {
			q.log.WarnContext(ctx, "spans not exported; see carillon_spans_total for how many", "err", err)
		}
	}
	q.failing = err != nil
}
