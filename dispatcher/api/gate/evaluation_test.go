package gate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestRequestsThatEvaluateSchedulesAreBounded(t *testing.T) {
	t.Parallel()
	e := newEvaluations()
	e.slots = make(chan struct{}, 2)
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
	if len(e.tokens) != 0 || len(e.slots) != 0 {
		t.Errorf("%d tokens and %d slots are in use after all requests, want none", len(e.tokens), len(e.slots))
	}
}
