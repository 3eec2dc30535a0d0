package dispatch

import (
	"errors"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// callbackTests test runs with a target that accepts an attempt and reports its end later.
func callbackTests() tests {
	return tests{
		"an accepted run waits for its callback":                 testCallbackWaits,
		"runs that wait for a callback are counted":              testCallbacksCounted,
		"a callback completes a run":                             testCallbackCompletes,
		"a failed callback makes the run due at once":            testCallbackFails,
		"a missing callback makes the run due":                   testCallbackDeadline,
		"a heartbeat moves the deadline of a callback":           testCallbackHeartbeat,
		"a callback may come before its record":                  testCallbackBeforeRecord,
		"a failure before its record is kept":                    testCallbackFailsBeforeRecord,
		"callbacks of another attempt are refused":               testCallbackOfAnotherAttempt,
		"a run that waits for a callback can be cancelled":       testCallbackCancel,
		"a run that waits for a callback cannot be retried":      testCallbackRetryRequest,
		"a pause does not hold the end of an accepted attempt":   testCallbackPause,
		"a deleted job's accepted run can be completed":          testCallbackDeletedJob,
		"a run that waits for a callback keeps its slot":         testCallbackSlots,
		"replace cancels a run that waits for a callback":        testCallbackReplace,
		"a fixed delay continues after its callback":             testCallbackFixedDelay,
		"the end of an accepted attempt survives its node":       testCallbackNodeDies,
		"the end of an accepted attempt can be handed back":      testCallbackHandedBack,
		"an attempt after an accepted one counts its failures":   testCallbackSecondAttempt,
		"a run that waits for a callback is found by its number": testAwaitedAttempt,
		"the key of callbacks is drawn once":                     testCallbackKey,
		"a run that waits for a callback is not idle":            testCallbackNotIdle,
		"retries do not give up a run that waits for a callback": testCallbackNotGivenUp,
	}
}

// within is the callback time of the targets in these tests.
const within = time.Hour

// accept records that the target accepted the attempt of a run that began at start and took a second.
func (f *wing) accept(held run.HeldRun, start time.Time) (deadline time.Time) {
	f.Helper()
	return f.acceptAs(held, start, run.Callback{Within: within})
}

// acceptAs is accept with a given callback.
func (f *wing) acceptAs(held run.HeldRun, start time.Time, callback run.Callback) (deadline time.Time) {
	f.Helper()
	o := fixture.Outcome(start)
	o.State, o.HTTPStatus = run.WaitingCallback, 202
	deadline = o.EndedAt.Add(callback.Within)
	r := fixture.Record(held, o)
	r.Next = &dispatcher.NextAttempt{At: deadline, Callback: &callback}
	f.Must(f.Record(f.Context(), []dispatcher.Record{r}))
	return deadline
}

// accepted claims a run, and its target accepts it.
func (f *wing) accepted() (held run.HeldRun, start, deadline time.Time) {
	f.Helper()
	held, start = f.ClaimOne("tick"), fixture.T0.Add(time.Minute)
	return held, start, f.accept(held, start)
}

// complete completes an attempt of a run on behalf of its target.
func (f *wing) complete(key run.Key, attempt int, now time.Time) error {
	_, err := f.CompleteRun(f.Context(), key.String(), attempt, run.CallbackResult{Message: "42 rows"}, byTarget(now))
	return err
}

// fail fails an attempt in the same way.
func (f *wing) fail(key run.Key, attempt int, now time.Time) error {
	_, err := f.FailRun(f.Context(), key.String(), attempt, run.CallbackResult{Message: "disk full"}, byTarget(now))
	return err
}

// byTarget is a change by a target.
func byTarget(now time.Time) input.Change {
	return input.Change{Actor: run.ActorCallback, Now: now}
}

// adoptEnded adopts the run with an ended accepted attempt.
func (f *wing) adoptEnded(now time.Time) run.HeldRun {
	f.Helper()
	adopted := f.AdoptRetries(now)
	if len(adopted) != 1 || adopted[0].Accepted == nil {
		f.Fatalf("adopted %+v, want one run whose attempt is over", adopted)
	}
	return adopted[0]
}

func wantConflict(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("%s: got error %v, want ErrConflict", what, err)
	}
}

