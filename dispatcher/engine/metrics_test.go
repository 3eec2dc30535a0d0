package engine

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestMetricsCountClaimsAndAttempts(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("on-time", "rate(1s)", nil)
	r.declare("paused", "rate(1s)", nil)
	r.poll(5 * time.Second)
	if _, err := r.store.PauseJob(t.Context(), "app", "paused", "", true, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	r.quiet()
	for name, tt := range map[string]struct {
		metric prometheus.Collector
		want   float64
	}{
		"won":       {r.metrics.claims.WithLabelValues(claimWon), 1},
		"lost":      {r.metrics.claims.WithLabelValues(claimLost), 1},
		"succeeded": {r.metrics.apps.Of("app").attempts[run.Succeeded], 1},
		"failed":    {r.metrics.apps.Of("app").attempts[run.Failed], 0},
	} {
		if got := testutil.ToFloat64(tt.metric); got != tt.want {
			t.Errorf("%s = %v, want %v", name, got, tt.want)
		}
	}
}

// Operators rely on it: each metric has its help text and its zero.
func TestMetricsAreRegisteredFromTheStart(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	New(unwilling{}, nil, Options{Metrics: registry})
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) != 0 {
		t.Errorf("problems = %v, %v", problems, err)
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n < 15 {
		t.Errorf("%d metrics from the start, %v; want them all", n, err)
	}
}
