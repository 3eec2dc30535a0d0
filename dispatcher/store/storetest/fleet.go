package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
)

func testNodes(t *testing.T, f *fixture) {
	ctx := t.Context()
	id, err := f.Installation(ctx)
	f.must(err)
	if again, err := f.Installation(ctx); err != nil || again != id || len(id) != 32 {
		t.Errorf("installation: got %q, then %q, %v; want 32 digits, always the same", id, again, err)
	}
	clock, err := f.Clock(ctx)
	f.must(err)
	if off := time.Since(clock).Abs(); off > time.Minute || clock.Location() != time.UTC {
		t.Errorf("clock: got %s, which is off by %s", clock, off)
	}

	now := t0.Add(time.Second)
	beat, err := f.Heartbeat(ctx, nodeA, 7, now)
	f.must(err)
	if diff := cmp.Diff(dispatcher.Beat{State: dispatcher.NodeActive, Live: []dispatcher.NodeID{nodeA}}, beat); diff != "" {
		t.Error("heartbeat (-want +got):\n" + diff)
	}
	nodes, err := f.Nodes(ctx)
	f.must(err)
	want := []dispatcher.Node{{
		ID: nodeA, Name: "host", Version: "v1", State: dispatcher.NodeActive, StartedAt: t0, HeartbeatAt: now, InFlight: 7,
	}}
	if diff := cmp.Diff(want, nodes); diff != "" {
		t.Error("nodes (-want +got):\n" + diff)
	}

	node, err := f.SetNodeState(ctx, nodeA, dispatcher.NodePaused, at(t0))
	if err != nil || node.State != dispatcher.NodePaused {
		t.Errorf("pause: got %+v, %v", node, err)
	}
	if beat, err = f.Heartbeat(ctx, nodeA, 0, now); err != nil || beat.State != dispatcher.NodePaused || len(beat.Live) != 0 {
		t.Errorf("heartbeat of a paused node: got %+v, %v, want paused and nobody live", beat, err)
	}
	f.must(f.SetNodeState(ctx, nodeA, dispatcher.NodeActive, at(t0)))
	_, err = f.SetNodeState(ctx, 99, dispatcher.NodePaused, at(t0))
	wantError(t, "pause no node", err, dispatcher.ErrNotFound)
	testDeath(t, f, now)
}

func testDeath(t *testing.T, f *fixture, beatAt time.Time) {
	ctx := t.Context()
	if n, err := f.Bury(ctx, time.Minute, beatAt.Add(time.Minute)); err != nil || n != 0 {
		t.Errorf("bury at the limit: got %d, %v, want 0", n, err)
	}
	if n, err := f.Bury(ctx, time.Minute, beatAt.Add(time.Minute+time.Millisecond)); err != nil || n != 1 {
		t.Errorf("bury past the limit: got %d, %v, want 1", n, err)
	}
	_, err := f.Heartbeat(ctx, nodeA, 0, beatAt)
	wantError(t, "heartbeat of the dead", err, dispatcher.ErrNodeDead)
	_, err = f.SetNodeState(ctx, nodeA, dispatcher.NodeActive, at(t0))
	wantError(t, "resume the dead", err, dispatcher.ErrConflict)
	_, err = f.Heartbeat(ctx, 99, 0, beatAt)
	wantError(t, "heartbeat of nobody", err, dispatcher.ErrNodeDead)

	f.register(nodeB)
	f.must(f.Heartbeat(ctx, nodeB, 0, t0.Add(24*time.Hour)))
	if n, err := f.Bury(ctx, time.Minute, t0); err != nil || n != 0 {
		t.Errorf("bury by a clock that was set back: got %d, %v, want 0", n, err)
	}
	if n, err := f.Bury(ctx, time.Minute, t0.Add(2*time.Minute)); err != nil || n != 1 {
		t.Errorf("bury a node that beat in the future: got %d, %v, want 1", n, err)
	}
	f.register(0x0c)
	f.must(f.Resign(ctx, 0x0c))
	_, err = f.Heartbeat(ctx, 0x0c, 0, t0)
	wantError(t, "heartbeat after resigning", err, dispatcher.ErrNodeDead)
}

