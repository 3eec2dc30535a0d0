// Package tracing records the attempts of runs as spans of OpenTelemetry and sends them to a collector.
//
// A run is a trace, and each of its attempts a span of kind client, whose ids follow from those of the run; see
// run.TraceOf. Nothing is the parent of an attempt, because what asked for a run has often ended long before: the span
// has links to it instead. A span holds nothing that can be a secret: no URL, no text of an error, nothing of a request or
// response.
//
//	environment.go  reads the variables OTEL_
//	span.go         makes the span of an attempt
//	queue.go        holds spans until they are sent, and drops those that have no room
//	export.go       sends them as OTLP over HTTP
//
// Neither a slow collector nor one that is gone delays an attempt: a span waits in a bounded queue or is dropped and counted.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Options say who makes the spans.
type Options struct {
	// Node is the name of the node and Version that of the program.
	Node, Version string
	Logger        *slog.Logger
	// Metrics gets the counter of spans.
	Metrics prometheus.Registerer
	// LookUp returns a variable of the environment. The SDK reads the sampler, limits and resource of os.Getenv by itself.
	LookUp func(string) string
}

// Tracer makes the spans of attempts. It is safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	queue    *queue
	log      *slog.Logger
}

// New returns a Tracer as the environment configures it; nil: it names no collector, or says that there are to be no traces.
// It starts nothing; call Run. The errors of all variables come at once.
func New(ctx context.Context, o Options) (*Tracer, error) {
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_spans_total",
		Help: "Spans of attempts by result: exported, dropped because the queue was full, or failed because the collector did not take them.",
	}, []string{"result"})
	o.Metrics.MustRegister(spans)
	for _, result := range []string{resultExported, resultDropped, resultFailed} {
		spans.WithLabelValues(result)
	}
	settings, err := read(o.LookUp)
	if err != nil || settings == nil {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("carillon"), semconv.ServiceVersion(o.Version), semconv.ServiceInstanceID(o.Node)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Tracer{log: o.Logger}
	t.queue = &queue{
		exporter: otlptrace.NewUnstarted(newClient(settings)), waiting: make(chan sdk.ReadOnlySpan, settings.queue), spans: spans,
		batch: settings.batch, delay: settings.delay, timeout: settings.timeout, log: o.Logger,
	}
	t.provider = sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithIDGenerator(ids{}), sdk.WithSpanProcessor(t.queue))
	t.tracer = t.provider.Tracer("github.com/carillon-dev/carillon", trace.WithInstrumentationVersion(o.Version),
		trace.WithSchemaURL(semconv.SchemaURL))
	return t, nil
}

// Run sends spans until ctx ends, and then for a second at most what is left.
func (t *Tracer) Run(ctx context.Context) { t.queue.run(ctx) }