func testCallbackWaits(t *testing.T, f *wing) {
	held, _, deadline := f.accepted()
	f.accept(held, fixture.T0.Add(time.Minute)) // again, as after a lost response
	r := f.RunOf(held.Key)
	fixture.WantDiff(t, "the run", retryFacts{State: run.WaitingCallback, Attempt: 1, HTTPStatus: 202}, f.retryFacts(held.Key))
	fixture.WantDiff(t, "its callback", &run.CallbackState{AcceptedAt: deadline.Add(-time.Hour), Deadline: deadline}, r.Callback)
	listed, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", State: run.WaitingCallback,
		Page: input.Page{Limit: 10}})
	f.Must(err)
	fixture.WantDiff(t, "listed runs that wait", 1, len(listed))
	ours, err := f.Held(t.Context(), fixture.NodeA, 0)
	f.Must(err)
	fixture.WantDiff(t, "runs that the node holds meanwhile", 0, len(ours))
	next, err := f.NextRetry(t.Context(), time.Time{}, fixture.T0)
	f.Must(err)
	fixture.WantDiff(t, "when a node looks at it", deadline, next.Next)
}

func testCallbackCompletes(t *testing.T, f *wing) {
	held, start, _ := f.accepted()
	end := start.Add(20 * time.Minute)
	for range 2 { // a repeated callback changes nothing
		f.Must(f.complete(held.Key, 1, end))
	}
	r := f.RunOf(held.Key)
	want := []run.Attempt{{Attempt: 1, Node: fixture.NodeA, State: run.Succeeded, StartedAt: start, EndedAt: end, HTTPStatus: 202,
		Response: &run.Response{CallbackResult: "42 rows"}}}
	fixture.WantDiff(t, "its attempts", want, r.Attempts)
	fixture.WantDiff(t, "its state", run.Succeeded, r.State)
	fixture.WantDiff(t, "its callback", (*run.CallbackState)(nil), r.Callback)
	f.accept(held, start) // the record again
	fixture.WantDiff(t, "its attempts after a repeated record", want, f.RunOf(held.Key).Attempts)
	wantConflict(t, "fail what is complete", f.fail(held.Key, 1, end))
	_, err := f.ExtendRun(t.Context(), held.String(), run.Heartbeat{Attempt: 1}, byTarget(end))
	wantConflict(t, "a heartbeat of what is complete", err)
}

func testCallbackFails(t *testing.T, f *wing) {
	held, start, _ := f.accepted()
	now := start.Add(20 * time.Minute)
	for range 2 {
		f.Must(f.fail(held.Key, 1, now))
	}
	wantConflict(t, "complete what has failed", f.complete(held.Key, 1, now))
	adopted := f.adoptEnded(now)
	fixture.WantDiff(t, "the attempt that is adopted", 1, adopted.Attempt)
	fixture.WantDiff(t, "what is known of it", run.AcceptedAttempt{StartedAt: start, HTTPStatus: 202, Failed: true, Message: "disk full",
		Within: within}, *adopted.Accepted)
	f.Again(adopted, run.Outcome{State: run.Failed, StartedAt: start, EndedAt: now, HTTPStatus: 202,
		Class: run.ClassCallback, Error: "disk full"}, fixture.FailedUntil(now.Add(time.Minute)))
	fixture.WantDiff(t, "the run", retryFacts{State: run.Retrying, Attempt: 1, NextAttemptAt: now.Add(time.Minute), HTTPStatus: 202,
		Class: run.ClassCallback, Error: "disk full", Attempts: []run.State{run.Failed}}, f.retryFacts(held.Key))
	f.Must(f.fail(held.Key, 1, now)) // again
	wantConflict(t, "complete an attempt that is over", f.complete(held.Key, 1, now))
	second := f.AdoptRetries(now.Add(time.Minute))
	if len(second) != 1 || second[0].Attempt != 2 || second[0].Accepted != nil {
		t.Errorf("adopted %+v, want a second attempt to make", second)
	}
}

func testCallbackDeadline(t *testing.T, f *wing) {
	held, start, deadline := f.accepted()
	fixture.WantDiff(t, "adopted before its deadline", 0, len(f.AdoptRetries(deadline.Add(-time.Millisecond))))
	adopted := f.adoptEnded(deadline)
	fixture.WantDiff(t, "what is known of it", run.AcceptedAttempt{StartedAt: start, HTTPStatus: 202, Within: within}, *adopted.Accepted)
	_, err := f.ExtendRun(t.Context(), held.String(), run.Heartbeat{Attempt: 1}, byTarget(deadline))
	wantConflict(t, "a heartbeat after the deadline", err)
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(adopted, run.Outcome{State: run.TimedOut, StartedAt: start,
		EndedAt: deadline, HTTPStatus: 202, Class: run.ClassCallbackTime, Error: "late"})}))
	fixture.WantDiff(t, "the run", retryFacts{State: run.TimedOut, Attempt: 1, Ended: true, HTTPStatus: 202,
		Class: run.ClassCallbackTime, Error: "late", Attempts: []run.State{run.TimedOut}}, f.retryFacts(held.Key))
	wantConflict(t, "complete after the end", f.complete(held.Key, 1, deadline))
}