func testListen(t *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	hints := make(chan dispatcher.Hint, 100)
	ended := make(chan error)
	go func() { ended <- f.Listen(ctx, func(h dispatcher.Hint) { hints <- h }) }()
	// The first hint says that listening has begun.
	await := func(what string, want dispatcher.Hint) {
		t.Helper()
		for {
			select {
			case got := <-hints:
				if got == want {
					return
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: no hint %+v", what, want)
			}
		}
	}
	drain := func() {
		for len(hints) > 0 {
			<-hints
		}
	}
	await("begin", dispatcher.Hint{})
	f.putEvery("tick", time.Minute)
	await("put a job", dispatcher.Hint{})
	drain()
	run, err := f.RequestRun(t.Context(), "shop", "tick", at(t0))
	f.must(err)
	await("request a run", dispatcher.Hint{})
	f.must(f.CancelRun(t.Context(), run.ID, at(t0)))
	await("cancel a run", dispatcher.Hint{Run: run.ID})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("listen ended with %v, want nil", err)
	}
}

func testDue(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putApp("books")
	for i, name := range []string{"a", "b", "c"} {
		f.put(job(name, map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Duration(i)*time.Second))}), t0.Add(-time.Second))
	}
	other := job("d", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0)})
	other.App = "books"
	f.put(other, t0.Add(-time.Second))

	names := func(q dispatcher.DueQuery) []string {
		t.Helper()
		if q.Limit == 0 {
			q.Limit = 100
		}
		due, err := f.Due(ctx, q)
		f.must(err)
		jobs := map[int64]string{}
		for app, list := range map[string][]string{"shop": {"a", "b", "c"}, "books": {"d"}} {
			for _, name := range list {
				jobs[dispatcher.JobID(app, name)] = name
			}
		}
		got := []string{}
		for _, d := range due {
			got = append(got, jobs[d.JobID])
		}
		return got
	}
	check := func(what string, got, want []string) {
		t.Helper()
		slices.Sort(got) // triggers of one instant come in the order of their ids
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("until the second instant", names(dispatcher.DueQuery{Until: t0.Add(time.Second), Now: t0}), []string{"a", "b", "d"})
	check("of one app", names(dispatcher.DueQuery{Until: t0.Add(time.Hour), Now: t0, Apps: []string{"books"}}), []string{"d"})
	check("of two apps", names(dispatcher.DueQuery{Until: t0, Now: t0, Apps: []string{"books", "shop"}}), []string{"a", "d"})
	late := t0.Add(60*time.Second + 1500*time.Millisecond) // a, b and d are overdue, c is not
	check("not overdue", names(dispatcher.DueQuery{Until: late, Now: late}), []string{"c"})
	check("overdue", names(dispatcher.DueQuery{Until: late, Now: late, Overdue: true}), []string{"a", "b", "d"})

	var paged []string
	q := dispatcher.DueQuery{Until: t0.Add(time.Hour), Now: t0, Limit: 1}
	for {
		due, err := f.Due(ctx, q)
		f.must(err)
		if len(due) == 0 {
			break
		}
		paged = append(paged, due[0].NextFireTime.Format("05"))
		q.AfterTime, q.AfterID = due[0].NextFireTime, due[0].ID
	}
	if diff := cmp.Diff([]string{"00", "00", "01", "02"}, paged); diff != "" {
		t.Error("page by page (-want +got):\n" + diff)
	}
	f.must(f.PutApp(ctx, dispatcher.App{Name: "books"}, at(t0)))
	check("app disabled", names(dispatcher.DueQuery{Until: t0, Now: t0}), []string{"a"})
	disabled := job("a", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0)})
	disabled.Enabled = false
	f.put(disabled, t0.Add(-time.Second))
	check("job disabled", names(dispatcher.DueQuery{Until: t0, Now: t0}), []string{})
}
