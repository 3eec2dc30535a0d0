package dispatch

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// traced is a change that a request with a trace context asks for.
func traced(span string, now time.Time) input.Change {
	return input.Change{Actor: "test", Now: now, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-" + span + "-01"}
}

// adoptGiven takes what is queued, and returns the input of its only run.
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

// A retry is asked for by a request of its own. What the run was given besides stays, and so does the first request if the
// second one is part of no trace.
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

// The runs of a backfill and of a bulk action are asked for by the request that began it.
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
