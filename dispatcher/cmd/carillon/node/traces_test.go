package node

import (
	"bytes"
	"log/slog"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestNodeWithoutCollectorHasNoExporter(t *testing.T) {
	t.Parallel()
	options := Options{Log: slog.New(slog.DiscardHandler)}
	end := options.startTraces(t.Context(), prometheus.NewRegistry())
	defer end()
	stacks := make([]byte, 1<<20)
	if stacks = stacks[:runtime.Stack(stacks, true)]; options.Engine.Tracer != nil || bytes.Contains(stacks, []byte("dispatcher/tracing.")) {
		t.Errorf("a node without a collector has the tracer %v, or runs an exporter", options.Engine.Tracer)
	}
}
