package node

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// metricLine is a line as CloudWatch reads it: values of its metrics, with units, and further members.
type metricLine struct {
	at     time.Time
	values map[string]float64
	units  map[string]string
	others map[string]string
}

// metricLinesOf parses the metric lines of a log by the rules of the embedded metric format.
func metricLinesOf(t *testing.T, log string) (lines []metricLine) {
	t.Helper()
	for scanner := bufio.NewScanner(strings.NewReader(log)); scanner.Scan(); {
		text := scanner.Text()
		if !strings.Contains(text, `"_aws"`) {
			continue
		}
		var directive struct {
			AWS struct {
				Timestamp         int64
				CloudWatchMetrics []struct {
					Namespace  string
					Dimensions [][]string
					Metrics    []struct{ Name, Unit string }
				}
			} `json:"_aws"`
		}
		var members map[string]any
		if err := json.Unmarshal([]byte(text), &directive); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text), &members); err != nil {
			t.Fatal(err)
		}
		delete(members, "_aws")
		sets := directive.AWS.CloudWatchMetrics
		if len(sets) != 1 || sets[0].Namespace != "Carillon" || len(sets[0].Metrics) > 100 ||
			!cmp.Equal(sets[0].Dimensions, [][]string{{"Fleet"}}) {
			t.Errorf("%s: want one set of at most 100 metrics in the namespace Carillon, with the dimension Fleet", text)
			continue
		}
		line := metricLine{
			at: time.UnixMilli(directive.AWS.Timestamp), values: map[string]float64{}, units: map[string]string{}, others: map[string]string{},
		}
		for _, metric := range sets[0].Metrics {
			value, ok := members[metric.Name].(float64)
			if !ok {
				t.Errorf("%s: the metric %s has no number", text, metric.Name)
			}
			line.values[metric.Name], line.units[metric.Name] = value, metric.Unit
			delete(members, metric.Name)
		}
		for name, value := range members {
			line.others[name], _ = value.(string)
		}
		lines = append(lines, line)
	}
	return lines
}

// emfRig has the signals of a node, with metrics that the test sets.
type emfRig struct {
	log      lockedBuffer
	registry *prometheus.Registry
}

// starting returns a gauge for each metric of an engine, with the values of a node that fires.
func (r *emfRig) starting() map[string]prometheus.Gauge {
	gauges := map[string]prometheus.Gauge{}
	for name, value := range map[string]float64{
		"carillon_database_reachable": 1, "carillon_rolled_back": 0, "carillon_pool_use_ratio": 0.25,
		"carillon_oldest_overdue_seconds": 0, "carillon_timeline_waiting_fires": 0, "carillon_upcoming_fires": 40,
		"carillon_lateness_max_seconds": 0.5,
	} {
		gauges[name] = prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
		gauges[name].Set(value)
		r.registry.MustRegister(gauges[name])
	}
	return gauges
}

// start starts the lines. Call end before the bubble ends.
func (r *emfRig) start(t *testing.T) *running {
	r.registry = prometheus.NewRegistry()
	return startSignals(t.Context(), &Options{
		Log: slog.New(slog.DiscardHandler), Engine: engine.Options{Name: "node-1", Version: "1.2.3"},
		signals: machineSignals{fleet: "production", out: &r.log},
	}, r.registry)
}

func TestMetricLineIsWrittenEachMinuteWithItsIncreases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r emfRig
		signals := r.start(t)
		r.starting()
		misfires := prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_misfires_total"})
		attempts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_attempts_total"}, []string{"app", "state"})
		r.registry.MustRegister(misfires, attempts)
		begun := time.Now()
		time.Sleep(59 * time.Second)
		if log := r.log.String(); log != "" {
			t.Errorf("within the first minute the log has %s, want nothing", log)
		}
		misfires.Add(2)
		for state, n := range map[run.State]float64{
			run.Succeeded: 10, run.Failed: 3, run.TimedOut: 2, run.Lost: 1, run.Cancelled: 4,
		} {
			attempts.WithLabelValues("shop", string(state)).Add(n - 1)
			attempts.WithLabelValues("crm", string(state)).Add(1)
		}
		time.Sleep(62 * time.Second)
		attempts.WithLabelValues("shop", "succeeded").Add(5)
		time.Sleep(9 * time.Second)
		signals.end()

		lines := metricLinesOf(t, r.log.String())
		if len(lines) != 3 {
			t.Fatalf("after two minutes and a drain there are %d lines, want 3:\n%s", len(lines), r.log.String())
		}
		for i, after := range []time.Duration{time.Minute, 2 * time.Minute, 130 * time.Second} {
			if got := lines[i].at.Sub(begun); got.Round(time.Second) != after {
				t.Errorf("line %d is of %s, want %s", i, got, after)
			}
			if diff := cmp.Diff(map[string]string{"Fleet": "production", "node": "node-1", "version": "1.2.3"}, lines[i].others); diff != "" {
				t.Errorf("members of line %d that are no metrics (-want +got):\n%s", i, diff)
			}
		}
		all := map[string]float64{
			"Nodes": 1, "DatabaseUnreachable": 0, "PoolUse": 25, "OldestOverdue": 0, "RolledBack": 0, "WaitingFires": 0, "UpcomingFires": 40,
			"Misfires": 2, "AttemptsSucceeded": 10, "AttemptsFailed": 6, "Lateness": 500,
		}
		if diff := cmp.Diff(all, lines[0].values); diff != "" {
			t.Error("the first line (-want +got):\n" + diff)
		}
		all["Misfires"], all["AttemptsSucceeded"], all["AttemptsFailed"] = 0, 0, 0
		if diff := cmp.Diff(all, lines[1].values); diff != "" {
			t.Error("a line without events (-want +got):\n" + diff)
		}
		// If the node counted itself a second time in this minute, one node would look like two.
		last := map[string]float64{"Misfires": 0, "AttemptsSucceeded": 5, "AttemptsFailed": 0, "Lateness": 500}
		if diff := cmp.Diff(last, lines[2].values); diff != "" {
			t.Error("the last line (-want +got):\n" + diff)
		}
		if diff := cmp.Diff(map[string]string{
			"Nodes": "Count", "DatabaseUnreachable": "Count", "PoolUse": "Percent", "OldestOverdue": "Seconds", "RolledBack": "Count",
			"WaitingFires": "Count", "UpcomingFires": "Count", "Misfires": "Count", "AttemptsSucceeded": "Count", "AttemptsFailed": "Count",
			"Lateness": "Milliseconds",
		}, lines[0].units); diff != "" {
			t.Error("units (-want +got):\n" + diff)
		}
	})
}

