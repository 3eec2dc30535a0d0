package engine

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// accepting is a target that accepts its first attempts, each for as long as it says, and then succeeds.
func accepting(within time.Duration, attempts int) func(context.Context, dispatcher.Call) dispatcher.Outcome {
	return func(_ context.Context, call dispatcher.Call) dispatcher.Outcome {
		if call.Attempt > attempts {
			return dispatcher.Outcome{State: dispatcher.RunSucceeded, HTTPStatus: 200}
		}
		return dispatcher.Outcome{State: dispatcher.RunWaitingCallback, HTTPStatus: 202, Callback: &dispatcher.Callback{Within: within}}
	}
}

// byTarget is a change that a target makes.
func byTarget() input.Change { return input.Change{Actor: dispatcher.ActorCallback} }

func (r *rig) wantState(id string, want dispatcher.RunState) dispatcher.Run {
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
	waiting := r.wantState(id, dispatcher.RunWaitingCallback)
	if wait := waiting.Callback.Deadline.Sub(*waiting.StartedAt); wait < time.Hour || wait > time.Hour+time.Minute {
		t.Errorf("it waits for %s, want the default of an hour", wait)
	}
	if run := r.retry(id); run.State != dispatcher.RunWaitingCallback {
		t.Errorf("before its deadline: got %+v, want it to wait on", run)
	}
	if _, err := r.store.CompleteRun(t.Context(), id, 1, dispatcher.CallbackResult{}, byTarget()); err != nil {
		t.Fatal(err)
	}
	r.wantState(id, dispatcher.RunSucceeded)
}

// The target stopped the work at a time-out of its own. That is a failure like others, but for its state.
func TestCallbackOfATimeOutEndsAsTimedOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = accepting(time.Hour, 5)
	id := r.request("long", func(j *dispatcher.Job) { j.Retry.MaxAttempts = 2 })
	for attempt := 1; attempt <= 2; attempt++ {
		for range 2 { // executors repeat callbacks
			result := dispatcher.CallbackResult{Message: "too slow", TimedOut: true}
			if _, err := r.store.FailRun(t.Context(), id, attempt, result, byTarget()); err != nil {
				t.Fatal(err)
			}
		}
		r.hear(dispatcher.Notification{Callback: true})
		r.retry(id)
		if _, err := r.store.FailRun(t.Context(), id, attempt, dispatcher.CallbackResult{TimedOut: true}, byTarget()); err != nil {
			t.Errorf("the callback of attempt %d once more, after it is over: %v", attempt, err)
		}
		if attempt == 1 {
			r.wantState(id, dispatcher.RunRetrying)
			r.retry(id)
		}
	}
	run := r.wantState(id, dispatcher.RunTimedOut)
	if run.Class != dispatcher.ClassFunctionTime || run.Error != "too slow" || len(run.Attempts) != 2 ||
		run.Attempts[0].State != dispatcher.RunTimedOut {
		t.Errorf("run %+v, want two attempts that timed out, and the message", run)
	}
}

func TestFailedCallbackIsAttemptedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = accepting(time.Hour, 1)
	id := r.request("long", nil)
	if _, err := r.store.FailRun(t.Context(), id, 1, dispatcher.CallbackResult{Message: "disk full"}, byTarget()); err != nil {
		t.Fatal(err)
	}
	r.hear(dispatcher.Notification{Callback: true})
	run := r.retry(id)
	if run.State != dispatcher.RunRetrying || run.Class != dispatcher.ClassCallback || run.Error != "disk full" || run.HTTPStatus != 202 {
		t.Fatalf("after the callback: got %+v, want it retrying because of what the target said", run)
	}
	run = r.retry(id)
	var states []dispatcher.RunState
	for _, a := range run.Attempts {
		states = append(states, a.State)
	}
	if diff := cmp.Diff([]dispatcher.RunState{dispatcher.RunFailed, dispatcher.RunSucceeded}, states); diff != "" {
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
		run := r.wantState(id, dispatcher.RunWaitingCallback)
		for run.State == dispatcher.RunWaitingCallback { // until the database's clock has passed the deadline
			run = r.retry(id)
		}
		if run.Class != dispatcher.ClassCallbackTime || run.Attempt != attempt {
			t.Fatalf("after deadline %d: got %+v, want the attempt timed out", attempt, run)
		}
		if attempt == 1 {
			r.retry(id)
		}
	}
	run := r.wantState(id, dispatcher.RunTimedOut)
	if len(run.Attempts) != 2 || len(r.calls) != 2 {
		t.Errorf("attempts: got %+v after %d calls, want two that timed out", run.Attempts, len(r.calls))
	}
}

func TestSlotOfAnAcceptedRunIsGrantedWhenItFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = accepting(time.Hour, 1)
	queue := func(j *dispatcher.Job) {
		j.ConcurrencyPolicy, j.QueueLimit, j.Retry = dispatcher.ConcurrencyQueue, 10, dispatcher.Retry{}
		j.Retry.SetDefaults()
		j.Retry.MaxAttempts = 1
	}
	first := r.request("long", queue)
	second := r.request("long", queue)
	r.wantState(first, dispatcher.RunWaitingCallback)
	r.wantState(second, dispatcher.RunQueued)
	if _, err := r.store.FailRun(t.Context(), first, 1, dispatcher.CallbackResult{}, byTarget()); err != nil {
		t.Fatal(err)
	}
	r.hear(dispatcher.Notification{Callback: true})
	r.retry(first)
	r.wantState(first, dispatcher.RunFailed)
	for r.read(second).State == dispatcher.RunQueued { // until the slot is given back, which the node does on its own
		if err := r.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.quiet()
	}
	r.wantState(second, dispatcher.RunWaitingCallback)
}
