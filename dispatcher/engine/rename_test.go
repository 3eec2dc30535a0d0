package engine

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// renamed renames a job and its only trigger, and notifies the node.
func (r *rig) renamed(name, to, trigger string) {
	r.t.Helper()
	job, err := r.store.RenameJob(r.t.Context(), "app", name,
		dispatcher.JobRename{Name: to, Triggers: map[string]string{"only": trigger}}, input.Change{Actor: "test", Now: r.now})
	if err != nil {
		r.t.Fatal(err)
	}
	r.hear(dispatcher.Notification{JobID: job.Key()})
}

// A receiver recognizes duplicates by their event ids; people use names.
func TestFiresOfARenamedJobKeepTheirEventIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("first", "rate(2s)", nil)
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(2*time.Second))
	r.quiet()
	// The fire at 4 s is planned under the old names.
	r.renamed("first", "second", "hourly")
	for r.claimOnce(t.Context(), r.now.Add(4*time.Second)) > 0 {
	}
	r.quiet()
	r.poll(9 * time.Second)
	for _, after := range []time.Duration{4, 6, 8} {
		r.claimOnce(t.Context(), r.now.Add(after*time.Second))
		r.quiet()
	}
	installation, err := r.store.Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	versions, err := r.store.JobsByID(t.Context(), []int64{run.JobID("app", "first")})
	if err != nil || len(versions) != 1 {
		t.Fatalf("the renamed job is %+v, %v", versions, err)
	}
	type call struct{ job, trigger, event string }
	var got, want []call
	for _, c := range r.calls {
		got = append(got, call{c.Job, c.Trigger, c.EventID})
	}
	for i, name := range []string{"first", "second", "second", "second"} {
		at := r.now.Add(time.Duration(2*i+2) * time.Second)
		trigger := map[string]string{"first": "only", "second": "hourly"}[name]
		of := run.Origin{Installation: installation, App: "app", Job: "first", Trigger: "only"}
		want = append(want, call{name, trigger, versions[0].Salt.EventID(of, at,
			run.KindSchedule)})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(call{})); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// A later attempt of a run that was claimed before the rename finds its schedule by the keys, not by the names.
func TestRetryOfARenamedJobSeesAdjacentFires(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		if call.Attempt == 1 {
			return broken()
		}
		return run.Outcome{State: run.Succeeded}
	}
	trigger := triggerOf("rate(2s)")
	trigger.Jitter = input.Duration(time.Second)
	r.putTemplated(trigger)
	r.poll(9 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(6*time.Second))
	one := r.settled()[0]
	r.renamed("templated", "renamed", "hourly")
	after := r.retry(one.ID)
	if after.State != run.Succeeded || after.Job != "renamed" || after.Trigger != "hourly" || after.EventID != one.EventID {
		t.Errorf("the run is %+v, want it succeeded under the new names with event id %s", after, one.EventID)
	}
	first := "none " + r.at(2*time.Second) + " " + r.at(4*time.Second)
	if diff := cmp.Diff([]string{first + " 1", first + " 2"}, r.bodies()[:2]); diff != "" {
		t.Errorf("bodies (-want +got):\n%s", diff)
	}
}
