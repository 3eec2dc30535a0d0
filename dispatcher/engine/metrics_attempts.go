package engine

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/series"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// appMetrics are the series of one app, looked up once, so that a fire costs no lookup by labels.
type appMetrics struct {
	attempts map[run.State]prometheus.Counter
	missed   map[dispatcher.Decision]prometheus.Counter
	// credentials counts attempts that failed because of a secret.
	credentials map[view.CredentialReason]prometheus.Counter
	lateness    timed
	lines       lineBudget
}

// attemptStates are the states in which an attempt can end. The target of one that waits for a callback accepted it; the end
// of such an attempt counts again if a node finds it, and not if the callback says that it succeeded.
var attemptStates = []run.State{run.Succeeded, run.Failed, run.TimedOut,
	run.Cancelled, run.Lost, run.Superseded, run.WaitingCallback}

// newAppMetrics registers the metrics with a label app.
func newAppMetrics(registry prometheus.Registerer) *series.Apps[*appMetrics] {
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_attempts_total", Help: "Attempts that ended, by app and state.",
	}, []string{"app", "state"})
	missed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_missed_fires_total", Help: "Fires that were missed, by app and by what this node decided about them.",
	}, []string{"app", "decision"})
	credentials := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_credential_failures_total", Help: "Attempts that failed because of a secret, by app and reason.",
	}, []string{"app", "reason"})
	lateness := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "carillon_lateness_seconds", Help: "Time from when a scheduled fire was due until its first attempt began.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"app"})
	registry.MustRegister(attempts, missed, credentials, lateness)
	return series.New(func(app string) *appMetrics {
		m := &appMetrics{
			attempts: map[run.State]prometheus.Counter{}, missed: map[dispatcher.Decision]prometheus.Counter{},
			credentials: map[view.CredentialReason]prometheus.Counter{}, lateness: newTimed(lateness.WithLabelValues(app), notable),
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

// attemptKey is what attempts are timed by.
type attemptKey struct {
	target target.Kind
	state  run.State
}

// newAttemptSeconds registers how long attempts take.
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

// notable is from how long on an observation is one that people look for.
const notable = time.Second

// timed is a histogram whose buckets name a run as an example: one a second, and one that took notably long. An exemplar costs
// several times what an observation does, and nobody looks at more. While a node is overloaded all take long, and then cost
// matters most.
type timed struct {
	observer prometheus.ExemplarObserver
	notable  time.Duration
	seconds  *exemplarSeconds
}

// exemplarSeconds are when the latest exemplars were made, in Unix time.
type exemplarSeconds struct{ usual, notable atomic.Int64 }

func newTimed(observer prometheus.Observer, notable time.Duration) timed {
	return timed{observer.(prometheus.ExemplarObserver), notable, &exemplarSeconds{}} // all histograms of this library are
}

// observe notes that something of a run took a time, as seen at a local time. The exemplar names the trace, too, if there is
// one to be found.
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

// began notes how late an attempt began. first says that it is the first of a scheduled fire.
func (m *metrics) began(call *target.Call, late time.Duration, first bool, at time.Time) {
	m.load.began(late, first)
	if first {
		m.apps.Of(call.App).lateness.observe(late, call, at)
	}
}

// ended counts the end of an attempt, and logs one that failed.
func (e *Engine) ended(ctx context.Context, a *attempt) {
	// What could not be resolved, such as a run of a deleted job, has no call.
	of := e.metrics.apps.Of(cmp.Or(a.call.App, a.run.Queue.App))
	if counter, known := of.attempts[a.outcome.State]; known {
		counter.Inc()
	}
	if counter, known := of.credentials[view.CredentialReasonOf(a.outcome.Class, a.outcome.HTTPStatus)]; known {
		counter.Inc()
	}
	switch a.outcome.State {
	case run.Failed, run.TimedOut, run.Lost:
		e.logFailure(ctx, a, &of.lines)
	}
}

// timeAttempt notes how long a request took.
func (e *Engine) timeAttempt(a *attempt) {
	if seconds, known := e.metrics.seconds[attemptKey{a.call.Target.Kind(), a.outcome.State}]; known && !a.outcome.NotSent {
		seconds.observe(a.outcome.EndedAt.Sub(a.outcome.StartedAt), &a.call, a.outcome.EndedAt)
	}
}

// logFailure logs an attempt that failed, if its app has a line left. What the target said stays out: it may have any text
// in it, and the run has it.
func (e *Engine) logFailure(ctx context.Context, a *attempt, lines *lineBudget) {
	log, left := lines.take(a.outcome.EndedAt)
	if left > 0 {
		e.log.InfoContext(ctx, "failed attempts not logged", "app", cmp.Or(a.call.App, a.run.Queue.App), "count", left)
	}
	if !log {
		return
	}
	attributes := []slog.Attr{
		slog.String("run", a.run.String()), slog.String("app", cmp.Or(a.call.App, a.run.Queue.App)), slog.String("job", a.call.Job),
		slog.String("trigger", a.call.Trigger), slog.Int("attempt", a.run.Attempt), slog.String("node", a.run.Node.String()),
		slog.String("state", string(a.outcome.State)), slog.String("class", string(a.outcome.Class)),
		slog.Int("http_status", a.outcome.HTTPStatus), slog.String("took", a.outcome.EndedAt.Sub(a.outcome.StartedAt).String()),
	}
	if a.call.Sampling == run.Sampled {
		attributes = append(attributes, slog.String("trace_id", a.call.TraceID().String()))
	}
	e.log.LogAttrs(ctx, slog.LevelInfo, "attempt failed", attributes...)
}

// linesPerSecond is how many failed attempts of an app a node logs in a second. A target that is down can fail thousands,
// and the log shall tell of other apps, too.
const linesPerSecond = 10

// lineBudget bounds lines of the log by the second.
type lineBudget struct {
	mu     sync.Mutex
	second int64
	taken  int
	left   int // not logged since the last line
}

// take tells whether a line may be logged now, and how many were left out since the line before.
func (b *lineBudget) take(now time.Time) (log bool, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if second := now.Unix(); second != b.second {
		b.second, b.taken = second, 0
	}
	if b.taken == linesPerSecond {
		b.left++
		return false, 0
	}
	b.taken++
	left, b.left = b.left, 0
	return true, left
}
