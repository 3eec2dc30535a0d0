package engine

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/series"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

type metrics struct {
	load     load                   // for heartbeats
	usage    usage                  // of the pool
	claims   *prometheus.CounterVec // by result
	apps     *series.Apps[*appMetrics]
	seconds  map[attemptKey]timed
	waits    prometheus.Histogram     // for the pool
	waited   *prometheus.HistogramVec // by reason
	retries  *prometheus.CounterVec   // by reason
	slots    *prometheus.CounterVec   // by result
	unplaced *prometheus.CounterVec   // by reason
	removed  *prometheus.CounterVec   // by kind
	polls    prometheus.Histogram
	drift    prometheus.Gauge
}

// The results of a claim.
const (
	claimWon  = "won"
	claimLost = "lost"
)

func newMetrics(e *Engine, registry prometheus.Registerer) *metrics {
	m := &metrics{
		claims: counters(registry, "carillon_claims_total", "result", []string{claimWon, claimLost},
			"Fires that this node tried to claim, by result: won, or lost to another node or a change."),
		apps: newAppMetrics(registry), seconds: newAttemptSeconds(registry), waited: newWaits(registry),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_pool_wait_seconds", Help: "Time from when a fire that this node claimed was due until a worker of the pool took it.",
			Buckets: []float64{.001, .01, .1, 1, 10, 60, 600},
		}),
		retries: counters(registry, "carillon_retries_total", "reason",
			[]run.Class{retryFailed, run.ClassThrottled, run.ClassCircuitOpen, run.ClassHostRate},
			"Runs that this node will attempt again, by reason: failed, throttled by Lambda, or deferred because the circuit "+
				"of the host is open or its rate is used up."),
		slots: counters(registry, "carillon_slots_total", "result", []string{claimWon, claimLost},
			"Runs that asked for a slot of their job or of an endpoint, by result: won, or lost (they wait, or are skipped or cancelled)."),
		unplaced: counters(registry, "carillon_unplaced_runs_total", "reason",
			[]string{unplacedRetry, unplacedDeferred, unplacedCallback},
			"Fires that ended because their app has as many waiting runs as it may, by what they would have waited for."),
		removed: counters[string](registry, "carillon_history_removed_total", "kind", nil,
			"History past its retention that this node removed, by kind. A partition is one day of a table."),
		polls: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_poll_seconds", Help: "Duration of a window poll.", Buckets: prometheus.ExponentialBuckets(.001, 2, 14),
		}),
		drift: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "carillon_poll_drift_seconds", Help: "How much later than its interval the latest window poll began.",
		}),
	}
	m.purged(dispatcher.Purged{}) // all kinds begin at 0
	registry.MustRegister(m.waits, m.polls, m.drift)
	if watcher, can := e.invoker.(endpointWatcher); can {
		registry.MustRegister(newEndpointCounts(watcher))
	}
	registry.MustRegister(buildInfo{prometheus.NewDesc("carillon_build_info",
		"Always 1; the labels say which version this is, and which time zone data it uses.", []string{"zones"},
		prometheus.Labels{"version": e.opts.Version, "go": runtime.Version()})})
	m.registerGauges(e, registry)
	return m
}

