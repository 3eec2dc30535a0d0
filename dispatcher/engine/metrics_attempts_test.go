package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// failing fails like a target that is down, with a text that must stay out of the log.
func failing(context.Context, target.Call) run.Outcome {
	end := time.Now()
	return run.Outcome{State: run.Failed, HTTPStatus: 503, Class: run.ClassHTTP5xx,
		Error: "secret-text", StartedAt: end.Add(-1500 * time.Millisecond), EndedAt: end}
}

func TestFailedAttemptIsOneLineWithIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	var log bytes.Buffer
	r.log.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	r.invoke = failing
	r.declare("report", "rate(1h)", func(trigger *dispatcher.Trigger) { trigger.StartAt = new(r.now.Add(time.Second)) })
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	runs := r.settled()
	var line map[string]any
	for text := range strings.Lines(log.String()) {
		if strings.Contains(text, `"attempt failed"`) {
			if line != nil {
				t.Errorf("the attempt is logged twice: %s", text)
			}
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
		}
	}
	delete(line, "time")
	want := map[string]any{"level": "INFO", "msg": "attempt failed", "run": runs[0].ID, "app": "app", "job": "report", "trigger": "only",
		"attempt": 1.0, "node": r.fleet.ID().String(), "state": "failed", "class": "http_5xx", "http_status": 503.0, "took": "1.5s"}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
	if strings.Contains(log.String(), "secret-text") {
		t.Errorf("the log has the error of the target: %s", log.String())
	}
	got := written(t, r.metrics.seconds[attemptKey{target.KindWebhook, run.Failed}].observer.(prometheus.Metric))
	if h := got.GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 1.5 || exemplarRun(h) != runs[0].ID {
		t.Errorf("attempts took %v, want one of 1.5 s with an exemplar of run %s", h, runs[0].ID)
	}
	late := written(t, r.metrics.apps.Of("app").lateness.observer.(prometheus.Metric)).GetHistogram()
	if late.GetSampleCount() != 1 || exemplarRun(late) != runs[0].ID {
		t.Errorf("lateness %v, want one observation with an exemplar of run %s", late, runs[0].ID)
	}
}

// written returns a metric as it is exported.
func written(t *testing.T, metric prometheus.Metric) *dto.Metric {
	t.Helper()
	var m dto.Metric
	if err := metric.Write(&m); err != nil {
		t.Fatal(err)
	}
	return &m
}

// exemplarRun returns the run that the only exemplar of a histogram names.
func exemplarRun(h *dto.Histogram) (run string) {
	for _, bucket := range h.GetBucket() {
		for _, label := range bucket.GetExemplar().GetLabel() {
			run += label.GetValue()
		}
	}
	return run
}

// However many runs are late at once, a second has two exemplars: one of them names a run that was notably late.
func TestExemplarsAreBoundedBySecond(t *testing.T) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: []float64{.1, 1, 10}})
	timed, at := newTimed(h, notable), time.Unix(1_800_000_000, 0)
	calls := make([]target.Call, 4)
	for i := range calls {
		calls[i].Key = run.Key{TriggerID: int64(i + 1), ScheduledAt: at, Kind: run.KindSchedule}
	}
	allocations := testing.AllocsPerRun(100, func() {
		timed.observe(50*time.Millisecond, &calls[0], at)
		timed.observe(5*time.Second, &calls[1], at)
		timed.observe(60*time.Millisecond, &calls[2], at)
		timed.observe(6*time.Second, &calls[3], at)
	})
	if want := calls[0].Key.String() + calls[1].Key.String(); exemplarRun(written(t, h).GetHistogram()) != want || allocations != 0 {
		t.Errorf("exemplars %q after %v allocations, want those of the first of each, %q, and none",
			exemplarRun(written(t, h).GetHistogram()), allocations, want)
	}
}

