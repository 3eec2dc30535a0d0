package engine

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
)

// What a run was given takes the place of the payload of its job on every attempt, in templates too.
func TestRunSendsThePayloadThatItWasGiven(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(_ context.Context, call dispatcher.Call) dispatcher.Outcome {
		if call.Attempt == 1 {
			return broken()
		}
		return dispatcher.Outcome{State: dispatcher.RunSucceeded, HTTPStatus: 200}
	}
	first := r.request("given", func(job *dispatcher.Job) {
		job.Payload = json.RawMessage(`{"of":"job"}`)
		job.Target.Webhook.Body = `{{.Attempt}} {{json .Payload}}`
	})
	r.retry(first)
	given, err := r.store.RequestRun(t.Context(), "app", "given", json.RawMessage(`{"of":"run"}`), dispatcher.Change{Actor: "test"})
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
