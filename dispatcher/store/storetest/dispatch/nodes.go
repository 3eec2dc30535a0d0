package dispatch

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func fleetTests() tests {
	return tests{
		"nodes register and send heartbeats":        testNodes,
		"a node can register paused":                testRegisterPaused,
		"a node without heartbeats is marked dead":  testDeath,
		"dead nodes are purged after a day":         testNodesCleanUp,
		"a declared rollback pauses all nodes":      testRollback,
		"replay fires again after a rollback":       testReplay,
		"skip drops fires that a rollback left due": testSkip,
		"upcoming triggers are counted to a limit":  testUpcoming,
		"the census counts everything":              testCensus,
		"nodes know each other's APIs":              testAPIsOfNodes,
		"time zone data are set for all nodes":      testZoneSetting,
		"an outage is recorded once a fleet":        testOutageOfFleet,
		"fires move when all nodes have the zones":  testZonesOfNodes,
	}
}

// The nodes that lost the database together record one outage. A node that lost it for longer, or again, records its own.
func testOutageOfFleet(t *testing.T, f *wing) {
	var want []dispatcher.Outage
	for _, one := range []struct {
		node     run.NodeID
		from, to time.Duration
		recorded bool
	}{
		{fixture.NodeA, 0, time.Minute, true},
		{fixture.NodeB, time.Second, 65 * time.Second, false},
		{fixture.NodeC, 2 * time.Second, 10 * time.Minute, true},
		{fixture.NodeB, 20 * time.Minute, 21 * time.Minute, true},
	} {
		outage := dispatcher.Outage{Node: one.node, From: fixture.T0.Add(one.from), To: fixture.T0.Add(one.to)}
		f.Must(f.RecordOutage(t.Context(), outage))
		if outage.Node == fixture.NodeA { // the other nodes are unknown
			outage.Name = "host"
		}
		if one.recorded {
			want = slices.Insert(want, 0, outage)
		}
	}
	history, err := f.AppHistory(t.Context(), "shop", time.Time{}, fixture.T0.Add(time.Hour))
	f.Must(err)
	fixture.WantDiff(t, "the outages, the latest first", want, history.Outages)
}

// Nodes know the API addresses of all other nodes with an API: paused ones count, dead ones do not.
func testAPIsOfNodes(t *testing.T, f *wing) {
	ctx := t.Context()
	if !f.both() {
		return // a file serves one node
	}
	reach := target.Reach{EgressPrivate: []string{"10.0.0.0/8"}, EgressLoopback: true, AWSRegion: "eu-west-1", VaultAddress: "https://vault"}
	f.Must(f.Register(ctx, dispatcher.Node{ID: fixture.NodeC, Name: "c", APIAddresses: []string{"10.0.0.2:8080", "[fd00::2]:8080"},
		Reach: reach}, fixture.T0))
	knows := func(when string, want ...string) {
		t.Helper()
		heartbeat, err := f.Heartbeat(ctx, fixture.NodeA, dispatcher.NodeReport{}, fixture.T0)
		f.Must(err)
		if diff := cmp.Diff(want, heartbeat.APIs); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", when, diff)
		}
	}
	knows("while it is active", "10.0.0.2:8080", "[fd00::2]:8080")
	f.Must(f.SetNodeState(ctx, fixture.NodeC, dispatcher.NodePaused, fixture.At(fixture.T0)))
	knows("while it is paused", "10.0.0.2:8080", "[fd00::2]:8080")
	nodes, err := f.Nodes(ctx)
	f.Must(err)
	if i := slices.IndexFunc(nodes, func(n dispatcher.Node) bool { return n.ID == fixture.NodeC }); i < 0 || len(nodes[i].APIAddresses) != 2 ||
		!cmp.Equal(nodes[i].Reach, reach) {
		t.Errorf("nodes: got %+v, want the addresses and what the node can reach", nodes)
	}
	if heartbeat, err := f.Heartbeat(ctx, fixture.NodeC, dispatcher.NodeReport{}, fixture.T0); err != nil || len(heartbeat.APIs) != 0 {
		t.Errorf("a node's own addresses: got %v, %v, want none", heartbeat.APIs, err)
	}
	f.Must(f.Deregister(ctx, fixture.NodeC))
	knows("when it is gone")
}

