package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
)

// client sends spans as OTLP over HTTP. OpenTelemetry's own client would bring gRPC with it, 2.5 MB of unused code.
type client struct {
	*settings
	http *http.Client
}

func newClient(s *settings) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.tls
	transport.MaxConnsPerHost = 1
	return &client{s, &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the headers are only for the endpoint
	}}}
}

// Start does nothing: a connection is made with the first spans.
func (*client) Start(context.Context) error { return nil }

// Stop closes the connection.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// statusError means that the collector did not accept spans.
type statusError int

// Error contains the status. The collector's text may repeat the request with its headers.
func (e statusError) Error() string {
	return fmt.Sprintf("the collector responded with status %d", int(e))
}

// UploadTraces sends spans. While the collector cannot be reached or is overloaded, it tries again until ctx ends.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // on the wire the same as an ExportTraceServiceRequest
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if c.gzip {
		var packed bytes.Buffer
		writer := gzip.NewWriter(&packed)
		if _, err := writer.Write(body); err != nil {
			return fmt.Errorf("compress spans: %w", err)
		}
		if err := writer.Close(); err != nil {
			return fmt.Errorf("compress spans: %w", err)
		}
		body = packed.Bytes()
	}
	return backoff.Pauses{First: 500 * time.Millisecond, Most: 5 * time.Second}.Repeat(ctx, func() error { return c.send(ctx, body) },
		func(f backoff.Failure) bool {
			var status statusError
			return !errors.As(f.Err, &status) || slices.Contains([]int{429, 502, 503, 504}, int(status))
		})
}

// send makes one request. Its error does not contain the URL, which may include a secret.
func (c *client) send(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the endpoint is no URL that can be called")
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	for name, value := range c.headers {
		request.Header.Set(name, value)
	}
	response, err := c.http.Do(request)
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if err != nil {
		return fmt.Errorf("call the collector: %w", err)
	}
	defer response.Body.Close()
	const most = 64 << 10
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, most)) // keeps the connection
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return statusError(response.StatusCode)
	}
	return nil
}

// The results of spans.
const (
	resultExported = "exported"
	resultDropped  = "dropped" // the queue was full
	resultFailed   = "failed"  // the collector did not accept them in time
)

// closing bounds how long the remaining spans are sent at the end.
const closing = time.Second

// queue holds spans until they are sent. The SDK's own queue does not report how many it drops.
type queue struct {
	exporter sdk.SpanExporter
	waiting  chan sdk.ReadOnlySpan
	spans    *prometheus.CounterVec
	// batch is how many spans are sent at once, and delay how long a span waits for others.
	batch          int
	delay, timeout time.Duration
	log            *slog.Logger
	failing        bool // used only by run
}

// OnStart does nothing: only ended spans are exported.
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

// Shutdown and ForceFlush do nothing: run sends the remaining spans when its context ends.
func (*queue) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing; see Shutdown.
func (*queue) ForceFlush(context.Context) error { return nil }

// run sends spans in batches until ctx ends, and then the remaining ones, for closing at most.
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

// collect waits for a span, and delay for others; once ctx has ended, it takes the waiting ones.
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

// export sends a batch, and logs when exports begin to fail and when they work again.
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
