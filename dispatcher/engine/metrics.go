package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
)

// metrics are what an operator watches of a node.
type metrics struct {
	load      load                   // for heartbeats
	claims    *prometheus.CounterVec // by result
	attempts  *prometheus.CounterVec // by state
	retries   *prometheus.CounterVec // by reason
	slots     *prometheus.CounterVec // by result
	misfires  prometheus.Counter
	removed   *prometheus.CounterVec // by kind
	lateness  prometheus.Histogram
	polls     prometheus.Histogram
	drift     prometheus.Gauge
	rollbacks prometheus.Gauge
}

// The results of a claim.
const (
	claimWon  = "won"
	claimLost = "lost"
)

// The kinds of history that a purge removes.
const (
	removedRun       = "run"
	removedMisfire   = "misfire"
	removedJob       = "job"
	purgedAuditEntry = "audit"
	removedPartition = "partition"
)

// newMetrics registers the metrics of e.
func newMetrics(e *Engine, registry prometheus.Registerer) *metrics {
	m := &metrics{
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_claims_total", Help: "Fires that this node tried to claim, by result: won, or lost to another node or a change.",
		}, []string{"result"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_attempts_total", Help: "Attempts that ended, by state.",
		}, []string{"state"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_retries_total", Help: "Runs that this node will attempt again, by reason: failed, throttled by Lambda, or deferred because the circuit of the host is open or its rate is used up.",
		}, []string{"reason"}),
		slots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_slots_total", Help: "Runs that asked for a concurrency slot, by result: won, or lost (they wait, or are skipped or cancelled).",
		}, []string{"result"}),
		misfires: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carillon_misfires_total", Help: "Misfire decisions that this node took. One decision may cover many fires.",
		}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_history_removed_total", Help: "History past its retention that this node removed, by kind. A partition is one day of a table.",
		}, []string{"kind"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_lateness_seconds", Help: "Time from when a scheduled fire was due until its first attempt began.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
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
	for _, result := range []string{claimWon, claimLost} {
		m.claims.WithLabelValues(result)
		m.slots.WithLabelValues(result)
	}
	for _, state := range []dispatcher.RunState{dispatcher.RunSucceeded, dispatcher.RunFailed, dispatcher.RunTimedOut, dispatcher.RunCancelled} {
		m.attempts.WithLabelValues(string(state))
	}
	for _, reason := range []string{retryFailed, string(dispatcher.ClassThrottled), string(dispatcher.ClassCircuitOpen), string(dispatcher.ClassHostRate)} {
		m.retries.WithLabelValues(reason)
	}
	for _, kind := range []string{removedRun, removedMisfire, removedPartition, removedJob, purgedAuditEntry} {
		m.removed.WithLabelValues(kind)
	}
	registry.MustRegister(m.claims, m.attempts, m.retries, m.slots, m.misfires, m.removed, m.lateness, m.polls, m.drift, m.rollbacks)
	gauge := func(name, help string, read func() int) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) }))
	}
	gauge("carillon_timeline_fires", "Fires planned in memory.", e.timeline.len)
	gauge("carillon_timeline_waiting_fires", "Planned fires that are due and have no place in the pool. The node is saturated if this stays above 0.", e.timeline.waiting)
	gauge("carillon_pool_runs", "Runs that the node holds.", e.pool.Held)
	gauge("carillon_pool_slow_runs", "Runs that the node holds in the share of slow attempts and jobs.", e.pool.HeldSlow)
	gauge("carillon_circuits_open", "Hosts with an open circuit: they failed too often in a row.", e.hosts.open)
	gauge("carillon_pool_workers", "Workers of the pool.", e.pool.Workers)
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carillon_clock_offset_seconds", Help: "How far the node's wall clock is ahead of the database's.",
	}, func() float64 { return e.clock.offset().Seconds() }))
	return m
}

// claimed counts the outcome of a batch.
func (m *metrics) claimed(won, lost int) {
	m.load.claimed(won)
	m.claims.WithLabelValues(claimWon).Add(float64(won))
	m.claims.WithLabelValues(claimLost).Add(float64(lost))
}

// purged counts what a call of Purge removed.
func (m *metrics) purged(t dispatcher.Purged) {
	m.removed.WithLabelValues(removedRun).Add(float64(t.Runs))
	m.removed.WithLabelValues(removedMisfire).Add(float64(t.Misfires))
	m.removed.WithLabelValues(removedJob).Add(float64(t.Jobs))
	m.removed.WithLabelValues(purgedAuditEntry).Add(float64(t.AuditEntries))
	m.removed.WithLabelValues(removedPartition).Add(float64(t.Partitions))
}

// polled notes a window poll, and how late it began.
func (m *metrics) polled(took, late time.Duration) {
	m.polls.Observe(took.Seconds())
	m.drift.Set(late.Seconds())
}

// rolledBack notes whether there is a rollback that no operator has resolved.
func (m *metrics) rolledBack(yes bool) {
	m.rollbacks.Set(0)
	if yes {
		m.rollbacks.Set(1)
	}
}
