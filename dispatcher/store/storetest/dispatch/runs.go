package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

func inputTests() tests {
	return tests{
		"inputs of many runs are read at once":               testManyRunInputs,
		"a run keeps its input":                              testRunInputs,
		"a payload that cannot be sent or stored is refused": testRunInputRefused,
		"a retry keeps the trace of its request":             testRetryKeepsItsRequest,
		"a retry of a run that waits keeps its trace":        testRetryOfWaitingRunKeepsItsRequest,
		"parts of a whole keep the trace of its request":     testPartsKeepTheRequestOfTheWhole,
	}
}

// A run requested with a payload keeps it as long as the history has the run: while it is live, after it has ended, and
// when it is retried.
func testRunInputs(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutBrief()
	for _, name := range []string{"with", "without"} {
		j := fixture.Job(name, nil)
		j.App = "brief"
		f.Put(j, fixture.T0)
	}
	given := json.RawMessage(`{"region":"eu <&> 壊","n":12345678901234567890}`)
	with, err := f.RequestRun(ctx, "brief", "with", given, fixture.At(fixture.T0))
	f.Must(err)
	f.Must(f.RequestRun(ctx, "brief", "without", nil, fixture.At(fixture.T0)))
	key, err := run.ParseKey(with.ID)
	f.Must(err)
	want := map[run.Key]run.Input{key: {Payload: given}}
	check := func(when string, held run.HeldRun) {
		t.Helper()
		got, err := f.RunInputs(ctx, []run.Key{held.Key, {TriggerID: 5, ScheduledAt: fixture.T0, Kind: run.KindManual}})
		f.Must(err)
		if diff := cmp.Diff(want, got); diff != "" || !held.HasInput {
			t.Errorf("%s: the held run has an input: %v, want true; inputs (-want +got):\n%s", when, held.HasInput, diff)
		}
		if got := f.RunOf(key).Payload; string(got) != string(given) {
			t.Errorf("%s: the run shows payload %s, want %s", when, got, given)
		}
	}
	now := fixture.T0.Add(time.Second)
	adopt := func() (one run.HeldRun) {
		t.Helper()
		for _, run := range f.AdoptIdle(fixture.NodeA, now) {
			if run.Key == key {
				one = run
			} else if run.HasInput {
				t.Errorf("run %s has an input, want none", run.Key)
			}
		}
		return one
	}
	held := adopt()
	check("adopted", held)
	f.End(held, now)
	f.Must(f.RetryRun(ctx, with.ID, fixture.At(now)))
	check("retried", adopt())
	listed, err := f.Held(ctx, fixture.NodeA, 0)
	f.Must(err)
	for _, run := range listed {
		if run.Key == key {
			check("read again", run)
			f.End(run, now)
		}
	}
	f.PurgeAll(now.Add(100 * time.Hour))
	if got, err := f.RunInputs(ctx, []run.Key{key}); err != nil || len(got) != 0 {
		t.Errorf("once the history has forgotten the run: inputs %v, %v, want none", got, err)
	}
}

// Inputs of many runs are read at once, for any days. All shards of a run have its input.
func testManyRunInputs(t *testing.T, f *wing) {
	f.PutBrief()
	j := fixture.Job("many", nil)
	j.App = "brief"
	f.Put(j, fixture.T0)
	want, keys := map[run.Key]run.Input{}, []run.Key{}
	for days := range 3 {
		now := fixture.T0.Add(time.Duration(days) * 24 * time.Hour)
		given := json.RawMessage(fmt.Sprintf(`{"day":%d}`, days))
		r, err := f.RequestRun(t.Context(), "brief", "many", given, fixture.At(now))
		f.Must(err)
		key, err := run.ParseKey(r.ID)
		f.Must(err)
		for _, of := range []run.Key{key, key.OfIndex(0), key.OfIndex(1)} {
			keys, want[of] = append(keys, of), run.Input{Payload: given}
		}
		without := key
		without.TriggerID++
		keys = append(keys, without)
	}
	got, err := f.RunInputs(t.Context(), keys)
	f.Must(err)
	fixture.WantDiff(t, "inputs", want, got)
	got, err = f.RunInputs(t.Context(), nil)
	f.Must(err)
	f.Expect("inputs of no runs", len(got), 0)
}

