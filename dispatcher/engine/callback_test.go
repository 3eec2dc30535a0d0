package engine

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// accepting is a target that accepts its first attempts, each for the given time, and then succeeds.
func accepting(within time.Duration, attempts int) func(context.Context, target.Call) run.Outcome {
	return func(_ context.Context, call target.Call) run.Outcome {
		if call.Attempt > attempts {
			return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
		}
		return run.Outcome{State: run.WaitingCallback, HTTPStatus: 202, Callback: &run.Callback{Within: within}}
	}
}

// byTarget is a change that a target makes.
func byTarget() input.Change { return input.Change{Actor: run.ActorCallback} }

func (r *rig) wantState(id string, want run.State) run.Run {
	r.t.Helper()
	run := r.read(id)
	if run.State != want {
		r.t.Fatalf("run: got %+v, want it %s", run, want)
	}
	return run
}

func TestAcceptedRunEndsByItsCallback(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = accepting(0, 1)
	id := r.request("long", nil)
	waiting := r.wantState(id, run.WaitingCallback)
	if wait := waiting.Callback.Deadline.Sub(*waiting.StartedAt); wait < time.Hour || wait > time.Hour+time.Minute {
		t.Errorf("it waits for %s, want the default of an hour", wait)
	}
	if one := r.retry(id); one.State != run.WaitingCallback {
		t.Errorf("before its deadline: got %+v, want it to wait on", one)
	}
	if _, err := r.store.CompleteRun(t.Context(), id, 1, run.CallbackResult{}, byTarget()); err != nil {
		t.Fatal(err)
	}
	r.wantState(id, run.Succeeded)
}

// The target stopped the work at a time-out of its own. That is a failure like others, but with another state.
func TestCallbackOfATimeOutEndsAsTimedOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = accepting(time.Hour, 5)
	id := r.request("long", func(j *dispatcher.Job) { j.Retry.MaxAttempts = 2 })
	for attempt := 1; attempt <= 2; attempt++ {
		for range 2 { // executors repeat callbacks
			result := run.CallbackResult{Message: "too slow", TimedOut: true}
			if _, err := r.store.FailRun(t.Context(), id, attempt, result, byTarget()); err != nil {
				t.Fatal(err)
			}
		}
		r.hear(dispatcher.Notification{Callback: true})
		r.retry(id)
		if _, err := r.store.FailRun(t.Context(), id, attempt, run.CallbackResult{TimedOut: true}, byTarget()); err != nil {
			t.Errorf("the callback of attempt %d once more, after it is over: %v", attempt, err)
		}
		if attempt == 1 {
			r.wantState(id, run.Retrying)
			r.retry(id)
		}
	}
	one := r.wantState(id, run.TimedOut)
	if one.Class != run.ClassFunctionTime || one.Error != "too slow" || len(one.Attempts) != 2 ||
		one.Attempts[0].State != run.TimedOut {
		t.Errorf("run %+v, want two attempts that timed out, and the message", one)
	}
}

func TestFailedCallbackIsAttemptedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = accepting(time.Hour, 1)
	id := r.request("long", nil)
	if _, err := r.store.FailRun(t.Context(), id, 1, run.CallbackResult{Message: "disk full"}, byTarget()); err != nil {
		t.Fatal(err)
	}
	r.hear(dispatcher.Notification{Callback: true})
	one := r.retry(id)
	if one.State != run.Retrying || one.Class != run.ClassCallback || one.Error != "disk full" || one.HTTPStatus != 202 {
		t.Fatalf("after the callback: got %+v, want it retrying because of what the target said", one)
	}
	one = r.retry(id)
	var states []run.State
	for _, a := range one.Attempts {
		states = append(states, a.State)
	}
	if diff := cmp.Diff([]run.State{run.Failed, run.Succeeded}, states); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if len(r.calls) != 2 || r.calls[1].Attempt != 2 {
		t.Errorf("calls: got %+v, want two attempts", r.calls)
	}
}

func TestLostCallbackTimesOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = accepting(time.Millisecond, 2)
	id := r.request("long", func(j *dispatcher.Job) { j.Retry.MaxAttempts = 2 })
	for attempt := 1; attempt <= 2; attempt++ {
		one := r.wantState(id, run.WaitingCallback)
		for one.State == run.WaitingCallback { // until the database's clock has passed the deadline
			one = r.retry(id)
		}
		if one.Class != run.ClassCallbackTime || one.Attempt != attempt {
			t.Fatalf("after deadline %d: got %+v, want the attempt timed out", attempt, one)
		}
		if attempt == 1 {
			r.retry(id)
		}
	}
	run := r.wantState(id, run.TimedOut)
	if len(run.Attempts) != 2 || len(r.calls) != 2 {
		t.Errorf("attempts: got %+v after %d calls, want two that timed out", run.Attempts, len(r.calls))
	}
}

func TestSlotOfAnAcceptedRunIsGrantedWhenItFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = accepting(time.Hour, 1)
	queue := func(j *dispatcher.Job) {
		j.ConcurrencyPolicy, j.QueueLimit, j.Retry = run.ConcurrencyQueue, 10, run.Retry{}
		j.Retry.SetDefaults()
		j.Retry.MaxAttempts = 1
	}
	first := r.request("long", queue)
	second := r.request("long", queue)
	r.wantState(first, run.WaitingCallback)
	r.wantState(second, run.Queued)
	if _, err := r.store.FailRun(t.Context(), first, 1, run.CallbackResult{}, byTarget()); err != nil {
		t.Fatal(err)
	}
	r.hear(dispatcher.Notification{Callback: true})
	r.retry(first)
	r.wantState(first, run.Failed)
	for r.read(second).State == run.Queued { // until the slot is given back, which the node does on its own
		if err := r.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.quiet()
	}
	r.wantState(second, run.WaitingCallback)
}