func testCallbackHeartbeat(t *testing.T, f *wing) {
	held, start, deadline := f.accepted()
	half := 50
	beat := func(now time.Time, progress run.Progress) run.Run {
		t.Helper()
		run, err := f.ExtendRun(t.Context(), held.String(), run.Heartbeat{Attempt: 1, Progress: progress}, byTarget(now))
		f.Must(err)
		return run
	}
	at1, accepted := start.Add(30*time.Minute), deadline.Add(-within)
	r := beat(at1, run.Progress{Text: "half", Percent: &half})
	fixture.WantDiff(t, "its callback", &run.CallbackState{AcceptedAt: accepted, Deadline: at1.Add(within), HeartbeatAt: &at1,
		Progress: "half", Percent: &half}, r.Callback)
	fixture.WantDiff(t, "adopted at its old deadline", 0, len(f.AdoptRetries(deadline)))
	at2 := start.Add(31 * time.Minute)
	fixture.WantDiff(t, "its callback after another heartbeat",
		&run.CallbackState{AcceptedAt: accepted, Deadline: at2.Add(within), HeartbeatAt: &at2, Progress: "half", Percent: &half},
		beat(at2, run.Progress{}).Callback)
	last := start.Add(run.MostCallbackWait)
	_, err := f.ExtendRun(t.Context(), held.String(), run.Heartbeat{Attempt: 1, Within: 30 * 24 * time.Hour}, byTarget(at2))
	f.Must(err)
	fixture.WantDiff(t, "the longest deadline", last, f.RunOf(held.Key).Callback.Deadline)
	f.adoptEnded(last)
}

func testCallbackBeforeRecord(t *testing.T, f *wing) {
	held, start := f.ClaimOne("tick"), fixture.T0.Add(time.Minute)
	end := start.Add(500 * time.Millisecond)
	f.Must(f.complete(held.Key, 1, end))
	f.accept(held, start)
	r := f.RunOf(held.Key)
	fixture.WantDiff(t, "its state", run.Succeeded, r.State)
	if len(r.Attempts) != 1 || r.Attempts[0].State != run.Succeeded || r.Attempts[0].Late == nil ||
		r.Attempts[0].Late.State != run.WaitingCallback {
		t.Errorf("attempts: got %+v, want one that succeeded, with the acceptance as a late result", r.Attempts)
	}
}

func testCallbackFailsBeforeRecord(t *testing.T, f *wing) {
	held, start := f.ClaimOne("tick"), fixture.T0.Add(time.Minute)
	f.Must(f.fail(held.Key, 1, start))
	fixture.WantDiff(t, "its state", run.Claimed, f.RunOf(held.Key).State)
	f.accept(held, start)
	adopted := f.adoptEnded(start.Add(time.Second)) // when the response was there
	if !adopted.Accepted.Failed || adopted.Accepted.Message != "disk full" {
		t.Errorf("adopted %+v, want the failure", adopted.Accepted)
	}
}

func testCallbackOfAnotherAttempt(t *testing.T, f *wing) {
	held, _, due := f.failOnce()
	wantConflict(t, "complete an attempt that failed", f.complete(held.Key, 1, due))
	second := f.AdoptRetries(due)
	wantConflict(t, "complete the first attempt during the second", f.complete(held.Key, 1, due))
	wantConflict(t, "complete a third attempt", f.complete(held.Key, 3, due))
	f.accept(second[0], due)
	wantConflict(t, "fail the first attempt while the second waits", f.fail(held.Key, 1, due))
	f.Must(f.complete(held.Key, 2, due))
	fixture.WantDiff(t, "the run", []run.State{run.TimedOut, run.Succeeded}, f.retryFacts(held.Key).Attempts)
	err := f.complete(run.Key{TriggerID: 1, ScheduledAt: fixture.T0, Kind: run.KindSchedule}, 1, due)
	if !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("complete a run that never was: got error %v, want ErrNotFound", err)
	}
}

func testCallbackCancel(t *testing.T, f *wing) {
	held, start, _ := f.accepted()
	now := start.Add(time.Minute)
	f.Must(f.CancelRun(t.Context(), held.String(), fixture.At(now)))
	r := f.RunOf(held.Key)
	fixture.WantDiff(t, "its state", run.Cancelled, r.State)
	fixture.WantDiff(t, "its end", &now, r.EndedAt)
	wantConflict(t, "complete what is cancelled", f.complete(held.Key, 1, now))
	wantConflict(t, "fail what is cancelled", f.fail(held.Key, 1, now))
}

