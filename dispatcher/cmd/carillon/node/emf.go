package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/platform"
)

// emfFlag are the lines of metrics in the log.
type emfFlag struct {
	EMF string `env:"CARILLON_EMF" placeholder:"NAME" help:"Write a line of metrics a minute to the log's stream, in CloudWatch embedded metric format: namespace Carillon, dimension Fleet=NAME. Default: none."`
}

func (f emfFlag) check() error {
	if f.EMF == "" {
		return nil
	}
	if err := platform.CheckDimension(f.EMF); err != nil {
		return fmt.Errorf("--emf (CARILLON_EMF) %s: %w", input.Echo(f.EMF), err)
	}
	return nil
}

// metricInterval is the interval of the lines, and of the metrics in CloudWatch.
const metricInterval = time.Minute

// metricLines writes the metrics of a node as lines of the log.
type metricLines struct {
	out    io.Writer
	format platform.EMF
	log    *slog.Logger
	before samples // at the line before
}

func newMetricLines(o *Options) *metricLines {
	return &metricLines{out: o.signals.out, log: o.Log, format: platform.EMF{
		Namespace: "Carillon", Dimensions: map[string]string{"Fleet": o.signals.fleet},
		Properties: map[string]string{"node": o.Engine.Name, "version": o.Engine.Version},
	}}
}

// writeMetrics writes a line each minute, also while the node waits for its database, and when life
// ends a last one of what has happened since.
func (r *running) writeMetrics(life context.Context, lines *metricLines, registry prometheus.Gatherer) {
	ticker := time.NewTicker(metricInterval)
	defer ticker.Stop()
	for {
		select {
		case at := <-ticker.C:
			// A line has the time of its tick, so that each minute in CloudWatch gets one of each node.
			lines.write(life, at, registry, lines.all)
		case <-life.Done():
			lines.write(life, time.Now(), registry, lines.sinceLast)
			return
		}
	}
}

// write writes the metrics that pick makes of what the registry has.
func (l *metricLines) write(ctx context.Context, at time.Time, registry prometheus.Gatherer, pick func(samples) []platform.Metric) {
	now, err := gather(registry)
	if err != nil {
		l.log.WarnContext(ctx, "not all metrics were gathered", "err", err)
	}
	metrics := pick(now)
	if len(metrics) == 0 {
		return
	}
	line, err := l.format.Line(at, metrics)
	if err != nil {
		l.log.ErrorContext(ctx, "no line of metrics was written", "err", err)
		return
	}
	l.before = now
	_, _ = l.out.Write(line) // the log never fails
}

// all returns the metrics of a line. What the node does not know yet is left out, because 0 is a value.
func (l *metricLines) all(now samples) []platform.Metric {
	unreachable := 1 - now["carillon_database_reachable"]
	metrics := []platform.Metric{
		{Name: "Nodes", Unit: platform.Count, Value: 1},
		{Name: "DatabaseUnreachable", Unit: platform.Count, Value: unreachable},
	}
	rolledBack, started := now["carillon_rolled_back"]
	if !started {
		return metrics // it waits for its database
	}
	// A node without its database, or one that waits for a person, is idle. A fleet that shrinks for
	// that reason would be too small when the work comes back.
	if unreachable == 0 && rolledBack == 0 {
		metrics = append(metrics, platform.Metric{Name: "PoolUse", Unit: platform.Percent, Value: 100 * now["carillon_pool_use_ratio"]})
	}
	return append(append(metrics,
		platform.Metric{Name: "OldestOverdue", Unit: platform.Seconds, Value: now["carillon_oldest_overdue_seconds"]},
		platform.Metric{Name: "RolledBack", Unit: platform.Count, Value: rolledBack},
		platform.Metric{Name: "WaitingFires", Unit: platform.Count, Value: now["carillon_timeline_waiting_fires"]},
		platform.Metric{Name: "UpcomingFires", Unit: platform.Count, Value: now["carillon_upcoming_fires"]},
	), l.sinceLast(now)...)
}

// sinceLast returns what has happened since the line before.
func (l *metricLines) sinceLast(now samples) []platform.Metric {
	if _, started := now["carillon_rolled_back"]; !started {
		return nil
	}
	increase := func(names ...string) (sum float64) {
		for _, name := range names {
			sum += now[name] - l.before[name]
		}
		return sum
	}
	return []platform.Metric{
		{Name: "Misfires", Unit: platform.Count, Value: increase("carillon_misfires_total")},
		{Name: "AttemptsSucceeded", Unit: platform.Count, Value: increase("carillon_attempts_total succeeded")},
		{Name: "AttemptsFailed", Unit: platform.Count, Value: increase(
			"carillon_attempts_total failed", "carillon_attempts_total timed_out", "carillon_attempts_total lost")},
		{Name: "Lateness", Unit: platform.Milliseconds, Value: 1000 * now["carillon_lateness_max_seconds"]},
	}
}

// samples are the values of counters and gauges by name or, of a family with a label besides app, by name and value
// of the label. They are those of all apps.
type samples map[string]float64

// gather reads the counters and gauges of a registry.
func gather(registry prometheus.Gatherer) (samples, error) {
	families, err := registry.Gather() // in part, if there is an error
	all := samples{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				if label.GetName() != "app" {
					name += " " + label.GetValue()
				}
			}
			switch {
			case metric.GetGauge() != nil:
				all[name] += metric.GetGauge().GetValue()
			case metric.GetCounter() != nil:
				all[name] += metric.GetCounter().GetValue()
			}
		}
	}
	return all, err
}