func testNodes(t *testing.T, f *wing) {
	ctx := t.Context()
	id, err := f.Installation(ctx)
	f.Must(err)
	if again, err := f.Installation(ctx); err != nil || again != id || len(id) != 32 {
		t.Errorf("installation: got %q, then %q, %v; want 32 digits, always the same", id, again, err)
	}
	clock, err := f.Clock(ctx)
	f.Must(err)
	if off := time.Since(clock).Abs(); off > time.Hour || // wall clock: an hour between two reads is a wrong unit or zone
		clock.Location() != time.UTC {
		t.Errorf("clock: got %s, which is off by %s", clock, off)
	}

	now := fixture.T0.Add(time.Second)
	since := fixture.T0.Add(500 * time.Millisecond)
	ends := fixture.T0.Add(time.Hour)
	reported := dispatcher.NodeReport{InFlight: 7, Fires: 30, Lag: input.Duration(2 * time.Second), Saturated: true,
		ClockOffset: input.Duration(-time.Second), LongSince: &since, CertificateEndsAt: &ends}
	heartbeat, err := f.Heartbeat(ctx, fixture.NodeA, reported, now)
	f.Must(err)
	nodes, err := f.Nodes(ctx)
	f.Must(err)
	want := []dispatcher.Node{{
		ID: fixture.NodeA, Name: "host", Version: "v1", Zones: schedule.ZonesVersion(), State: dispatcher.NodeActive,
		StartedAt: fixture.T0, NodeHeartbeat: dispatcher.NodeHeartbeat{HeartbeatAt: now},
		NodeReport: reported, Share: 1,
	}}
	if heartbeat.State != dispatcher.NodeActive || len(heartbeat.Live) != 1 || heartbeat.Live[0].ID != fixture.NodeA ||
		heartbeat.Live[0].LongSince == nil {
		t.Errorf("heartbeat: got %+v, want active and itself live, with its spell of long attempts", heartbeat)
	}
	if diff := cmp.Diff(want, nodes); diff != "" {
		t.Error("nodes (-want +got):\n" + diff)
	}

	node, err := f.SetNodeState(ctx, fixture.NodeA, dispatcher.NodePaused, fixture.At(fixture.T0))
	if err != nil || node.State != dispatcher.NodePaused {
		t.Errorf("pause: got %+v, %v", node, err)
	}
	if heartbeat, err = f.Heartbeat(ctx, fixture.NodeA, dispatcher.NodeReport{}, now); err != nil ||
		heartbeat.State != dispatcher.NodePaused || len(heartbeat.Live) != 0 {
		t.Errorf("heartbeat of a paused node: got %+v, %v, want paused and nobody live", heartbeat, err)
	}
	f.Must(f.SetNodeState(ctx, fixture.NodeA, dispatcher.NodeActive, fixture.At(fixture.T0)))
	_, err = f.SetNodeState(ctx, 99, dispatcher.NodePaused, fixture.At(fixture.T0))
	fixture.WantError(t, "pause no node", err, dispatcher.ErrNotFound)
	_, err = f.Heartbeat(ctx, 99, dispatcher.NodeReport{}, now)
	fixture.WantError(t, "heartbeat of nobody", err, dispatcher.ErrNodeDead)
	f.Must(f.Deregister(ctx, fixture.NodeA))
	_, err = f.Heartbeat(ctx, fixture.NodeA, dispatcher.NodeReport{}, now)
	fixture.WantError(t, "heartbeat after resigning", err, dispatcher.ErrNodeDead)
	_, err = f.SetNodeState(ctx, fixture.NodeA, dispatcher.NodeActive, fixture.At(fixture.T0))
	fixture.WantError(t, "resume the dead", err, dispatcher.ErrConflict)
}

// A node may register paused; the fleet sets every other state.
func testRegisterPaused(t *testing.T, f *wing) {
	for id, state := range map[run.NodeID]dispatcher.NodeState{
		0x10: dispatcher.NodePaused, 0x11: dispatcher.NodeDraining, 0x12: dispatcher.NodeDead, 0x13: "",
	} {
		want := dispatcher.NodeActive
		if state == dispatcher.NodePaused {
			want = dispatcher.NodePaused
		}
		f.Must(f.Register(t.Context(), dispatcher.Node{ID: id, Name: "host", State: state}, fixture.T0))
		if heartbeat, err := f.Heartbeat(t.Context(), id, dispatcher.NodeReport{}, fixture.T0); err != nil || heartbeat.State != want {
			t.Errorf("registered as %q: got %q, %v, want %q", state, heartbeat.State, err, want)
		}
	}
}