// A payload that could not be sent or stored is refused before a run is queued.
func testRunInputRefused(t *testing.T, f *wing) {
	f.Put(fixture.Job("job", nil), fixture.T0)
	for what, payload := range map[string]string{
		"no JSON": "{", "NUL": `"a\u0000b"`, "half a character": `"\ud800"`, "too large": `"` + strings.Repeat("x", input.MaxPayload) + `"`,
		"too deep": strings.Repeat("[", 33) + strings.Repeat("]", 33),
	} {
		if _, err := f.RequestRun(t.Context(), "shop", "job", json.RawMessage(payload), fixture.At(fixture.T0)); !errors.As(err,
			new(input.Problems)) {
			t.Errorf("%s: got error %v, want Problems", what, err)
		}
	}
	if runs, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 10}}); err != nil || len(runs) != 0 {
		t.Errorf("got runs %v, %v, want none", runs, err)
	}
}

// traced is a change by a request with a trace context.
func traced(span string, now time.Time) input.Change {
	return input.Change{Actor: "test", Now: now, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-" + span + "-01"}
}

// adoptGiven adopts the queued run, and returns its input.
func (f *wing) adoptGiven(now time.Time) (r run.HeldRun, input run.Input) {
	f.Helper()
	runs := f.AdoptIdle(fixture.NodeA, now)
	if len(runs) != 1 || !runs[0].HasInput {
		f.Fatalf("adopted %+v, want one run that has an input", runs)
	}
	inputs, err := f.RunInputs(f.Context(), []run.Key{runs[0].Key})
	f.Must(err)
	return runs[0], inputs[runs[0].Key]
}

// A retry belongs to a new request. The rest of the run's input stays, and the first request stays if the second one is
// not part of a trace.
func testRetryKeepsItsRequest(t *testing.T, f *wing) {
	held := f.Fire("shop", "tick", "rate(1m)")
	now := held.ScheduledAt.Add(time.Second)
	f.End(held, now)
	const first, second = "b7ad6b7169203331", "00f067aa0ba902b7"
	f.Must(f.RetryRun(t.Context(), held.String(), traced(first, now)))
	r, in := f.adoptGiven(now)
	if diff := cmp.Diff(run.Input{Traceparent: traced(first, now).Traceparent}, in); diff != "" {
		t.Errorf("input of a scheduled run that was retried (-want +got):\n%s", diff)
	}
	f.End(r, now)
	payload := json.RawMessage(`{"n":1}`)
	f.Must(f.RequestRun(t.Context(), "shop", "tick", payload, traced(first, now)))
	r, _ = f.adoptGiven(now)
	for _, step := range []struct {
		by   input.Change
		want string
	}{
		{traced(second, now), traced(second, now).Traceparent},
		{fixture.At(now), traced(second, now).Traceparent},
	} {
		f.End(r, now)
		f.Must(f.RetryRun(t.Context(), r.String(), step.by))
		if r, in = f.adoptGiven(now); in.Traceparent != step.want || string(in.Payload) != string(payload) {
			t.Errorf("after a retry by %q the input is %+v, want traceparent %s and the payload", step.by.Traceparent, in, step.want)
		}
	}
}

// A run that waits for its next attempt may have had no input when it was adopted.
func testRetryOfWaitingRunKeepsItsRequest(t *testing.T, f *wing) {
	held := f.Fire("shop", "tick", "rate(1m)")
	now := held.ScheduledAt.Add(time.Second)
	f.Again(held, fixture.Failure(now), fixture.FailedUntil(now.Add(time.Hour)))
	by := traced("b7ad6b7169203331", now)
	f.Must(f.RetryRun(t.Context(), held.String(), by))
	if _, input := f.adoptGiven(now); input.Traceparent != by.Traceparent {
		t.Errorf("input %+v, want traceparent %s", input, by.Traceparent)
	}
}

// The runs of a backfill and of a bulk action belong to the request that began it.
func testPartsKeepTheRequestOfTheWhole(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	by := traced("b7ad6b7169203331", fixture.T0.Add(10*time.Minute))
	request := repeat.BackfillRequest{BackfillSpec: repeat.BackfillSpec{From: fixture.T0, To: fixture.T0.Add(6 * time.Minute)}}
	request.SetDefaults()
	created, err := f.CreateBackfill(t.Context(), "shop", "tick", f.PlanOf("tick", request.BackfillSpec), by)
	f.Must(err)
	id, err := repeat.ParseBackfillID(created.ID)
	f.Must(err)
	f.Must(f.FeedBackfill(t.Context(), id, by.Now))
	r, input := f.adoptGiven(by.Now)
	if r.Kind != run.KindBackfill || input.Traceparent != by.Traceparent {
		t.Errorf("a backfill's run of kind %s has input %+v, want traceparent %s", r.Kind, input, by.Traceparent)
	}
	f.Must(f.ChangeBackfill(t.Context(), "shop", created.ID, repeat.CancelBackfill, by))
	f.End(r, by.Now)
	spec := repeat.BulkSpec{Action: repeat.BulkRunJobs}
	bulk, err := f.CreateBulkAction(t.Context(), "shop", spec, repeat.BulkCount{Total: 1}, by)
	f.Must(err)
	id, err = repeat.ParseBulkActionID(bulk.ID)
	f.Must(err)
	f.Must(f.StepBulkAction(t.Context(), id, by.Now))
	if r, input = f.adoptGiven(by.Now); r.Kind != run.KindManual || input.Traceparent != by.Traceparent {
		t.Errorf("a bulk action's run of kind %s has input %+v, want traceparent %s", r.Kind, input, by.Traceparent)
	}
}

func testResponses(t *testing.T, f *wing) {
	ctx := t.Context()
	answered := func(body string) run.Outcome {
		return run.Outcome{
			State: run.Failed, StartedAt: fixture.T0, EndedAt: fixture.T0.Add(time.Second), HTTPStatus: 500, Class: run.ClassHTTP5xx,
			Response: &run.Response{
				RequestID: "req-1", Headers: map[string]string{"content-type": "text/plain"}, Body: body, BodyTruncated: true,
				Phases: run.Phases{DNS: 1000, FirstByte: input.Duration(time.Second)},
			},
		}
	}
	held, plain, taken := f.ClaimOne("tick"), f.ClaimOne("tock"), f.ClaimOne("tack")
	f.Must(f.CancelRun(ctx, taken.String(), fixture.At(fixture.T0.Add(time.Minute))))
	long := strings.Repeat("壊", 20_000)
	records := []dispatcher.Record{fixture.Record(held, answered(long)),
		fixture.Record(plain, run.Outcome{State: run.Succeeded, StartedAt: fixture.T0, EndedAt: fixture.T0}), fixture.Record(taken,
			answered("late"))}
	for range 2 { // as after an unknown outcome
		f.Must(f.Record(ctx, records))
	}
	if got := f.RunOf(held.Key).Attempts; len(got) != 1 || cmp.Diff(answered(long).Response, got[0].Response) != "" {
		t.Errorf("attempts = %+v, want one with its response", got)
	}
	if got := f.RunOf(plain.Key).Attempts; len(got) != 1 || got[0].Response != nil {
		t.Errorf("attempts = %+v, want one without a response", got)
	}
	if got := f.RunOf(taken.Key).Attempts; len(got) != 1 || got[0].Response == nil || got[0].Response.Body != "late" ||
		got[0].Late == nil || got[0].Late.Response != nil {
		t.Errorf("attempts = %+v, want one with a late result and, once, its response", got)
	}
	// Each attempt has its own responses.
	f.Must(f.RetryRun(ctx, held.String(), fixture.At(fixture.T0.Add(time.Minute))))
	again, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 10, Now: fixture.T0.Add(time.Minute)})
	f.Must(err)
	if len(again) != 1 {
		t.Fatalf("adopted %+v, want the run that is retried", again)
	}
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(again[0], answered("second"))}))
	got := f.RunOf(held.Key).Attempts
	if len(got) != 2 || got[0].Response == nil || got[0].Response.Body != long || got[1].Response == nil || got[1].Response.Body != "second" {
		t.Errorf("attempts = %+v, want two with a response each", got)
	}
}
