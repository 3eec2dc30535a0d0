package gate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
)

func TestRequestsThatEvaluateSchedulesAreBounded(t *testing.T) {
	t.Parallel()
	e := evaluations{places: limit.NewPlaces(), most: 2}
	var ends []func()
	for _, token := range []string{"a", "b"} {
		_, done, err := e.begin(t.Context(), token, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	// A second request of a token waits for the first, any other for a processor.
	for _, token := range []string{"a", "c"} {
		var busy *input.Problem
		if _, _, err := e.begin(t.Context(), token, time.Millisecond); !errors.As(err, &busy) || busy.Code != input.CodeUnavailable {
			t.Errorf("token %s: %v, want %s", token, err, input.CodeUnavailable)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := e.begin(gone, "c", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that is gone: %v, want %v", err, context.Canceled)
	}
	ends[0]()
	ctx, done, err := e.begin(t.Context(), "c", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		t.Error("the context has no deadline")
	}
	done()
	ends[1]()
	if n := e.places.Len(); n != 0 {
		t.Errorf("places under %d keys are taken after all requests, want none", n)
	}
}