func testCallbackRetryRequest(t *testing.T, f *wing) {
	held, start, _ := f.accepted()
	_, err := f.RetryRun(t.Context(), held.String(), fixture.At(start))
	wantConflict(t, "retry a run that waits", err)
	f.Must(f.complete(held.Key, 1, start))
	f.Must(f.RetryRun(t.Context(), held.String(), fixture.At(start)))
	adopted := f.AdoptIdle(fixture.NodeA, start.Add(time.Minute))
	if len(adopted) != 1 || adopted[0].Attempt != 2 || adopted[0].Accepted != nil {
		t.Errorf("adopted %+v, want a second attempt to make", adopted)
	}
}

func testCallbackPause(t *testing.T, f *wing) {
	_, start, deadline := f.accepted()
	f.Must(f.PauseJob(t.Context(), "shop", "tick", "", true, fixture.At(start)))
	f.adoptEnded(deadline)
}

func testCallbackDeletedJob(t *testing.T, f *wing) {
	held, start, _ := f.accepted()
	f.Must(f.DeleteJob(t.Context(), "shop", "tick", fixture.At(start)))
	f.Must(f.complete(held.Key, 1, start.Add(time.Minute)))
	fixture.WantDiff(t, "its state", run.Succeeded, f.RunOf(held.Key).State)
}

func testCallbackSlots(t *testing.T, f *wing) {
	held := f.Bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	fixture.WantDiff(t, "granted", []int{1}, f.AcquireSlots(held[0]))
	f.accept(held[0], held[0].ScheduledAt)
	f.Must(f.ReleaseSlots(t.Context(), held[:1])) // the attempt is over for its node
	fixture.WantDiff(t, "granted while the first waits", []int{}, f.AcquireSlots(held[1]))
	slots, err := f.Slots(t.Context(), "shop", "tick")
	f.Must(err)
	fixture.WantDiff(t, "slots that are taken", 1, len(slots))
	fixture.WantDiff(t, "runs to adopt while the first waits", 0, len(f.AdoptIdle(fixture.NodeA, held[1].ScheduledAt)))
	f.Must(f.complete(held[0].Key, 1, held[1].ScheduledAt))
	fixture.WantDiff(t, "runs to adopt when it is complete", 1, len(f.AdoptIdle(fixture.NodeA, held[1].ScheduledAt)))
}

func testCallbackReplace(t *testing.T, f *wing) {
	held := f.Bounded(1, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyReplace })
	fixture.WantDiff(t, "granted", []int{1}, f.AcquireSlots(held[0]))
	f.accept(held[0], held[0].ScheduledAt)
	f.Must(f.ReleaseSlots(t.Context(), held))
	fixture.WantDiff(t, "granted in place of the first", []int{2}, f.AcquireSlots(f.ClaimNext(fixture.Token2)))
	fixture.WantDiff(t, "the first run", run.Cancelled, f.RunOf(held[0].Key).State)
}

func testCallbackFixedDelay(t *testing.T, f *wing) {
	f.putDelay("tick")
	held := f.ClaimAll(f.NextAdvance())[0]
	f.accept(held, held.ScheduledAt)
	waits, err := f.EndedDelays(t.Context(), nil, 10)
	f.Must(err)
	fixture.WantDiff(t, "ended delays while it waits", 0, len(waits))
	end := held.ScheduledAt.Add(time.Minute)
	f.Must(f.complete(held.Key, 1, end))
	ended, err := f.EndedDelays(t.Context(), nil, 10)
	f.Must(err)
	if len(ended) != 1 || !ended[0].EndedAt.Equal(end) {
		t.Errorf("ended delays: got %+v, want one that ended at %s", ended, end)
	}
}

