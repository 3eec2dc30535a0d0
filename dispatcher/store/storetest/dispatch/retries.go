package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// retryFacts are the changes of a run by a failed attempt.
type retryFacts struct {
	State         run.State
	Attempt       int
	Ended         bool
	NextAttemptAt time.Time // zero: none
	Class         run.Class
	Error         string
	HTTPStatus    int
	Attempts      []run.State
}

// retryFacts reads the facts of a run.
func (f *wing) retryFacts(key run.Key) retryFacts {
	f.Helper()
	run := f.RunOf(key)
	facts := retryFacts{
		State: run.State, Attempt: run.Attempt, Ended: run.EndedAt != nil, Class: run.Class, Error: run.Error, HTTPStatus: run.HTTPStatus,
	}
	if run.NextAttemptAt != nil {
		facts.NextAttemptAt = *run.NextAttemptAt
	}
	for _, a := range run.Attempts {
		facts.Attempts = append(facts.Attempts, a.State)
	}
	return facts
}

// failOnce claims a run and records twice, as after a lost response, that it failed and is due again five seconds
// later.
func (f *wing) failOnce() (held run.HeldRun, start, due time.Time) {
	f.Helper()
	held, start = f.ClaimOne("tick"), fixture.T0.Add(time.Minute)
	due = start.Add(5 * time.Second)
	for range 2 {
		f.Again(held, fixture.Failure(start), fixture.FailedUntil(due))
	}
	return held, start, due
}

func retryTests() tests {
	return tests{
		"a failed run retries":                       testFailedRunRetries,
		"the next retry is found by time":            testNextRetry,
		"runs of a job show when they first began":   testFirstStarts,
		"retries are found from a bound on":          testRetriesFromABound,
		"a retry is adopted when due, once":          testRetryIsAdoptedWhenDue,
		"a repeated record does not disturb a retry": testRetryIsFenced,
	}
}

func testFailedRunRetries(t *testing.T, f *wing) {
	held, start, due := f.failOnce()
	fixture.WantDiff(t, "the run", retryFacts{
		State: run.Retrying, Attempt: 1, NextAttemptAt: due, Class: run.ClassTimeout, Error: "slow", HTTPStatus: 503,
		Attempts: []run.State{run.TimedOut},
	}, f.retryFacts(held.Key))
	fixture.WantDiff(t, "its attempts", []run.Attempt{{
		Attempt: 1, Node: fixture.NodeA, State: run.TimedOut, StartedAt: start, EndedAt: start.Add(time.Second),
		HTTPStatus: 503, Class: run.ClassTimeout, Error: "slow",
	}}, f.RunOf(held.Key).Attempts)
	listed, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "tick", State: run.Retrying,
		Page: input.Page{Limit: 10}})
	f.Must(err)
	fixture.WantDiff(t, "retrying runs of the job", 1, len(listed))
}

func testFirstStarts(t *testing.T, f *wing) {
	_, start, due := f.failOnce()
	first := func(state run.State) *time.Time {
		t.Helper()
		ofApp, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 10}})
		f.Must(err)
		listed, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "tick", Page: input.Page{Limit: 10}})
		f.Must(err)
		if len(listed) != 1 || listed[0].State != state {
			t.Fatalf("got %+v, want one run that is %s", listed, state)
		}
		fixture.WantDiff(t, "in the list of the app", ofApp, listed)
		strip, err := verify.Strip(t.Context(), f.Store, view.StripQuery{App: "shop", Job: "tick", Trigger: "tick", Past: 1, Now: due})
		f.Must(err)
		fixture.WantDiff(t, "late in the strip", start.Sub(listed[0].ScheduledAt), strip.Cells[0].Late.Std())
		return listed[0].FirstStartedAt
	}
	fixture.WantDiff(t, "while it waits", &start, first(run.Retrying))
	second := f.AdoptRetries(due)[0]
	fixture.WantDiff(t, "while it is attempted again", &start, first(run.Claimed))
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(second, fixture.Failure(due))}))
	fixture.WantDiff(t, "when it is over", &start, first(run.TimedOut))
}

