package node

import (
	"context"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"

	"github.com/carillon-dev/carillon/dispatcher/tracing"
)

// startTraces lets the engine record attempts as spans, if the environment names a collector, and returns what sends the rest
// of them at the end. A node with wrong variables works without traces: platforms set them for all their containers.
func (o *Options) startTraces(ctx context.Context, metrics prometheus.Registerer) (end func()) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.WarnContext(ctx, "OpenTelemetry", "err", err)
	}))
	tracer, err := tracing.New(ctx, tracing.Options{
		Node: o.Engine.Name, Version: o.Engine.Version, Logger: o.Log, Metrics: metrics, LookUp: os.Getenv,
	})
	if err != nil {
		o.Log.WarnContext(ctx, "there are no traces, because the environment is wrong", "err", err)
	}
	if tracer == nil {
		return func() {}
	}
	o.Engine.Tracer = tracer
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var exporting sync.WaitGroup
	exporting.Go(func() { tracer.Run(running) })
	return func() {
		stop()
		exporting.Wait()
	}
}