func TestLinesOfFailedAttemptsAreBoundedBySecond(t *testing.T) {
	t.Parallel()
	lines := newAppMetrics(prometheus.NewRegistry()).Of("billing").lines
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	logged := 0
	for range 1000 {
		if left, log := lines.May("attempt failed", now); log && left == 0 {
			logged++
		}
	}
	if logged != linesPerSecond {
		t.Errorf("%d lines in a second, want %d", logged, linesPerSecond)
	}
	if left, log := lines.May("attempt failed", now.Add(time.Second)); !log || left != 1000-linesPerSecond {
		t.Errorf("in the next second: logged %v, %d left out before, want true, %d", log, left, 1000-linesPerSecond)
	}
	if left, log := lines.May("attempt failed", now.Add(time.Second)); !log || left != 0 {
		t.Errorf("then: logged %v, %d left out, want true, 0", log, left)
	}
}

func TestMissedFiresCountByDecision(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("skips", "rate(1s)", func(trigger *dispatcher.Trigger) {
		trigger.MisfirePolicy, trigger.MisfireAfter = dispatcher.Skip, dispatcher.DefaultMisfireAfter
	})
	if err := r.chores.SettleMisfires(t.Context(), r.now.Add(10*time.Minute)); err != nil {
		t.Fatal(err)
	}
	r.quiet()
	missed := r.metrics.apps.Of("app").missed
	if got := testutil.ToFloat64(missed[dispatcher.DecisionSkip]); got < 500 {
		t.Errorf("%v missed fires were skipped, want those of ten minutes", got)
	}
	if got := testutil.ToFloat64(missed[dispatcher.DecisionFireOnce]); got != 0 {
		t.Errorf("%v missed fires were caught up, want none", got)
	}
}

// refusals closes first when a run has asked for a slot and did not get one.
type refusals struct {
	Store
	once  sync.Once
	first chan struct{}
}

func (s *refusals) Acquire(ctx context.Context, runs []run.HeldRun) ([]run.HeldRun, error) {
	granted, err := s.Store.Acquire(ctx, runs)
	if err == nil && len(granted) < len(runs) {
		s.once.Do(func() { close(s.first) })
	}
	return granted, err
}

func TestSkippedRunsCountByReason(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := newRig(t, func(s Store) Store { return &refusals{Store: s, first: release} })
	r.invoke = func(context.Context, target.Call) run.Outcome {
		<-release
		return run.Outcome{State: run.Succeeded}
	}
	r.declare("alone", "rate(1s)", nil)
	job, err := r.store.Job(t.Context(), "app", "alone")
	if err != nil {
		t.Fatal(err)
	}
	job.ConcurrencyPolicy = run.ConcurrencyForbid
	if _, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	r.claimOnce(t.Context(), r.now.Add(2*time.Second))
	r.quiet()
	const help = "Runs that this node did not attempt, because they got no slot or because of a quota of their app, by app and reason."
	want := "# HELP carillon_skipped_runs_total " + help + `
		# TYPE carillon_skipped_runs_total counter
		carillon_skipped_runs_total{app="",reason="alert_deleted"} 0
		carillon_skipped_runs_total{app="",reason="chain"} 0
		carillon_skipped_runs_total{app="",reason="endpoint_busy"} 0
		carillon_skipped_runs_total{app="",reason="forbid"} 0
		carillon_skipped_runs_total{app="",reason="queue_full"} 0
		carillon_skipped_runs_total{app="",reason="replaced"} 0
		carillon_skipped_runs_total{app="",reason="waiting_runs"} 0
		carillon_skipped_runs_total{app="app",reason="alert_deleted"} 0
		carillon_skipped_runs_total{app="app",reason="chain"} 0
		carillon_skipped_runs_total{app="app",reason="endpoint_busy"} 0
		carillon_skipped_runs_total{app="app",reason="forbid"} 1
		carillon_skipped_runs_total{app="app",reason="queue_full"} 0
		carillon_skipped_runs_total{app="app",reason="replaced"} 0
		carillon_skipped_runs_total{app="app",reason="waiting_runs"} 0
	`
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "carillon_skipped_runs_total"); err != nil {
		t.Error(err)
	}
}
