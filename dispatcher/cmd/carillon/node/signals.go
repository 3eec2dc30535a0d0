package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"

	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/platform"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/tracing"
)

// machineSignals are the signals of a node to its machine. The zero value sends none.
type machineSignals struct {
	systemd platform.Systemd
	fleet   string    // of the metric lines; empty for none
	out     io.Writer // for these lines
}

// signals returns the signals that flags and environment ask for.
func (s *Flags) signals(ctx context.Context, out io.Writer, log *slog.Logger) machineSignals {
	systemd, err := platform.SystemdFrom(os.Getenv, os.Getpid())
	if err != nil {
		log.WarnContext(ctx, "the notifications of systemd are not as documented", "err", err)
	}
	return machineSignals{systemd: systemd, fleet: s.EMF, out: out}
}

// running has the signals of a running node.
type running struct {
	node    atomic.Pointer[engine.Engine] // nil while it waits for its database
	started chan string                   // status of a node that starts to dispatch
	stop    context.CancelFunc
	loops   sync.WaitGroup
}

// startSignals starts the signals of a node. It sets a hook of the engine. The drain begins when
// ctx ends; call end after that.
func startSignals(ctx context.Context, o *Options, registry prometheus.Gatherer) *running {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{started: make(chan string, 1), stop: stop}
	listen := o.Listen
	o.Engine.OnStarted = func(id run.NodeID) {
		r.started <- fmt.Sprintf("dispatching as node %s, API on %s", id, listen)
	}
	if o.signals.systemd.Present() {
		r.loops.Go(func() { r.notifySystemd(life, ctx.Done(), o.signals.systemd, o.Log) })
	}
	if o.signals.fleet != "" {
		r.loops.Go(func() { r.writeMetrics(life, newMetricLines(o), registry) })
	}
	return r
}

// end ends the signals, with a last metric line.
func (r *running) end() {
	r.stop()
	r.loops.Wait()
}

const (
	// startExtension is the time to start that a node requests from systemd, repeatedly, while it
	// waits for its database. Without it, systemd would end the node after 90 s.
	startExtension = time.Minute
	// extendEvery is the interval of these requests.
	extendEvery = startExtension / 4
)

// notifySystemd reports the state of the node to systemd until life ends: when it is ready, when it
// drains and, at half of the watchdog's time, that its loops run.
func (r *running) notifySystemd(life context.Context, draining <-chan struct{}, systemd platform.Systemd, log *slog.Logger) {
	send := func(messages ...string) {
		if err := systemd.Notify(messages...); err != nil {
			log.WarnContext(life, "systemd was not notified", "err", err)
		}
	}
	send(platform.SystemdStatus("waiting for the database"), platform.SystemdExtend(startExtension))
	extend := time.NewTicker(extendEvery)
	defer extend.Stop()
	var watchdog <-chan time.Time
	if interval := systemd.Watchdog(); interval > 0 {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		watchdog = ticker.C
	}
	started := r.started
	for {
		select {
		case <-life.Done():
			return
		case <-draining:
			send(platform.SystemdStopping, platform.SystemdStatus("draining"))
			extend.Stop()
			draining, started = nil, nil
		case status := <-started:
			send(platform.SystemdReady, platform.SystemdStatus(status))
			extend.Stop()
			started = nil
		case <-extend.C:
			send(platform.SystemdExtend(startExtension))
		case <-watchdog:
			if node := r.node.Load(); node != nil { // otherwise it waits for its database, and has no loops
				if err := node.Stalled(time.Now()); err != nil {
					log.ErrorContext(life, "the watchdog of systemd is not notified: the node is stuck", "err", err)
					continue
				}
			}
			send(platform.SystemdWatchdog)
		}
	}
}

// emfFlag configures the metric lines in the log.
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

// metricInterval is the interval of the lines, and so of the metrics in CloudWatch.
const metricInterval = time.Minute

// metricLines writes the metrics of a node as log lines.
type metricLines struct {
	out    io.Writer
	format platform.EMF
	log    *slog.Logger
	before samples // at the previous line
}

func newMetricLines(o *Options) *metricLines {
	return &metricLines{out: o.signals.out, log: o.Log, format: platform.EMF{
		Namespace: "Carillon", Dimensions: map[string]string{"Fleet": o.signals.fleet},
		Properties: map[string]string{"node": o.Engine.Name, "version": o.Engine.Version},
	}}
}

// writeMetrics writes a line each minute, even while the node waits for its database, and a last
// one for the rest when life ends.
func (r *running) writeMetrics(life context.Context, lines *metricLines, registry prometheus.Gatherer) {
	ticker := time.NewTicker(metricInterval)
	defer ticker.Stop()
	for {
		select {
		case at := <-ticker.C:
			// A line has the time of its tick, so that CloudWatch gets one line per node for each minute.
			lines.write(life, at, registry, lines.all)
		case <-life.Done():
			lines.write(life, time.Now(), registry, lines.sinceLast)
			return
		}
	}
}

// write writes the metrics that pick selects from the registry.
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

// all returns the metrics of a line. It omits values that the node does not know yet, because 0 would be a value.
func (l *metricLines) all(now samples) []platform.Metric {
	unreachable := 1 - now["carillon_database_reachable"]
	metrics := []platform.Metric{
		{Name: "Nodes", Unit: platform.Count, Value: 1},
		{Name: "DatabaseUnreachable", Unit: platform.Count, Value: unreachable},
	}
	rolledBack, started := now["carillon_rolled_back"]
	if !started {
		return metrics // waits for its database
	}
	// A node without its database, or one that waits for a person, looks idle. A fleet that shrinks
	// because of that would be too small when the work comes back.
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

// sinceLast returns the increases since the previous line.
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

// samples are the values of counters and gauges by name or, for a family with a label besides app,
// by name and value of that label. They are summed over all apps.
type samples map[string]float64

// gather reads the counters and gauges of a registry.
func gather(registry prometheus.Gatherer) (samples, error) {
	families, err := registry.Gather() // returns a part if there is an error
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

// startTraces makes the engine record attempts as spans, if the environment names a collector. end sends the
// rest. With wrong variables a node works without traces, because platforms set them for all containers.
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
