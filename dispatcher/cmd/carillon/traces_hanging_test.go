package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/servers"
)

// A collector that takes spans and never responds costs the fires nothing: all of them run, no later than with one that
// responds, and the node keeps a bounded number of spans.
func TestHangingCollectorMakesNoFireLate(t *testing.T) {
	t.Parallel()
	const jobs, seconds, queue = 50, 5, 100
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(target.Close)
	figures := map[bool]tracedFires{}
	for _, hangs := range []bool{false, true} {
		c := servers.NewCollector(t)
		c.Hang(hangs)
		database := "sqlite:" + t.TempDir() + "/carillon.db"
		n := startNodeWith(t, database, newToken(t, database), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL,
			"OTEL_BSP_SCHEDULE_DELAY=20", fmt.Sprint("OTEL_BSP_MAX_QUEUE_SIZE=", queue), "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=20"}, quick()...)
		must[dispatcher.App](t)(n.PutApp(t.Context(), dispatcher.App{Name: "traced", Enabled: true}, client.Condition{}))
		for i := range jobs {
			job := webhookJob("traced", fmt.Sprint("job-", i), target.URL, map[string]string{"a": "* * * * * ?"})
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		}
		const begun, lateness = `carillon_lateness_seconds_count{app="traced"}`, `carillon_lateness_seconds_sum{app="traced"}`
		until(t, "fires", func() bool { // before its first fire the app has no metrics
			return strings.Contains(n.get(t, "/metrics"), begun) && n.metric(t, begun) >= jobs*seconds
		})
		figures[hangs] = tracedFires{
			begun: n.metric(t, begun), lateness: n.metric(t, lateness),
			exported: n.metric(t, `carillon_spans_total{result="exported"}`), dropped: n.metric(t, `carillon_spans_total{result="dropped"}`),
			memory: n.metric(t, "process_resident_memory_bytes"),
		}
		n.kill()
	}
	with, without := figures[true], figures[false]
	t.Logf("hanging: %s; responding: %s", with, without)
	if with.exported != 0 || with.dropped < jobs*seconds-2*queue {
		t.Errorf("with a collector that hangs, %v spans were exported and %v dropped; want 0 and at least %d", with.exported, with.dropped,
			jobs*seconds-2*queue)
	}
	if without.exported == 0 || without.dropped != 0 {
		t.Errorf("with one that responds, %v spans were exported and %v dropped; want some and none", without.exported, without.dropped)
	}
	// A machine that is busy with other tests makes fires late by itself; a wait for the collector would be 10 s each.
	if with.mean() > without.mean()+time.Second {
		t.Errorf("fires were %s late on average with a collector that hangs, and %s with one that responds", with.mean(), without.mean())
	}
	if with.memory > without.memory+32<<20 {
		t.Errorf("the node took %.0f MiB with a collector that hangs, and %.0f with one that responds", with.memory/(1<<20),
			without.memory/(1<<20))
	}
}

// tracedFires are figures of a node that makes traces.
type tracedFires struct{ begun, lateness, exported, dropped, memory float64 }

func (f tracedFires) mean() time.Duration {
	return time.Duration(f.lateness / f.begun * float64(time.Second))
}

func (f tracedFires) String() string {
	return fmt.Sprintf("%.0f fires, %s late on average, %.0f spans exported, %.0f dropped, %.0f MiB", f.begun,
		f.mean().Round(10*time.Microsecond), f.exported, f.dropped, f.memory/(1<<20))
}

func TestNodeWithoutCollectorHasNoExporter(t *testing.T) {
	t.Parallel()
	options := nodeOptions{log: slog.New(slog.DiscardHandler)}
	end := options.startTraces(t.Context(), prometheus.NewRegistry())
	defer end()
	stacks := make([]byte, 1<<20)
	if stacks = stacks[:runtime.Stack(stacks, true)]; options.engine.Tracer != nil || bytes.Contains(stacks, []byte("dispatcher/tracing.")) {
		t.Errorf("a node without a collector has the tracer %v, or runs an exporter", options.engine.Tracer)
	}
}
