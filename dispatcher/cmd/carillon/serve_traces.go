package main

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
func (o *nodeOptions) startTraces(ctx context.Context, metrics prometheus.Registerer) (end func()) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.log.WarnContext(ctx, "OpenTelemetry", "err", err)
	}))
	tracer, err := tracing.New(ctx, tracing.Options{
		Node: o.engine.Name, Version: o.engine.Version, Logger: o.log, Metrics: metrics, LookUp: os.Getenv,
	})
	if err != nil {
		o.log.WarnContext(ctx, "there are no traces, because the environment is wrong", "err", err)
	}
	if tracer == nil {
		return func() {}
	}
	o.engine.Tracer = tracer
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var exporting sync.WaitGroup
	exporting.Go(func() { tracer.Run(running) })
	return func() {
		stop()
		exporting.Wait()
	}
}