// registerGauges registers metrics that are read from the engine at each scrape.
func (m *metrics) registerGauges(e *Engine, registry prometheus.Registerer) {
	for _, gauge := range []struct {
		name, help string
		read       func() float64
	}{
		{"carillon_timeline_fires", "Fires planned in memory.", count(func() int { return e.plan.Timeline.Len() + e.plan.Ahead.Len() })},
		{"carillon_timeline_waiting_fires",
			"Planned fires that are due and have no place in the pool. The node is saturated if this stays above 0.",
			count(e.plan.Timeline.Waiting)},
		{"carillon_oldest_overdue_seconds", "How long the oldest due fire that no node has claimed waits, as this node sees it; 0 if none.",
			func() float64 {
				now := e.clock.Now()
				return max(e.plan.OldestOverdue(now), e.chores.OverdueInRollback(now)).Seconds()
			}},
		{"carillon_lateness_max_seconds", "Largest lateness, as in carillon_lateness_seconds, of the fires that began in the last minute.",
			func() float64 { return m.load.latest().Seconds() }},
		{"carillon_pool_runs", "Runs that the node holds.", count(e.pool.Held)},
		{"carillon_pool_workers", "Workers of the pool.", count(e.pool.Workers)},
		{"carillon_pool_use_ratio", "Part of the attempts that may be made at once which was in flight, from 0 to 1, as the mean of the " +
			"last minute.", m.usage.mean},
		{"carillon_circuits_open", "Hosts, each of one app, at which some jobs have to wait because they failed too often in a row.",
			func() float64 { return float64(e.hosts.openCircuits(time.Now())) }},
		{"carillon_live_nodes", "Active nodes, at the latest heartbeat of this node.",
			count(func() int { live, _ := e.fleet.Live(); return live })},
		{"carillon_silent_nodes", "Active nodes without a heartbeat for three intervals, at the latest heartbeat of this node. They do not " +
			"count as dead yet.", count(func() int { _, silent := e.fleet.Live(); return silent })},
		{"carillon_clock_offset_seconds", "How far the node's wall clock is ahead of the database's.",
			func() float64 { return e.clock.Offset().Seconds() }},
		{"carillon_database_reachable", "1 if the node's latest heartbeat reached the database, else 0.",
			func() float64 {
				if e.fleet.Reachable(e.opts.Heartbeat) {
					return 1
				}
				return 0
			}},
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: gauge.name, Help: gauge.help}, gauge.read))
	}
}

// buildInfo exports the versions of the program and of its time zones, which may change while it runs.
type buildInfo struct{ *prometheus.Desc }

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

// load is the work of the node, for its heartbeats.
type load struct {
	mu     sync.Mutex
	recent []claims // of the last minute, oldest first
	lag    time.Duration
	waits  bool // since the last call of read, fires found no free worker at some second
	late   largest
}

// claims is how many fires were claimed within a second.
type claims struct {
	at    time.Time
	fires int
}

func (l *load) claimed(fires int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last := len(l.recent) - 1; last >= 0 && now.Sub(l.recent[last].at) < time.Second {
		l.recent[last].fires += fires
		return
	}
	l.recent = append(l.recent, claims{now, fires})
}

// began notes how late a fire began.
func (l *load) began(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = max(l.lag, late)
	l.late.add(late, time.Now())
}

// sampled notes whether fires wait for a worker now.
func (l *load) sampled(waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits = l.waits || waits
}

// latest returns the largest lateness of the fires that began in the last minute.
func (l *load) latest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late.read(time.Now())
}

// read returns the fires of the last minute. Since the last call, lag is the largest lateness, and waits is true if
// fires found no free worker.
func (l *load) read() (fires int, lag time.Duration, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.recent) > 0 && now.Sub(l.recent[0].at) > time.Minute {
		l.recent = l.recent[1:]
	}
	for _, c := range l.recent {
		fires += c.fires
	}
	lag, l.lag = l.lag, 0
	waits, l.waits = l.waits, false
	return fires, lag, waits
}

// usage is how busy the node was in the last minute. A single sample would miss herds: jobs like to fire on the minute,
// and metrics are read at any second.
type usage struct {
	mu     sync.Mutex
	shares []float64 // of the pool in use, about one a second, the latest last
}

// usageSamples make a minute.
const usageSamples = 60

// usageLoop samples the pool about once a second. The seconds drift, because fires are due on whole ones.
func (e *Engine) usageLoop(ctx context.Context) {
	for ctx.Err() == nil {
		use, waiting := e.pool.Load()
		e.metrics.usage.add(use)
		e.metrics.load.sampled(e.plan.Timeline.Waiting() > 0 || waiting > 0)
		backoff.Sleep(ctx, loop.Spread(time.Second))
	}
}

