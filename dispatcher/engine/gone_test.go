package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// stubborn is a store that refuses to disable triggers at first.
type stubborn struct {
	Store
	refusals int
}

func (s *stubborn) Disable(ctx context.Context, ended dispatcher.Record, reason string, now time.Time) (bool, error) {
	if s.refusals--; s.refusals >= 0 {
		return false, errors.New("no connection")
	}
	return s.Store.Disable(ctx, ended, reason, now)
}

func wantsNoMore(context.Context, target.Call) run.Outcome {
	return run.Outcome{State: run.Failed, HTTPStatus: 410, Class: run.ClassHTTP4xx, Error: "gone"}
}

func TestGoneTargetDisablesItsTrigger(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s Store) Store { return &stubborn{s, 1} })
	r.invoke = wantsNoMore
	r.declare("gone", "rate(1s)", nil)
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	found := r.settled()
	r.disableGone(t.Context())
	job, err := r.store.Job(t.Context(), "app", "gone")
	if err != nil || len(found) != 1 || found[0].State != run.Failed {
		t.Fatalf("runs = %+v, %v, want one that failed", found, err)
	}
	if only := job.Triggers["only"]; only.State != dispatcher.TriggerError || only.Error == "" || job.State != dispatcher.JobError {
		t.Errorf("trigger = %+v, want it in error with the reason", only)
	}
	if r.claimOnce(t.Context(), r.now.Add(5*time.Second)); len(r.calls) != 1 {
		t.Errorf("%d calls were made, want no more after the first", len(r.calls))
	}
}

// While a request to the old target is in flight, a user repairs the job.
func TestLateGoneLeavesARepairedTriggerAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(ctx context.Context, call target.Call) run.Outcome {
		job, err := r.store.Job(ctx, "app", "repaired")
		if err != nil {
			t.Error(err)
		}
		job.Target.Webhook.URL = "http://127.0.0.1/moved"
		if _, _, err := r.store.PutJob(ctx, job, input.Change{Actor: "test", Now: r.now}); err != nil {
			t.Error(err)
		}
		return wantsNoMore(ctx, call)
	}
	r.declare("repaired", "rate(1s)", nil)
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	found := r.settled()
	r.disableGone(t.Context())
	job, err := r.store.Job(t.Context(), "app", "repaired")
	if err != nil || len(found) != 1 || found[0].HTTPStatus != 410 {
		t.Fatalf("runs = %+v, %v, want one that failed by 410", found, err)
	}
	if only := job.Triggers["only"]; only.State != dispatcher.TriggerWaiting {
		t.Errorf("trigger = %+v, want it waiting", only)
	}
}
