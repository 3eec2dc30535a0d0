package engine

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

// A refusal as stale is no failure: the run ends at once, whatever its retry policy says, and the host counts as one that responds.
func TestSupersededRunIsNotAttemptedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	outcomes := []dispatcher.Outcome{broken(), dispatcher.Superseded()}
	r.invoke = func(context.Context, dispatcher.Call) dispatcher.Outcome {
		o := outcomes[0]
		if len(outcomes) > 1 {
			outcomes = outcomes[1:]
		}
		return o
	}
	id := r.request("stale", nil)
	for range 3 {
		r.retry(id)
	}
	run := r.read(id)
	if run.State != dispatcher.RunSuperseded || run.Class != "" || run.Error == "" || len(run.Attempts) != 2 || len(r.calls) != 2 {
		t.Errorf("run = %+v after %d calls, want it superseded after 2", run, len(r.calls))
	}
	if n := testutil.ToFloat64(r.metrics.apps.Of("app").attempts[dispatcher.RunSuperseded]); n != 1 {
		t.Errorf("%v attempts are counted as superseded, want 1", n)
	}
	page, err := r.store.DeadLetters(t.Context(), repeat.DeadLetterQuery{App: "app", Page: input.Page{Limit: 10}})
	if err != nil || len(page) != 0 {
		t.Errorf("dead letters %v, %v, want none", page, err)
	}
}
