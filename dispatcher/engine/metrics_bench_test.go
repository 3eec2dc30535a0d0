package engine

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// BenchmarkMetricsOfAnAttempt measures the cost of all metrics for a fire that succeeds in time.
func BenchmarkMetricsOfAnAttempt(b *testing.B) {
	e := New(unwilling{}, nil, Options{})
	a := &attempt{call: target.Call{App: "shop", Target: target.Target{Webhook: &target.Webhook{}}}}
	a.run.Kind, a.run.Attempt, a.run.Detail.Job = run.KindSchedule, 1, emptyOf(a.run.Detail.Job)
	begun := time.Now()
	a.outcome = run.Outcome{State: run.Succeeded, StartedAt: begun, EndedAt: begun.Add(time.Millisecond)}
	for b.Loop() {
		e.metrics.waits.Observe(0)
		e.metrics.began(a.run, &a.call, time.Millisecond, begun)
		e.ended(b.Context(), a)
		e.timeAttempt(a)
	}
}
