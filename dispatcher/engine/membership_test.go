package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Only nodes with the labels that a job requires claim, settle and adopt its runs.
func TestPinnedJobWaitsForANodeWithItsLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	pinned := dispatcher.Job{
		App: "app", Name: "pinned", JobSpec: dispatcher.JobSpec{Enabled: true, NodeLabels: input.Labels{"disk": "ssd"},
			Target:   target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}},
			Triggers: map[string]dispatcher.Trigger{"only": {}}},
	}
	trigger := pinned.Triggers["only"]
	trigger.SetDefaults()
	trigger.Expression, trigger.MisfireAfter = "rate(1s)", input.Duration(time.Second)
	pinned.Triggers["only"] = trigger
	if _, _, err := r.store.PutJob(t.Context(), pinned, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.RequestRun(t.Context(), "app", "pinned", nil, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	work := func() (runs int) {
		planned := r.poll(5 * time.Second)
		if err := errors.Join(r.settle(t.Context(), r.now.Add(10*time.Second)), r.adopt(t.Context())); err != nil {
			t.Fatal(err)
		}
		r.quiet()
		return planned + len(r.calls)
	}
	if got := work(); got != 0 {
		t.Errorf("a node without the label did %d things", got)
	}
	labels := input.Labels{"disk": "ssd", "zone": "a"}
	r.opts.Labels, r.plan.Options.Labels, r.chores.Options.Labels, r.adopter.Options.Labels = labels, labels, labels, labels
	if err := errors.Join(r.register(t.Context(), dispatcher.NodeActive), r.heartbeatOnce(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := work(); got != 3 {
		t.Errorf("a node with the label did %d things, want a planned fire, a catch-up run and the manual run", got)
	}
}

// stampedBeats is a store whose heartbeats have a time of the test.
type stampedBeats struct {
	Store
	at time.Time
}

func (s *stampedBeats) Heartbeat(ctx context.Context, id run.NodeID, report dispatcher.NodeReport, now time.Time) (
	reply dispatcher.HeartbeatReply, err error,
) {
	reply, err = s.Store.Heartbeat(ctx, id, report, now)
	reply.At = s.at
	return reply, err
}

// A node records once when it could not reach the database, also if it was marked dead meanwhile, but not that a single
// heartbeat failed.
func TestOutageOfTheDatabaseIsRecorded(t *testing.T) {
	t.Parallel()
	store := &stampedBeats{}
	r := newRig(t, func(s Store) Store { store.Store = s; return store })
	beat := func(second int) {
		t.Helper()
		store.at = r.now.Add(time.Duration(second) * time.Second)
		if err := r.heartbeatOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	beat(1)
	r.fleet.HeartbeatFailed(errors.New("no connection"))
	if err := r.register(t.Context(), dispatcher.NodeActive); err != nil {
		t.Fatal(err)
	}
	r.fleet.HeartbeatFailed(errors.New("no connection"))
	beat(21)
	beat(22)
	r.fleet.HeartbeatFailed(errors.New("no connection"))
	beat(32)
	history, err := r.store.AppHistory(t.Context(), "app", time.Time{}, time.Time{})
	want := []dispatcher.Outage{{Node: r.fleet.ID(), Name: "test", From: r.now.Add(time.Second), To: r.now.Add(21 * time.Second)}}
	if diff := cmp.Diff(want, history.Outages); err != nil || diff != "" {
		t.Errorf("outages, error %v (-want +got):\n%s", err, diff)
	}
}
