package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

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
	// Each attempt has its own.
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
