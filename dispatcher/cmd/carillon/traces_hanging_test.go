package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/servers"
)

// A collector that accepts spans and never responds does not delay fires: all of them run while the
// first export still waits, and the node keeps a bounded number of spans.
func TestHangingCollectorDelaysNoFire(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	const jobs, fires = 50, 250
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(target.Close)
	for queue, hangs := range map[int]bool{10_000: false, 100: true} {
		c := servers.NewCollector(t)
		c.Hang(hangs)
		database := "sqlite:" + t.TempDir() + "/carillon.db"
		n := startNodeWith(t, database, newToken(t, database), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL,
			"OTEL_BSP_SCHEDULE_DELAY=20", fmt.Sprint("OTEL_BSP_MAX_QUEUE_SIZE=", queue), "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=20",
			"OTEL_EXPORTER_OTLP_TIMEOUT=1000000"}, quick()...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "traced", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		for i := range jobs {
			job := webhookJob("traced", fmt.Sprint("job-", i), target.URL, map[string]string{"a": "* * * * * ?"})
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		}
		const succeeded = `carillon_attempts_total{app="traced",state="succeeded"}`
		until(t, "fires", func() bool { // before its first fire the app has no metrics
			return strings.Contains(n.get(t, "/metrics"), succeeded) && n.metric(t, succeeded) >= fires
		})
		made := n.metric(t, succeeded)
		spans := func(result string) float64 { return n.metric(t, `carillon_spans_total{result="`+result+`"}`) }
		if hangs {
			until(t, "all spans but those of a queue and a batch to be dropped", func() bool {
				return spans("dropped") >= made-float64(2*queue)
			})
		} else {
			until(t, "the spans to be exported", func() bool { return spans("exported") >= made })
		}
		exported, dropped, failed := spans("exported"), spans("dropped"), spans("failed")
		if failed != 0 || hangs && exported != 0 || !hangs && dropped != 0 {
			t.Errorf("with a collector that hangs (%t), %v spans were exported, %v dropped and %v failed", hangs, exported, dropped, failed)
		}
		if requests, _ := c.Requests(); hangs && requests != 1 {
			t.Errorf("the collector that hangs got %d requests, want the first one only", requests)
		}
		n.kill()
	}
}
