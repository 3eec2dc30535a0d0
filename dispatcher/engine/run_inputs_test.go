package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The input of a run replaces the payload of its job on every attempt, in templates too.
func TestRunSendsItsOwnPayload(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		if call.Attempt == 1 {
			return broken()
		}
		return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
	}
	first := r.request("given", func(job *dispatcher.Job) {
		job.Payload = json.RawMessage(`{"of":"job"}`)
		job.Target.Webhook.Body = `{{.Attempt}} {{json .Payload}}`
	})
	r.retry(first)
	given, err := r.store.RequestRun(t.Context(), "app", "given", json.RawMessage(`{"of":"run"}`), input.Change{Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.quiet()
	r.retry(given.ID)
	if diff := cmp.Diff([]string{`1 {"of":"job"}`, `2 {"of":"job"}`, `1 {"of":"run"}`, `2 {"of":"run"}`}, r.bodies()); diff != "" {
		t.Error("bodies (-want +got):\n" + diff)
	}
}

// An input that cannot be read fails only its own run: others are read together with it.
func TestInputThatCannotBeReadFailsItsRunAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(context.Context, target.Call) run.Outcome {
		return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
	}
	r.request("given", func(job *dispatcher.Job) { job.Retry.MaxAttempts, job.Retry.Delays = 1, nil })
	for _, payload := range []string{`"good"`, `"bad"`} {
		if _, err := r.store.RequestRun(t.Context(), "app", "given", json.RawMessage(payload), input.Change{Actor: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", "file:"+r.file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `UPDATE run_inputs SET input = '{' WHERE input LIKE '%bad%'`); err != nil {
		t.Fatal(err)
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	states := map[run.State]int{}
	for _, one := range r.settled() {
		if states[one.State]++; one.State == run.Failed && !strings.Contains(one.Error, "read the input of a run") {
			t.Errorf("the run failed with %q, want one that names its input", one.Error)
		}
	}
	want := map[run.State]int{run.Succeeded: 2, run.Failed: 1} // one without an input
	if diff := cmp.Diff(want, states); diff != "" {
		t.Error("states (-want +got):\n" + diff)
	}
}

// While the receiver of an alert is down, runs that wait for their turn look less and less often.
func TestWaitingRunsLookLessAndLessOften(t *testing.T) {
	t.Parallel()
	looks := 0
	for waited := time.Duration(0); waited < time.Hour; waited += heldPause(waited) {
		looks++
	}
	if looks > 100 || heldPause(0) != time.Second || heldPause(24*time.Hour) != time.Minute {
		t.Errorf("%d looks in an hour, the first after %s and the last after %s; want at most 100, 1s and 1m",
			looks, heldPause(0), heldPause(24*time.Hour))
	}
}