func (u *usage) add(share float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.shares) == usageSamples {
		copy(u.shares, u.shares[1:])
		u.shares = u.shares[:usageSamples-1]
	}
	u.shares = append(u.shares, share)
}

// mean returns the mean of the last minute.
func (u *usage) mean() float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.shares) == 0 {
		return 0
	}
	sum := 0.0
	for _, share := range u.shares {
		sum += share
	}
	return sum / float64(len(u.shares))
}

// largest is the largest of the durations of the last minute, by seconds.
type largest struct {
	seconds [64]struct {
		at   int64
		most time.Duration
	}
}

func (l *largest) add(d time.Duration, now time.Time) {
	at := now.Unix()
	second := &l.seconds[at%int64(len(l.seconds))]
	if second.at != at {
		second.at, second.most = at, 0
	}
	second.most = max(second.most, d)
}

func (l *largest) read(now time.Time) (most time.Duration) {
	for _, second := range l.seconds {
		if ago := now.Unix() - second.at; ago >= 0 && ago <= 60 {
			most = max(most, second.most)
		}
	}
	return most
}

// appMetrics are the series of one app, looked up once, so that a fire costs no lookup by labels.
type appMetrics struct {
	attempts map[run.State]prometheus.Counter
	missed   map[dispatcher.Decision]prometheus.Counter
	accepted prometheus.Counter // accepted attempts that failed, which attempts has twice
	// credentials counts attempts that failed because of a secret.
	credentials map[view.CredentialReason]prometheus.Counter
	lateness    timed
	lines       *limit.Lines
}

// attemptStates are the states in which an attempt can end. An attempt that waits for a callback was accepted by its
// target. Its end counts again if a node finds it, and not if the callback reports a success.
var attemptStates = []run.State{run.Succeeded, run.Failed, run.TimedOut,
	run.Cancelled, run.Lost, run.Superseded, run.WaitingCallback}

// newAppMetrics registers the metrics with a label app.
func newAppMetrics(registry prometheus.Registerer) *series.Apps[*appMetrics] {
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_attempts_total", Help: "Attempts that ended, by app and state.",
	}, []string{"app", "state"})
	accepted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_accepted_attempts_failed_total", Help: "Attempts that their target accepted and that failed then, by app.",
	}, []string{"app"})
	missed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_missed_fires_total", Help: "Fires that were missed, by app and by what this node decided about them.",
	}, []string{"app", "decision"})
	credentials := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_credential_failures_total", Help: "Attempts that failed because of a secret, by app and reason.",
	}, []string{"app", "reason"})
	lateness := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "carillon_lateness_seconds", Help: "Time from when a scheduled fire was due until its first attempt began, of fires that did " +
			"not wait as their job asked and were not taken over from another node.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"app"})
	registry.MustRegister(attempts, accepted, missed, credentials, lateness)
	return series.New(func(app string) *appMetrics {
		m := &appMetrics{
			attempts: map[run.State]prometheus.Counter{}, missed: map[dispatcher.Decision]prometheus.Counter{},
			credentials: map[view.CredentialReason]prometheus.Counter{}, lateness: newTimed(lateness.WithLabelValues(app), notable),
			accepted: accepted.WithLabelValues(app), lines: limit.NewLines(linesPerSecond, time.Second),
		}
		for _, reason := range view.CredentialReasons {
			m.credentials[reason] = credentials.WithLabelValues(app, string(reason))
		}
		for _, state := range attemptStates {
			m.attempts[state] = attempts.WithLabelValues(app, string(state))
		}
		for _, decision := range []dispatcher.Decision{dispatcher.DecisionSkip, dispatcher.DecisionFireOnce, dispatcher.DecisionFireAll} {
			m.missed[decision] = missed.WithLabelValues(app, string(decision))
		}
		return m
	})
}