// The node that records the end of an attempt dies before it has: the next node records the same attempt.
func testCallbackNodeDies(t *testing.T, f *wing) {
	held, start, _ := f.accepted()
	now := start.Add(time.Minute)
	f.Must(f.fail(held.Key, 1, now))
	adopted := f.adoptEnded(now)
	again, err := f.Held(t.Context(), fixture.NodeA, fixture.Token2)
	f.Must(err)
	fixture.WantDiff(t, "what the node holds, read again", []run.HeldRun{adopted}, again)
	f.Must(f.SetNodeState(t.Context(), fixture.NodeA, dispatcher.NodeDead, fixture.At(now)))
	f.AddNode(fixture.NodeB)
	next, err := f.Adopt(t.Context(), dispatcher.AdoptQuery{Node: fixture.NodeB, Token: 103, Limit: 10, Now: now})
	f.Must(err)
	if len(next) != 1 || next[0].Attempt != 1 || next[0].Accepted == nil || next[0].Accepted.Message != "disk full" {
		t.Fatalf("adopted %+v, want the end of the same attempt", next)
	}
	fixture.WantDiff(t, "lost attempts", 0, len(f.RunOf(held.Key).Attempts))
}

func testCallbackHandedBack(t *testing.T, f *wing) {
	held, start, _ := f.accepted()
	now := start.Add(time.Minute)
	f.Must(f.fail(held.Key, 1, now))
	f.Must(f.Release(t.Context(), []run.HeldRun{f.adoptEnded(now)}))
	next := f.AdoptIdle(fixture.NodeA, now)
	if len(next) != 1 || next[0].Attempt != 1 || next[0].Accepted == nil {
		t.Errorf("adopted %+v, want the end of the same attempt", next)
	}
}

func testCallbackSecondAttempt(t *testing.T, f *wing) {
	held, _, due := f.failOnce() // its retries end an hour after due
	second := f.AdoptRetries(due)[0]
	deadline := f.accept(second, due)
	given, err := f.GiveUp(t.Context(), deadline.Add(time.Hour))
	f.Must(err)
	fixture.WantDiff(t, "runs given up", 0, given)
	adopted := f.adoptEnded(deadline)
	fixture.WantDiff(t, "its attempt", 2, adopted.Attempt)
	fixture.WantDiff(t, "its failures", 1, adopted.Failures)
	fixture.WantDiff(t, "the end of its retries", due.Add(time.Hour), adopted.RetryUntil)
	fixture.WantDiff(t, "its run", held.Key, adopted.Key)
}

func testAwaitedAttempt(t *testing.T, f *wing) {
	held, start := f.ClaimOne("tick"), fixture.T0.Add(time.Minute)
	const number = 1<<62 + 7
	missing := func(what, app string) {
		t.Helper()
		if got, err := f.AwaitedAttempt(t.Context(), app, number); !errors.Is(err, dispatcher.ErrNotFound) {
			t.Errorf("%s: got %+v, error %v, want ErrNotFound", what, got, err)
		}
	}
	missing("before it waits", "shop")
	f.acceptAs(held, start, run.Callback{ID: number, Group: "billing", Within: within})
	f.DeclareApp("other")
	missing("from another app", "other")
	beat, err := f.ExtendRun(t.Context(), held.String(), run.Heartbeat{Attempt: 1, Progress: run.Progress{Text: "half"}}, byTarget(start))
	f.Must(err)
	fixture.WantDiff(t, "its state", run.WaitingCallback, beat.State)
	f.Must(f.DeleteJob(t.Context(), "shop", "tick", fixture.At(start)))
	got, err := f.AwaitedAttempt(t.Context(), "shop", number)
	f.Must(err)
	fixture.WantDiff(t, "the attempt, of a job that was deleted", run.AwaitedAttempt{Run: held.String(), Attempt: 1, Group: "billing"}, got)
	f.Must(f.complete(held.Key, 1, start))
	missing("after its end", "shop")
}

func testCallbackKey(t *testing.T, f *wing) {
	first, err := f.CallbackKey(t.Context())
	f.Must(err)
	again, err := f.CallbackKey(t.Context())
	f.Must(err)
	fixture.WantDiff(t, "the key, read again", first, again)
	fixture.WantDiff(t, "its bytes", 32, len(first))
}

func testCallbackNotIdle(t *testing.T, f *wing) {
	_, _, deadline := f.accepted()
	f.Must(f.SetNodeState(t.Context(), fixture.NodeA, dispatcher.NodeDead, fixture.At(fixture.T0)))
	f.AddNode(fixture.NodeB)
	fixture.WantDiff(t, "adopted from its dead node", 0, len(f.AdoptIdle(fixture.NodeB, deadline.Add(time.Hour))))
}

func testCallbackNotGivenUp(t *testing.T, f *wing) {
	held, _, deadline := f.accepted()
	given, err := f.GiveUp(t.Context(), deadline.Add(365*24*time.Hour))
	f.Must(err)
	fixture.WantDiff(t, "runs given up", 0, given)
	fixture.WantDiff(t, "its state", run.WaitingCallback, f.RunOf(held.Key).State)
}
