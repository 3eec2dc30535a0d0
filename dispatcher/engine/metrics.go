package engine

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/series"
)

// metrics are what an operator watches of a node.
type metrics struct {
	load      load                   // for heartbeats
	usage     usage                  // of the pool
	claims    *prometheus.CounterVec // by result
	apps      *series.Apps[*appMetrics]
	seconds   map[attemptKey]timed
	waits     prometheus.Histogram   // for the pool
	retries   *prometheus.CounterVec // by reason
	slots     *prometheus.CounterVec // by result
	leftSlots prometheus.Counter
	// mendedLeaks are by kind.
	mendedLeaks *prometheus.CounterVec
	unplaced    *prometheus.CounterVec // by reason
	misfires    prometheus.Counter
	removed     *prometheus.CounterVec // by kind
	polls       prometheus.Histogram
	drift       prometheus.Gauge
	rollbacks   prometheus.Gauge
}

// The results of a claim.
const (
	claimWon  = "won"
	claimLost = "lost"
)

// newMetrics registers the metrics of e.
func newMetrics(e *Engine, registry prometheus.Registerer) *metrics {
	m := &metrics{
		claims: counters(registry, "carillon_claims_total", "result", []string{claimWon, claimLost},
			"Fires that this node tried to claim, by result: won, or lost to another node or a change."),
		apps: newAppMetrics(registry), seconds: newAttemptSeconds(registry),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_pool_wait_seconds", Help: "Time from when a run was due until a worker of the pool took it.",
			Buckets: []float64{.001, .01, .1, 1, 10, 60, 600},
		}),
		retries: counters(registry, "carillon_retries_total", "reason",
			[]run.Class{retryFailed, run.ClassThrottled, run.ClassCircuitOpen, run.ClassHostRate},
			"Runs that this node will attempt again, by reason: failed, throttled by Lambda, or deferred because the circuit "+
				"of the host is open or its rate is used up."),
		slots: counters(registry, "carillon_slots_total", "result", []string{claimWon, claimLost},
			"Runs that asked for a slot of their job or of an endpoint, by result: won, or lost (they wait, or are skipped or cancelled)."),
		leftSlots: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carillon_left_slots_total",
			Help: "Slots of attempts that the database gave to this node and that it did not make, as after a rollback, and that it freed.",
		}),
		mendedLeaks: counters(registry, "carillon_mended_leaks_total", "kind",
			[]dispatcher.LeakKind{dispatcher.LeakWaiting, dispatcher.LeakCallback},
			"Runs that nothing would have let go on and that this node let go, by kind: waiting for a host without probes, or for a "+
				"callback without a deadline."),
		unplaced: counters(registry, "carillon_unplaced_runs_total", "reason",
			[]string{unplacedRetry, unplacedDeferred, unplacedCallback},
			"Fires that ended because their app has as many waiting runs as it may, by what they would have waited for."),
		removed: counters[string](registry, "carillon_history_removed_total", "kind", nil,
			"History past its retention that this node removed, by kind. A partition is one day of a table."),
		misfires: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carillon_misfires_total", Help: "Misfire decisions that this node took. One decision may cover many fires.",
		}),
		polls: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_poll_seconds", Help: "Duration of a window poll.", Buckets: prometheus.ExponentialBuckets(.001, 2, 14),
		}),
		drift: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "carillon_poll_drift_seconds", Help: "How much later than its interval the latest window poll began.",
		}),
		rollbacks: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "carillon_rolled_back", Help: "1 while nodes are paused because the database lost commits, else 0.",
		}),
	}
	m.purged(dispatcher.Purged{}) // all kinds begin at 0
	registry.MustRegister(m.leftSlots, m.misfires, m.waits, m.polls, m.drift, m.rollbacks)
	if watcher, can := e.invoker.(endpointWatcher); can {
		registry.MustRegister(newEndpointCounts(watcher))
	}
	registry.MustRegister(newCensusGauges(e), newBuildInfo(e.opts.Version))
	m.registerGauges(e, registry)
	return m
}