func testNextRetry(t *testing.T, f *wing) {
	_, _, due := f.failOnce()
	for _, after := range []time.Time{fixture.T0, due.Add(-time.Millisecond)} {
		at, err := f.NextRetry(t.Context(), time.Time{}, after)
		f.Must(err)
		fixture.WantDiff(t, fmt.Sprintf("the next retry after %s", after), dispatcher.RetryTimes{Least: due, Next: due}, at)
	}
	at, err := f.NextRetry(t.Context(), due, due)
	f.Must(err)
	fixture.WantDiff(t, "from the last retry on, and after it", dispatcher.RetryTimes{Least: due}, at)
	at, err = f.NextRetry(t.Context(), due.Add(time.Millisecond), due)
	f.Must(err)
	fixture.WantDiff(t, "later than the last retry", dispatcher.RetryTimes{}, at)
}

// testRetriesFromABound finds retries that are due at some time or later.
func testRetriesFromABound(t *testing.T, f *wing) {
	held, _, due := f.failOnce()
	now := due.Add(time.Minute)
	look := func(from time.Time) (keys []run.Key) {
		found, err := f.Adoptable(t.Context(), dispatcher.AdoptQuery{Node: fixture.NodeA, Limit: 10, Now: now, Retries: true, From: from})
		f.Must(err)
		for _, run := range found {
			keys = append(keys, run.Key)
		}
		return keys
	}
	fixture.WantDiff(t, "due at the bound", []run.Key{held.Key}, look(due))
	fixture.WantDiff(t, "due before the bound", []run.Key(nil), look(due.Add(time.Millisecond)))
	fixture.WantDiff(t, "without a bound", []run.Key{held.Key}, look(time.Time{}))
	// Runs held by a pause count for the minimum: they are due when the pause ends.
	f.Must(f.PauseJob(t.Context(), "shop", "tick", "", true, fixture.At(now)))
	fixture.WantDiff(t, "due during a pause", []run.Key(nil), look(time.Time{}))
	times, err := f.NextRetry(t.Context(), time.Time{}, now)
	f.Must(err)
	fixture.WantDiff(t, "the least of retries that a pause holds", due, times.Least)
}

func testRetryIsAdoptedWhenDue(t *testing.T, f *wing) {
	held, _, due := f.failOnce()
	ours, err := f.Held(t.Context(), fixture.NodeA, 0)
	f.Must(err)
	fixture.WantDiff(t, "runs that the node holds meanwhile", 0, len(ours))
	early := append(f.AdoptRetries(due.Add(-time.Millisecond)), f.AdoptIdle(fixture.NodeA, due.Add(time.Hour))...)
	fixture.WantDiff(t, "runs adopted too early, or as idle ones", 0, len(early))
	want := held
	want.Token, want.Attempt, want.Failures, want.RetryUntil = fixture.Token2, 2, 1, due.Add(time.Hour)
	want.ClaimedAt, want.Live = due, true
	fixture.WantDiff(t, "the run adopted when due", []run.HeldRun{want}, f.AdoptRetries(due))
	fixture.WantDiff(t, "runs adopted twice", 0, len(f.AdoptRetries(due)))
	fixture.WantDiff(t, "the run under way again", retryFacts{
		State: run.Claimed, Attempt: 2, Attempts: []run.State{run.TimedOut},
	}, f.retryFacts(held.Key))
}

func testRetryIsFenced(t *testing.T, f *wing) {
	held, start, due := f.failOnce()
	second := f.AdoptRetries(due)
	if len(second) != 1 {
		t.Fatalf("adopted %d runs, want 1", len(second))
	}
	f.Again(held, fixture.Failure(start), fixture.FailedUntil(due)) // of the first attempt, again
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(second[0], fixture.Outcome(due))}))
	fixture.WantDiff(t, "the run at its end", retryFacts{
		State: run.Succeeded, Attempt: 2, Ended: true, HTTPStatus: 200,
		Attempts: []run.State{run.TimedOut, run.Succeeded},
	}, f.retryFacts(held.Key))
	if late := f.RunOf(held.Key).Attempts[0].Late; late != nil {
		t.Errorf("the repeated record left a late result %+v, want none", late)
	}
}

