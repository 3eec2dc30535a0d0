package engine

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestLatenessIsThatOfFirstAttemptsThatDidNotWait(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		change func(*plan.Held)
		late   bool
		waited run.WaitReason
	}{
		"a fire claimed here":          {change: func(*plan.Held) {}, late: true},
		"a retry":                      {change: func(r *plan.Held) { r.Attempt = 2 }},
		"a run of a backfill":          {change: func(r *plan.Held) { r.Kind = run.KindBackfill }},
		"a catch-up":                   {change: func(r *plan.Held) { r.Kind = run.KindCatchUp }},
		"a manual run":                 {change: func(r *plan.Held) { r.Kind = run.KindManual }},
		"a delivery of an alert":       {change: func(r *plan.Held) { r.Kind = run.KindAlert }},
		"a shard":                      {change: func(r *plan.Held) { r.Shard = 1 }},
		"a run that waited for a slot": {change: adopted(run.WaitSlot), waited: run.WaitSlot},
		"a run that waited for a host": {change: adopted(run.WaitCircuit), waited: run.WaitCircuit},
		"a run that waited for a turn": {change: adopted(run.WaitHostRate), waited: run.WaitHostRate},
		"a run of a dead node":         {change: adopted(""), waited: waitTakeOver},
		"a fire that a pause of its job held": {waited: waitPause, change: func(r *plan.Held) {
			r.Due, r.Detail.Job.UpdatedAt = noon, noon.Add(time.Second)
		}},
		"a fire that a pause of its app held": {waited: waitPause, change: func(r *plan.Held) {
			r.Due, r.Detail.Job.ResumedAt = noon, new(noon.Add(time.Second))
		}},
		"a fire after a pause": {late: true, change: func(r *plan.Held) { r.Due, r.Detail.Job.ResumedAt = noon, &noon }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := New(unwilling{}, nil, Options{Metrics: prometheus.NewRegistry()})
			held := plan.Held{HeldRun: run.HeldRun{Key: run.Key{Kind: run.KindSchedule}, Attempt: 1}}
			held.Detail.Job = emptyOf(held.Detail.Job)
			tt.change(&held)
			e.metrics.began(held, &target.Call{App: "shop"}, time.Minute, time.Now())
			want := time.Duration(0)
			if tt.late {
				want = time.Minute
			}
			if _, lag, _ := e.metrics.load.read(); lag != want || e.metrics.load.latest() != want {
				t.Errorf("lag %s, latest %s, want %s for both", lag, e.metrics.load.latest(), want)
			}
			late := written(t, e.metrics.apps.Of("shop").lateness.observer.(prometheus.Metric)).GetHistogram().GetSampleCount()
			if (late > 0) != tt.late {
				t.Errorf("%d latenesses, want one: %v", late, tt.late)
			}
			for _, reason := range []run.WaitReason{run.WaitSlot, run.WaitCircuit, run.WaitHostRate, waitTakeOver, waitPause} {
				waits := written(t, e.metrics.waited.WithLabelValues(string(reason)).(prometheus.Metric)).GetHistogram().GetSampleCount()
				if (waits > 0) != (reason == tt.waited) {
					t.Errorf("%d waits of reason %s, want those of %q alone", waits, reason, tt.waited)
				}
			}
		})
	}
}

// emptyOf returns a value of a type that this package cannot name.
func emptyOf[T any](*T) *T { return new(T) }

// adopted makes a run one that another node had claimed, and that waited.
func adopted(waited run.WaitReason) func(*plan.Held) {
	return func(r *plan.Held) { r.Detail.Job, r.Waited = nil, waited }
}

func TestNodeIsSaturatedOnlyWithoutAFreeWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	late := func() dispatcher.NodeReport {
		r.metrics.load.began(time.Minute)
		return r.report()
	}
	r.metrics.load.sampled(false)
	if got := late(); got.Saturated || got.Lag.Std() != time.Minute {
		t.Errorf("with free workers: saturated %v, lag %s; want only the lag of a minute", got.Saturated, got.Lag)
	}
	r.metrics.load.sampled(true)
	if got := late(); !got.Saturated {
		t.Error("without a free worker, the node is not saturated")
	}
	if got := late(); got.Saturated {
		t.Error("at the next heartbeat, the node is still saturated")
	}
	r.metrics.load.sampled(true)
	if got := r.report(); got.Saturated {
		t.Error("busy but in time, the node is saturated")
	}
}

// A node whose workers all hang begins nothing, so the fires that wait for it show how late it is.
func TestLagGrowsWhileDueFiresAreNotClaimed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("waits", "rate(1s)", nil)
	r.poll(5 * time.Second)
	if got := r.report(); got.Lag.Std() < 15*time.Second {
		t.Errorf("lag %s, want that of a fire that was due 19 s ago", got.Lag)
	}
	taken := r.plan.Timeline.Take(r.now.Add(first), 10, anyQueue, func(...pool.QueueKey) {})
	r.plan.Timeline.Claimed(taken, nil)
	if got := r.report(); got.Lag != 0 {
		t.Errorf("when another node has claimed it, the lag is %s, want none", got.Lag)
	}
}