func testDeath(t *testing.T, f *wing) {
	ctx := t.Context()
	dies := 0 // number of dying nodes where others are possible
	if f.both() {
		dies = 1
	}
	markDead := func(what string, by run.NodeID, heartbeat, now time.Time, want int) {
		t.Helper()
		if n, err := f.MarkDead(ctx, by, heartbeat, time.Minute, now); err != nil || n != want {
			t.Errorf("%s: got %d dead, %v, want %d", what, n, err, want)
		}
	}
	limit := fixture.T0.Add(time.Minute) // nodeA's heartbeat is at T0
	markDead("by a node that was away itself", fixture.NodeB, fixture.T0, limit.Add(time.Millisecond), 0)
	half := limit.Add(time.Millisecond - 30*time.Second)
	f.Must(f.Heartbeat(ctx, fixture.NodeB, dispatcher.NodeReport{}, half))
	markDead("by a node that may have been away itself", fixture.NodeB, half, limit.Add(time.Millisecond), 0)
	fresh := half.Add(time.Millisecond)
	f.Must(f.Heartbeat(ctx, fixture.NodeB, dispatcher.NodeReport{}, fresh))
	markDead("by nobody", 99, fresh, limit.Add(time.Millisecond), 0)
	markDead("at the limit", fixture.NodeB, fresh, limit, 0)
	markDead("by a node that does not know of its heartbeat", fixture.NodeB, half, limit.Add(time.Millisecond), 0)
	markDead("past the limit", fixture.NodeB, fresh, limit.Add(time.Millisecond), dies)
	_, err := f.Heartbeat(ctx, fixture.NodeA, dispatcher.NodeReport{}, limit)
	fixture.WantError(t, "heartbeat of the dead", err, dispatcher.ErrNodeDead)
	f.Must(f.Deregister(ctx, fixture.NodeB))

	f.AddNode(fixture.NodeC)
	f.AddNode(fixture.NodeD)
	if dies > 0 {
		f.Must(f.Heartbeat(ctx, fixture.NodeC, dispatcher.NodeReport{}, fixture.T0.Add(24*time.Hour)))
	}
	markDead("by the dead", fixture.NodeB, fresh, limit, 0)
	markDead("by a clock that was set back", fixture.NodeD, fixture.T0, fixture.T0, 0)
	f.Must(f.Heartbeat(ctx, fixture.NodeD, dispatcher.NodeReport{}, fixture.T0.Add(2*time.Minute)))
	markDead("of a node that beat in the future", fixture.NodeD, fixture.T0.Add(2*time.Minute), fixture.T0.Add(2*time.Minute), dies)

	// An impossible heartbeat neither keeps a node alive nor prevents it from living.
	for i, never := range []time.Time{time.UnixMilli(-1), time.UnixMilli(math.MinInt64), fixture.T0.AddDate(1_000_000, 0, 0)} {
		poisoned := run.NodeID(0x20 + i)
		f.AddNode(poisoned)
		f.Must(f.Heartbeat(ctx, poisoned, dispatcher.NodeReport{}, never))
		now := fixture.T0.Add(3 * time.Minute)
		if dies == 0 { // where it is alone, it continues
			f.Must(f.Heartbeat(ctx, poisoned, dispatcher.NodeReport{}, now))
			continue
		}
		f.Must(f.Heartbeat(ctx, fixture.NodeD, dispatcher.NodeReport{}, now))
		f.Must(f.MarkDead(ctx, fixture.NodeD, now, time.Minute, now))
		now = now.Add(61 * time.Second) // heartbeats from the future have aged
		f.Must(f.Heartbeat(ctx, fixture.NodeD, dispatcher.NodeReport{}, now))
		f.Must(f.MarkDead(ctx, fixture.NodeD, now, time.Minute, now))
		_, err := f.Heartbeat(ctx, poisoned, dispatcher.NodeReport{}, now)
		fixture.WantError(t, fmt.Sprint("heartbeat after one at ", never.UnixMilli()), err, dispatcher.ErrNodeDead)
	}
}

// Dead nodes are purged after a day, unless they hold runs to adopt.
func testNodesCleanUp(t *testing.T, f *wing) {
	f.InCheck()
	ctx := t.Context()
	held := f.ClaimOne("tick")
	f.Must(f.Deregister(ctx, fixture.NodeA))
	const many = 230
	for id := range run.NodeID(many) {
		f.AddNode(0x100 + id)
		f.Must(f.Deregister(ctx, 0x100+id))
	}
	f.AddNode(fixture.NodeB)
	count := func(what string, now time.Time, want int) {
		t.Helper()
		f.Must(f.MarkDead(ctx, fixture.NodeB, now, time.Minute, now))
		nodes, err := f.Nodes(ctx)
		f.Must(err)
		if len(nodes) != want {
			t.Errorf("%s: %d nodes, want %d", what, len(nodes), want)
		}
	}
	day := fixture.T0.Add(24 * time.Hour)
	count("within the day", day, many+2)
	past := day.Add(time.Millisecond)
	f.Must(f.Heartbeat(ctx, fixture.NodeB, dispatcher.NodeReport{}, past))
	count("after it, in steps", past, many+2-100)
	count("after it, in steps", past, many+2-200)
	count("at the end, with the one that holds a run", past, 2)
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeB, Token: fixture.Token2, Limit: 10, Now: past})
	if err != nil || len(adopted) != 1 || adopted[0].Key != held.Key {
		t.Fatalf("adopted: got %v, %v, want the run of the dead", adopted, err)
	}
	count("when it holds none", past, 1)
	if run := f.RunOf(held.Key); len(run.Attempts) != 1 || run.Attempts[0].Node != fixture.NodeA {
		t.Errorf("attempts: got %+v, want one of the node that is forgotten", run.Attempts)
	}
}