// registerGauges registers what is read from the engine when it is asked for.
func (m *metrics) registerGauges(e *Engine, registry prometheus.Registerer) {
	for _, gauge := range []struct {
		name, help string
		read       func() float64
	}{
		{"carillon_timeline_fires", "Fires planned in memory.", count(func() int { return e.timeline.len() + e.ahead.len() })},
		{"carillon_timeline_waiting_fires",
			"Planned fires that are due and have no place in the pool. The node is saturated if this stays above 0.", count(e.timeline.waiting)},
		{"carillon_oldest_overdue_seconds", "How long the oldest due fire that no node has claimed waits, as this node sees it; 0 if none.",
			func() float64 { return e.oldestOverdue(e.clock.now()).Seconds() }},
		{"carillon_upcoming_fires",
			"Triggers that are due within 15 minutes, 100,000 at most, if this node counted them in the last minute; else 0.",
			func() float64 { return float64(e.upcoming.read(e.clock.now(), e.opts.Handler)) }},
		{"carillon_awaited_callbacks",
			"Runs that wait for a callback, 100,000 at most, if this node counted them in the last minute; else 0.",
			func() float64 { return float64(e.upcoming.readAwaited(e.clock.now(), e.opts.Handler)) }},
		{"carillon_lateness_max_seconds", "Largest lateness of the scheduled fires whose first attempt began in the last minute.",
			func() float64 { return m.load.latest().Seconds() }},
		{"carillon_pool_runs", "Runs that the node holds.", count(e.pool.Held)},
		{"carillon_pool_workers", "Workers of the pool.", count(e.pool.Workers)},
		{"carillon_pool_use_ratio", "Part of the attempts that may be made at once which was in flight, from 0 to 1, as the mean of the " +
			"last minute.", m.usage.mean},
		{"carillon_circuits_open", "Hosts, each of one app, at which some jobs have to wait because they failed too often in a row.",
			func() float64 { return float64(e.hosts.openCircuits(time.Now())) }},
		{"carillon_clock_offset_seconds", "How far the node's wall clock is ahead of the database's.",
			func() float64 { return e.clock.offset().Seconds() }},
		{"carillon_database_reachable", "1 if the node's latest heartbeat reached the database, else 0.",
			func() float64 { return oneIf(e.fleet.reachable(e.opts.Heartbeat)) }},
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: gauge.name, Help: gauge.help}, gauge.read))
	}
}

// buildInfo tells the versions of the program and of its time zones, which may change while it runs.
type buildInfo struct{ *prometheus.Desc }

func newBuildInfo(version string) prometheus.Collector {
	return buildInfo{prometheus.NewDesc("carillon_build_info",
		"Always 1; the labels say which version this is, and which time zone data it uses.", []string{"zones"},
		prometheus.Labels{"version": version, "go": runtime.Version()})}
}

// Describe sends the description of the metric.
func (b buildInfo) Describe(to chan<- *prometheus.Desc) { to <- b.Desc }

// Collect sends the metric.
func (b buildInfo) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(b.Desc, prometheus.GaugeValue, 1, schedule.ZonesVersion())
}

// counters registers a family of counters, one for each value of a label, all of them 0.
func counters[T ~string](registry prometheus.Registerer, name, label string, values []T, help string) *prometheus.CounterVec {
	all := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		all.WithLabelValues(string(value))
	}
	registry.MustRegister(all)
	return all
}

func count(read func() int) func() float64 { return func() float64 { return float64(read()) } }

// claimed counts the outcome of a batch.
func (m *metrics) claimed(won, lost int) {
	m.load.claimed(won)
	m.claims.WithLabelValues(claimWon).Add(float64(won))
	m.claims.WithLabelValues(claimLost).Add(float64(lost))
}

// purged counts what a call of Purge removed.
func (m *metrics) purged(t dispatcher.Purged) {
	m.removed.WithLabelValues("run").Add(float64(t.Runs))
	m.removed.WithLabelValues("misfire").Add(float64(t.Misfires))
	m.removed.WithLabelValues("job").Add(float64(t.Jobs))
	m.removed.WithLabelValues("audit").Add(float64(t.AuditEntries))
	m.removed.WithLabelValues("partition").Add(float64(t.Partitions))
}

// polled notes a window poll, and how late it began.
func (m *metrics) polled(took, late time.Duration) {
	m.polls.Observe(took.Seconds())
	m.drift.Set(late.Seconds())
}

// rolledBack notes whether there is a rollback that no operator has resolved.
func (m *metrics) rolledBack(yes bool) { m.rollbacks.Set(oneIf(yes)) }

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