// A batch may contain ends and retries, and each is fenced separately.
func testRetryBatch(t *testing.T, f *wing) {
	start := fixture.T0.Add(time.Minute)
	var records []dispatcher.Record
	var keys []run.Key
	for i := range 6 {
		held := f.ClaimOne(fmt.Sprintf("job%d", i))
		r := fixture.Record(held, fixture.Failure(start))
		if i%2 == 0 {
			next := fixture.FailedUntil(start.Add(time.Duration(i+1) * time.Second))
			r.Next = &next
		}
		if i >= 4 {
			r.Token = fixture.Token2
		}
		records, keys = append(records, r), append(keys, held.Key)
	}
	f.Must(f.Record(t.Context(), records))
	var got []run.State
	for _, key := range keys {
		got = append(got, f.RunOf(key).State)
	}
	want := []run.State{
		run.Retrying, run.TimedOut, run.Retrying, run.TimedOut,
		run.Claimed, run.Claimed,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if adopted := f.AdoptRetries(start.Add(time.Second)); len(adopted) != 1 || adopted[0].Key != keys[0] {
		t.Errorf("adopted: got %+v, want the one that is due", adopted)
	}
}

// A deferred attempt uses up neither an attempt number nor one of the attempts that the policy allows.
func testDeferredAttempts(t *testing.T, f *wing) {
	held, start := f.ClaimOne("tick"), fixture.T0.Add(time.Minute)
	open := run.Outcome{State: run.Failed, StartedAt: start, EndedAt: start,
		Class: run.ClassCircuitOpen, Error: "open"}
	at := start
	for range 3 {
		at = at.Add(time.Second)
		f.Again(held, open, dispatcher.NextAttempt{At: at, Until: start.Add(time.Hour), NotAttempted: true})
		if r := f.RunOf(held.Key); r.State != run.Retrying || r.Attempt != 0 || len(r.Attempts) != 0 ||
			r.Class != run.ClassCircuitOpen {
			t.Fatalf("defers: got %+v, want no attempt and the reason", r)
		}
		adopted := f.AdoptRetries(at)
		if len(adopted) != 1 || adopted[0].Attempt != 1 || adopted[0].Failures != 0 {
			t.Fatalf("adopted: got %+v, want attempt 1", adopted)
		}
		held = adopted[0]
	}
	// A target that was too busy has had a request: an attempt, but not one that the policy counts.
	f.Again(held, fixture.Failure(at), dispatcher.NextAttempt{At: at.Add(time.Second), Until: start.Add(time.Hour)})
	if adopted := f.AdoptRetries(at.Add(time.Second)); len(adopted) != 1 || adopted[0].Attempt != 2 || adopted[0].Failures != 0 {
		t.Errorf("adopted: got %+v, want attempt 2 without a failure", adopted)
	}
}

func testStopAtNextFire(t *testing.T, f *wing) {
	held, start := f.ClaimOne("tick"), fixture.T0.Add(time.Minute) // the next fire is at T0 plus two minutes
	next := fixture.FailedUntil(start.Add(59 * time.Second))
	next.StopAtNextFire = true
	f.Again(held, fixture.Failure(start), next)
	second := f.AdoptRetries(next.At)
	if len(second) != 1 || !second[0].RetryUntil.Equal(fixture.T0.Add(2*time.Minute-time.Millisecond)) {
		t.Fatalf("before the next fire: got %+v, want it given up just before that", second)
	}
	next.At = fixture.T0.Add(2 * time.Minute)
	f.Again(second[0], fixture.Failure(start), next)
	r := f.RunOf(held.Key)
	if r.State != run.TimedOut || r.EndedAt == nil || r.NextAttemptAt != nil || len(r.Attempts) != 2 ||
		r.Attempts[1].State != run.TimedOut {
		t.Errorf("at the next fire: got %+v, want its end", r)
	}

	late := f.ClaimOne("late")
	for _, d := range f.DueAll(fixture.T0.Add(time.Hour)) {
		if d.ID == late.TriggerID {
			f.ClaimAll(f.Advance(d))
		}
	}
	f.Again(late, fixture.Failure(start), dispatcher.NextAttempt{At: start.Add(time.Second), Until: start.Add(time.Hour),
		CountsAsFailure: true, StopAtNextFire: true})
	if r := f.RunOf(late.Key); r.State != run.TimedOut || len(r.Attempts) != 1 {
		t.Errorf("after the next fire: got %+v, want its end", r)
	}
}

// A run ends like its latest attempt when its retries end. A run that was only deferred gets one more attempt.
func testGiveUp(t *testing.T, f *wing) {
	ctx, start := t.Context(), fixture.T0.Add(time.Minute)
	held, off := f.ClaimOne("tick"), f.ClaimOne("off")
	next := dispatcher.NextAttempt{At: start.Add(time.Second), Until: start.Add(time.Minute), CountsAsFailure: true}
	f.Again(held, fixture.Failure(start), next)
	next.NotAttempted, next.CountsAsFailure = true, false
	f.Again(off, run.Outcome{State: run.Failed, StartedAt: start, EndedAt: start,
		Class: run.ClassCircuitOpen, Error: "open"}, next)
	if n, err := f.GiveUp(ctx, next.Until); err != nil || n != 0 {
		t.Errorf("in time: gave up %d, %v", n, err)
	}
	over := next.Until.Add(time.Millisecond)
	if n, err := f.GiveUp(ctx, over); err != nil || n != 1 {
		t.Errorf("gave up %d, %v, want 1", n, err)
	}
	if r := f.RunOf(held.Key); r.State != run.TimedOut || !r.EndedAt.Equal(over) ||
		len(r.Attempts) != 1 || r.Class != run.ClassTimeout {
		t.Errorf("given up: got %+v, want the outcome of its attempt", r)
	}
	adopted := f.AdoptRetries(over.Add(time.Hour))
	if len(adopted) != 1 || adopted[0].Key != off.Key || adopted[0].Attempt != 1 || !adopted[0].RetryUntil.Equal(next.Until) {
		t.Errorf("deferred for too long: adopted %+v, want its first attempt", adopted)
	}
}

// Retrying runs wait while their app, job or trigger may not fire, and end when it was deleted.
func testHeldRetries(t *testing.T, f *wing) {
	ctx, start := t.Context(), fixture.T0.Add(time.Minute)
	due := start.Add(time.Second)
	for _, name := range []string{"job", "trigger", "off", "gone"} {
		f.Again(f.ClaimOne(name), fixture.Failure(start), fixture.FailedUntil(due))
	}
	manual, err := f.RequestRun(ctx, "shop", "job", nil, fixture.At(fixture.T0))
	f.Must(err)
	held := f.AdoptIdle(fixture.NodeA, fixture.T0)
	if len(held) != 1 || held[0].String() != manual.ID {
		t.Fatalf("adopted: got %+v, want the manual run", held)
	}
	f.Again(held[0], fixture.Failure(start), fixture.FailedUntil(due))
	f.Must(f.PauseJob(ctx, "shop", "job", "", true, fixture.At(fixture.T0)))
	f.Must(f.PauseJob(ctx, "shop", "trigger", "tick", true, fixture.At(fixture.T0)))
	off := fixture.Job("off", nil)
	off.Enabled = false
	stored, err := f.Job(ctx, "shop", "off")
	f.Must(err)
	off.Triggers = stored.Triggers
	f.Put(off, fixture.T0)
	f.Must(f.DeleteJob(ctx, "shop", "gone", fixture.At(fixture.T0)))
	f.Must(f.PutApp(ctx, access.App{Name: "shop"}, fixture.At(fixture.T0)))
	if got := f.AdoptRetries(due); len(got) != 0 {
		t.Errorf("of a disabled app: adopted %+v", got)
	}
	f.DeclareApp("shop")
	jobs := map[int64]string{}
	for _, name := range []string{"job", "trigger", "off", "gone"} {
		jobs[run.JobID("shop", name)] = name
	}
	adopted := func() map[string]run.Kind {
		got := map[string]run.Kind{}
		for _, run := range f.AdoptRetries(due) {
			got[jobs[run.JobID]] = run.Kind
		}
		return got
	}
	want := map[string]run.Kind{"job": run.KindManual, "gone": run.KindSchedule}
	if diff := cmp.Diff(want, adopted()); diff != "" {
		t.Errorf("while paused and off (-want +got):\n%s", diff)
	}
	f.Must(f.PauseJob(ctx, "shop", "job", "", false, fixture.At(fixture.T0)))
	f.Must(f.PauseJob(ctx, "shop", "trigger", "tick", false, fixture.At(fixture.T0)))
	off.Enabled = true
	f.Put(off, fixture.T0)
	want = map[string]run.Kind{"job": run.KindSchedule, "trigger": run.KindSchedule, "off": run.KindSchedule}
	if diff := cmp.Diff(want, adopted()); diff != "" {
		t.Errorf("resumed (-want +got):\n%s", diff)
	}
}

// No retry is lost when the node that failed dies, or the node that repeats the attempt.
func testRetryOfTheDead(t *testing.T, f *wing) {
	held, start := f.ClaimOne("tick"), fixture.T0.Add(time.Minute)
	due := start.Add(time.Second)
	f.Again(held, fixture.Failure(start), fixture.FailedUntil(due))
	f.AddNode(fixture.NodeB)
	f.Must(f.Deregister(t.Context(), fixture.NodeA))
	if early := f.AdoptIdle(fixture.NodeB, due); len(early) != 0 {
		t.Errorf("adopted at the death of its node: %+v, want it to wait for its time", early)
	}
	second, err := f.Adopt(t.Context(), dispatcher.AdoptQuery{Node: fixture.NodeB, Token: fixture.Token2, Limit: 10, Now: due, Retries: true})
	if err != nil || len(second) != 1 || second[0].Attempt != 2 {
		t.Fatalf("adopted by another node: got %+v, %v, want attempt 2", second, err)
	}
	f.AddNode(fixture.NodeC)
	f.Must(f.Deregister(t.Context(), fixture.NodeB))
	third := f.AdoptIdle(fixture.NodeC, due)
	if len(third) != 1 || third[0].Attempt != 3 || third[0].Failures != 1 || third[0].RetryUntil.IsZero() {
		t.Fatalf("adopted from the dead: got %+v, want attempt 3 after 1 failure", third)
	}
	var states []run.State
	for _, a := range f.RunOf(held.Key).Attempts {
		states = append(states, a.State)
	}
	if diff := cmp.Diff([]run.State{run.TimedOut, run.Lost}, states); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

// An operator may hasten or cancel a retrying run. A fixed delay continues only after its end.
func testRetryRequests(t *testing.T, f *wing) {
	ctx, start := t.Context(), fixture.T0.Add(time.Minute)
	f.putDelay("slow")
	held := f.ClaimAll(f.NextAdvance())[0]
	f.Again(held, fixture.Failure(start), fixture.FailedUntil(start.Add(time.Hour)))
	if ended := f.DelaysToArm(); len(ended) != 0 {
		t.Errorf("while it retries: got %d ended delays, want none", len(ended))
	}
	r, err := f.RetryRun(ctx, held.String(), fixture.At(start))
	f.Must(err)
	if r.State != run.Queued || r.NextAttemptAt != nil || len(r.Attempts) != 1 {
		t.Errorf("hastened: got %+v, want it queued", r)
	}
	second := f.AdoptIdle(fixture.NodeA, start)
	if len(second) != 1 || second[0].Attempt != 2 || second[0].Failures != 0 || !second[0].RetryUntil.IsZero() {
		t.Fatalf("adopted: got %+v, want attempt 2 with the whole policy before it", second)
	}
	f.Again(second[0], fixture.Failure(start), fixture.FailedUntil(start.Add(time.Hour)))
	r, err = f.CancelRun(ctx, held.String(), fixture.At(start.Add(time.Minute)))
	f.Must(err)
	if r.State != run.Cancelled || r.NextAttemptAt != nil || len(r.Attempts) != 2 {
		t.Errorf("cancelled: got %+v, want both attempts and no next", r)
	}
	if got := f.AdoptRetries(start.Add(2 * time.Hour)); len(got) != 0 {
		t.Errorf("adopted a cancelled run: %+v", got)
	}
	if ended := f.DelaysToArm(); len(ended) != 1 {
		t.Errorf("after its end: got %d ended delays, want 1", len(ended))
	}
}