// Listeners are notified of all changes, and of nothing else.
func testListen(t *testing.T, f *wing) {
	notifications := f.Hear()
	f.PutEvery("tick", time.Minute)
	notifications.Await(t, dispatcher.Notification{JobID: run.JobID("shop", "tick")})
	notifications.Drain()
	f.DeclareCalendar(fixture.Calendar("freeze"), fixture.T0)
	notifications.Await(t, dispatcher.Notification{App: "shop"})
	notifications.Drain()
	run, err := f.RequestRun(t.Context(), "shop", "tick", nil, fixture.At(fixture.T0))
	f.Must(err)
	notifications.Await(t, dispatcher.Notification{Adopt: true})
	held, err := f.Adopt(t.Context(), dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 10, Now: fixture.T0})
	if err != nil || len(held) != 1 {
		t.Fatalf("adopted: got %v, %v, want the run", held, err)
	}
	f.Must(f.CancelRun(t.Context(), run.ID, fixture.At(fixture.T0)))
	notifications.Await(t, dispatcher.Notification{Run: run.ID, Token: fixture.Token2, Attempt: 1})
}

func testDue(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareApp("books")
	for i, name := range []string{"a", "b", "c"} {
		f.Put(fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Duration(i)*time.Second))}),
			fixture.T0.Add(-time.Second))
	}
	other := fixture.Job("d", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0)})
	other.App = "books"
	f.Put(other, fixture.T0.Add(-time.Second))

	names := func(q dispatcher.DueQuery) []string {
		t.Helper()
		if q.Limit == 0 {
			q.Limit = 100
		}
		due, err := f.Due(ctx, q)
		f.Must(err)
		jobs := map[int64]string{}
		for app, list := range map[string][]string{"shop": {"a", "b", "c"}, "books": {"d"}} {
			for _, name := range list {
				jobs[run.JobID(app, name)] = name
			}
		}
		got := []string{}
		for _, d := range due {
			got = append(got, jobs[f.Version(d.ID).JobID])
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
	check("until the second instant", names(dispatcher.DueQuery{Until: fixture.T0.Add(time.Second), Now: fixture.T0}), []string{"a", "b", "d"})
	check("of one app", names(dispatcher.DueQuery{Until: fixture.T0.Add(time.Hour), Now: fixture.T0, Apps: []string{"books"}}), []string{"d"})
	check("of two apps", names(dispatcher.DueQuery{Until: fixture.T0, Now: fixture.T0, Apps: []string{"books", "shop"}}), []string{"a", "d"})
	late := fixture.T0.Add(60*time.Second + 1500*time.Millisecond) // a, b and d are overdue, c is not
	check("not overdue", names(dispatcher.DueQuery{Until: late, Now: late}), []string{"c"})
	check("overdue", names(dispatcher.DueQuery{Until: late, Now: late, Overdue: true}), []string{"a", "b", "d"})

	var paged []string
	q := dispatcher.DueQuery{Until: fixture.T0.Add(time.Hour), Now: fixture.T0, Limit: 1}
	for {
		due, err := f.Due(ctx, q)
		f.Must(err)
		if len(due) == 0 {
			break
		}
		paged = append(paged, due[0].NextFireTime.Format("05"))
		q.AfterTime, q.AfterID = due[0].DueAt, due[0].ID
	}
	if diff := cmp.Diff([]string{"00", "00", "01", "02"}, paged); diff != "" {
		t.Error("page by page (-want +got):\n" + diff)
	}
	f.Must(f.PutApp(ctx, access.App{Name: "books"}, fixture.At(fixture.T0)))
	check("app disabled", names(dispatcher.DueQuery{Until: fixture.T0, Now: fixture.T0}), []string{"a"})
	disabled := fixture.Job("a", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0)})
	disabled.Enabled = false
	f.Put(disabled, fixture.T0.Add(-time.Second))
	check("job disabled", names(dispatcher.DueQuery{Until: fixture.T0, Now: fixture.T0}), []string{})
}