// waitTakeOver is the reason of a fire that another node had claimed. Its job did not ask for that.
const waitTakeOver run.WaitReason = "take_over"

// waitPause is the reason of a fire that was due before the latest change of its job by people, or end of a pause.
const waitPause run.WaitReason = "pause"

// newWaits registers the waits before a first attempt that are not lateness.
func newWaits(registry prometheus.Registerer) *prometheus.HistogramVec {
	all := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "carillon_wait_seconds", Help: "Time from when a scheduled fire was due until its first attempt began, of fires that " +
			"waited as their job asked, were held by a pause or were taken over from another node, by reason.",
		Buckets: []float64{.1, 1, 10, 60, 600, 3600},
	}, []string{"reason"})
	for _, reason := range []run.WaitReason{run.WaitSlot, run.WaitCircuit, run.WaitHostRate, run.WaitOther, waitTakeOver, waitPause} {
		all.WithLabelValues(string(reason))
	}
	registry.MustRegister(all)
	return all
}

// attemptKey is the key of the times of attempts.
type attemptKey struct {
	target target.Kind
	state  run.State
}

func newAttemptSeconds(registry prometheus.Registerer) map[attemptKey]timed {
	all := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "carillon_attempt_seconds", Help: "Time that requests of attempts took, by kind of target and state.",
		Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
	}, []string{"target", "state"})
	registry.MustRegister(all)
	seconds := map[attemptKey]timed{}
	for _, kind := range target.Kinds {
		for _, state := range attemptStates {
			seconds[attemptKey{kind, state}] = newTimed(all.WithLabelValues(string(kind), string(state)), notable)
		}
	}
	return seconds
}

// notable is the shortest observation that is worth a look.
const notable = time.Second

// timed is a histogram whose buckets name a run as an example: one a second, and one that took notably long. An
// exemplar costs several times as much as an observation, and more of them are of no use. While a node is overloaded
// all runs take long, and then cost matters most.
type timed struct {
	observer prometheus.ExemplarObserver
	notable  time.Duration
	seconds  *exemplarSeconds
}

// exemplarSeconds are the times of the latest exemplars, in Unix time.
type exemplarSeconds struct{ usual, notable atomic.Int64 }

func newTimed(observer prometheus.Observer, notable time.Duration) timed {
	return timed{observer.(prometheus.ExemplarObserver), notable, &exemplarSeconds{}} // all histograms of this library are
}

// observe notes a duration of a run, as seen at a local time. The exemplar also names the trace if the trace is
// recorded.
func (t timed) observe(took time.Duration, call *target.Call, at time.Time) {
	latest := &t.seconds.usual
	if took >= t.notable {
		latest = &t.seconds.notable
	}
	if second := at.Unix(); latest.Swap(second) == second {
		t.observer.(prometheus.Observer).Observe(took.Seconds())
		return
	}
	labels := prometheus.Labels{"run": call.Key.String()}
	if call.Sampling == run.Sampled {
		labels["trace_id"] = call.TraceID().String()
	}
	t.observer.ObserveWithExemplar(took.Seconds(), labels)
}

// began notes the lateness of a fire whose first attempt begins: if it waited as its job asked, was held by a pause, or
// was taken over, the time is noted as a wait instead. No other attempt is late: retries, manual runs, catch-ups, backfills and shards.
func (m *metrics) began(r plan.Held, call *target.Call, after time.Duration, at time.Time) {
	if r.Kind != run.KindSchedule || r.Attempt != 1 || r.Shard > 0 {
		return
	}
	why := r.Waited
	if job := r.Detail.Job; job == nil {
		why = cmp.Or(why, waitTakeOver)
	} else if r.Due.Before(job.OwedFrom()) {
		why = cmp.Or(why, waitPause)
	}
	if why != "" {
		m.waited.WithLabelValues(string(why)).Observe(after.Seconds())
		return
	}
	m.load.began(after)
	m.apps.Of(call.App).lateness.observe(after, call, at)
}