func TestMetricLineReportsAnUnreachableDatabase(t *testing.T) {
	t.Parallel()
	waiting := map[string]float64{"Nodes": 1, "DatabaseUnreachable": 1}
	for name, tt := range map[string]struct {
		set  func(r *emfRig)
		want map[string]float64
		lack []string // metrics that must be missing
	}{
		"while the node waits for its first database": {func(*emfRig) {}, waiting, []string{"OldestOverdue", "PoolUse", "Misfires"}},
		"while heartbeats fail": {func(r *emfRig) {
			gauges := r.starting()
			gauges["carillon_database_reachable"].Set(0)
			gauges["carillon_oldest_overdue_seconds"].Set(77)
		}, map[string]float64{"Nodes": 1, "DatabaseUnreachable": 1, "OldestOverdue": 77}, []string{"PoolUse"}},
		"not while nodes are paused after a rollback": {func(r *emfRig) {
			r.starting()["carillon_rolled_back"].Set(1)
		}, map[string]float64{"Nodes": 1, "DatabaseUnreachable": 0, "RolledBack": 1}, []string{"PoolUse"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var r emfRig
				signals := r.start(t)
				tt.set(&r)
				time.Sleep(61 * time.Second)
				lines := metricLinesOf(t, r.log.String())
				signals.end()
				if len(lines) != 1 {
					t.Fatalf("%d lines, want 1", len(lines))
				}
				for metric, want := range tt.want {
					if got, ok := lines[0].values[metric]; !ok || got != want {
						t.Errorf("%s is %v (written: %v), want %v", metric, got, ok, want)
					}
				}
				for _, metric := range tt.lack {
					if got, ok := lines[0].values[metric]; ok {
						t.Errorf("%s is %v, want it left out", metric, got)
					}
				}
			})
		})
	}
}

func TestMetricLinesWaitForNoReaderOfTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, sink := &stuck{free: make(chan struct{})}, newLogSink()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go sink.run(ctx, out, slog.New(slog.DiscardHandler))
		signals := startSignals(t.Context(), &Options{
			Log: slog.New(slog.DiscardHandler), signals: machineSignals{fleet: "production", out: sink},
		}, prometheus.NewRegistry())
		time.Sleep(10*time.Minute + time.Second)
		begun := time.Now()
		signals.end()
		if took := time.Since(begun); took != 0 {
			t.Errorf("the end takes %s for a log that is stuck, want no time", took)
		}
		close(out.free)
		sink.flush(time.Second)
		if lines := metricLinesOf(t, out.String()); len(lines) != 10 {
			t.Errorf("%d lines arrive in the end, want 10", len(lines))
		}
	})
}

// The engine must register each family that a line reads. Otherwise the line would always report 0.
func TestMetricLinesReadFamiliesThatTheEngineRegisters(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	engine.New(struct{ engine.Store }{}, nil, engine.Options{Metrics: registry, Logger: slog.New(slog.DiscardHandler)})
	now, err := gather(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"carillon_database_reachable", "carillon_rolled_back", "carillon_pool_use_ratio", "carillon_oldest_overdue_seconds",
		"carillon_timeline_waiting_fires", "carillon_upcoming_fires", "carillon_lateness_max_seconds", "carillon_misfires_total",
		"carillon_attempts_total succeeded", "carillon_attempts_total failed", "carillon_attempts_total timed_out",
		"carillon_attempts_total lost",
	} {
		if _, ok := now[name]; !ok {
			t.Errorf("the engine does not register %s", name)
		}
	}
	lines := newMetricLines(&Options{signals: machineSignals{fleet: "production", out: io.Discard}})
	if got := len(lines.all(now)); got != 10 { // PoolUse is missing before the first heartbeat
		t.Errorf("a line has %d metrics, want 10", got)
	}
}
