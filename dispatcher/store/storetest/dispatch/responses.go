package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func testResponses(t *testing.T, f *fixture) {
	ctx := t.Context()
	answered := func(body string) run.Outcome {
		return run.Outcome{
			State: run.Failed, StartedAt: t0, EndedAt: t0.Add(time.Second), HTTPStatus: 500, Class: run.ClassHTTP5xx,
			Response: &run.Response{
				RequestID: "req-1", Headers: map[string]string{"content-type": "text/plain"}, Body: body, BodyTruncated: true,
				Phases: run.Phases{DNS: 1000, FirstByte: input.Duration(time.Second)},
			},
		}
	}
	held, plain, taken := f.claimOne("tick"), f.claimOne("tock"), f.claimOne("tack")
	f.must(f.CancelRun(ctx, taken.String(), at(t0.Add(time.Minute))))
	long := strings.Repeat("壊", 20_000)
	records := []dispatcher.Record{record(held, answered(long)),
		record(plain, run.Outcome{State: run.Succeeded, StartedAt: t0, EndedAt: t0}), record(taken, answered("late"))}
	for range 2 { // as after an unknown outcome
		f.must(f.Record(ctx, records))
	}
	if got := f.run(held.Key).Attempts; len(got) != 1 || cmp.Diff(answered(long).Response, got[0].Response) != "" {
		t.Errorf("attempts = %+v, want one with its response", got)
	}
	if got := f.run(plain.Key).Attempts; len(got) != 1 || got[0].Response != nil {
		t.Errorf("attempts = %+v, want one without a response", got)
	}
	if got := f.run(taken.Key).Attempts; len(got) != 1 || got[0].Response == nil || got[0].Response.Body != "late" ||
		got[0].Late == nil || got[0].Late.Response != nil {
		t.Errorf("attempts = %+v, want one with a late result and, once, its response", got)
	}
	// Each attempt has its own.
	f.must(f.RetryRun(ctx, held.String(), at(t0.Add(time.Minute))))
	again, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeA, Token: token2, Limit: 10, Now: t0.Add(time.Minute)})
	f.must(err)
	if len(again) != 1 {
		t.Fatalf("adopted %+v, want the run that is retried", again)
	}
	f.must(f.Record(ctx, []dispatcher.Record{record(again[0], answered("second"))}))
	got := f.run(held.Key).Attempts
	if len(got) != 2 || got[0].Response == nil || got[0].Response.Body != long || got[1].Response == nil || got[1].Response.Body != "second" {
		t.Errorf("attempts = %+v, want two with a response each", got)
	}
}
