package engine

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A refusal as stale is no failure: the run ends at once, with any retry policy, and the host counts as responding.
func TestSupersededRunIsNotAttemptedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	outcomes := []run.Outcome{broken(), run.SupersededOutcome()}
	r.invoke = func(context.Context, target.Call) run.Outcome {
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
	one := r.read(id)
	if one.State != run.Superseded || one.Class != "" || one.Error == "" || len(one.Attempts) != 2 || len(r.calls) != 2 {
		t.Errorf("run = %+v after %d calls, want it superseded after 2", one, len(r.calls))
	}
	if n := testutil.ToFloat64(r.metrics.apps.Of("app").attempts[run.Superseded]); n != 1 {
		t.Errorf("%v attempts are counted as superseded, want 1", n)
	}
	page, err := r.store.DeadLetters(t.Context(), repeat.DeadLetterQuery{App: "app", Page: input.Page{Limit: 10}})
	if err != nil || len(page) != 0 {
		t.Errorf("dead letters %v, %v, want none", page, err)
	}
}
