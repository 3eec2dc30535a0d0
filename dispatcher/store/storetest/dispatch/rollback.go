package dispatch

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// stateOf is a node's state in the reply to its heartbeat.
func (f *wing) stateOf(id run.NodeID) dispatcher.HeartbeatReply {
	f.Helper()
	heartbeat, err := f.Heartbeat(f.Context(), id, dispatcher.NodeReport{}, fixture.T0)
	f.Must(err)
	return heartbeat
}

func (f *wing) declareRollback() dispatcher.Rollback {
	f.Helper()
	rollback, err := f.DeclareRollback(f.Context(), "restored", fixture.At(fixture.T0))
	f.Must(err)
	return rollback
}

// All nodes wait, whatever they are asked, and new nodes do, too.
func testRollback(t *testing.T, f *wing) {
	ctx := t.Context()
	if rollback, err := f.Rollback(ctx); err != nil || rollback != nil {
		t.Fatalf("got %+v, %v; want no rollback", rollback, err)
	}
	_, err := f.ResolveRollback(ctx, dispatcher.RollbackReplay, fixture.At(fixture.T0))
	fixture.WantError(t, "resolve none", err, dispatcher.ErrConflict)
	f.PutEvery("job", time.Minute)
	first := f.NextAdvance()

	f.declareRollback()
	again, err := f.DeclareRollback(ctx, "once more", fixture.At(fixture.T0.Add(time.Hour)))
	if err != nil || again.Reason != "restored" || !again.At.Equal(fixture.T0) {
		t.Errorf("declared twice: got %+v, %v; want the first to stand", again, err)
	}
	if heartbeat := f.stateOf(fixture.NodeA); heartbeat.State != dispatcher.NodePaused || !heartbeat.RolledBack || len(heartbeat.Live) != 0 {
		t.Errorf("the node is told %+v, want paused by a rollback", heartbeat)
	}
	f.AddNode(fixture.NodeB)
	if heartbeat := f.stateOf(fixture.NodeB); heartbeat.State != dispatcher.NodePaused || !heartbeat.RolledBack ||
		heartbeat.OperatorState != dispatcher.NodeActive {
		t.Errorf("who registers is told %+v, want paused by a rollback, and by nobody else", heartbeat)
	}
	f.Must(f.SetNodeState(ctx, fixture.NodeB, dispatcher.NodePaused, fixture.At(fixture.T0)))
	if heartbeat := f.stateOf(fixture.NodeB); heartbeat.OperatorState != dispatcher.NodePaused {
		t.Errorf("who is paused by an operator meanwhile is told %+v, want that it is", heartbeat)
	}
	if held := f.ClaimAll(first); len(held) != 0 {
		t.Errorf("paused nodes claimed %v", held)
	}
	_, err = f.SetNodeState(ctx, fixture.NodeB, dispatcher.NodeActive, fixture.At(fixture.T0))
	fixture.WantError(t, "resume a node", err, dispatcher.ErrRolledBack)

	f.Must(f.ResolveRollback(ctx, dispatcher.RollbackSkip, fixture.At(fixture.T0)))
	_, err = f.ResolveRollback(ctx, dispatcher.RollbackReplay, fixture.At(fixture.T0))
	fixture.WantError(t, "resolve twice", err, dispatcher.ErrConflict)
	if rollback, err := f.Rollback(ctx); err != nil || rollback == nil || rollback.Choice != dispatcher.RollbackSkip {
		t.Errorf("while it is skipped: got %+v, %v", rollback, err)
	}
}

// Replay continues from the state of the database, with the nodes that only the rollback had paused.
func testReplay(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("job", time.Minute)
	next := f.NextAdvance()
	f.Must(f.Register(ctx, dispatcher.Node{ID: fixture.NodeC, Name: "host", State: dispatcher.NodePaused}, fixture.T0))
	f.declareRollback()
	f.AddNode(fixture.NodeA + 0x100)
	f.Must(f.Register(ctx, dispatcher.Node{ID: fixture.NodeD, Name: "host", State: dispatcher.NodePaused}, fixture.T0))
	f.AddNode(fixture.NodeB)
	f.Must(f.ResolveRollback(ctx, dispatcher.RollbackReplay, fixture.At(fixture.T0)))
	if rollback, err := f.Rollback(ctx); err != nil || rollback != nil {
		t.Errorf("after the choice: got %+v, %v; want no rollback", rollback, err)
	}
	nodes, err := f.Nodes(ctx)
	f.Must(err)
	for _, node := range nodes {
		want := dispatcher.NodeActive
		if node.ID == fixture.NodeC || node.ID == fixture.NodeD {
			want = dispatcher.NodePaused
		}
		if node.State != want && node.State != dispatcher.NodeDead {
			t.Errorf("node %s is %s, want %s", node.ID, node.State, want)
		}
	}
	held, err := f.Claim(ctx, dispatcher.ClaimBatch{Node: fixture.NodeB, Token: fixture.Token1, Advances: []dispatcher.Advance{next},
		Now: next.Next})
	if err != nil || len(held) != 1 {
		t.Errorf("claimed %v, %v; want what was due", held, err)
	}
}

// Skip settles due fires, ends runs in progress, and does not affect future fires.
func testSkip(t *testing.T, f *wing) {
	ctx := t.Context()
	held := f.ClaimOne("under_way")
	f.PutEvery("due", time.Minute)
	f.PutEvery("paused", time.Minute)
	f.Must(f.PauseJob(ctx, "shop", "paused", "tick", true, fixture.At(fixture.T0)))
	f.Put(fixture.Job("later", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Hour, fixture.T0.Add(24*time.Hour))}), fixture.T0)
	f.putDelay("delayed")
	manual, err := f.RequestRun(ctx, "shop", "due", nil, fixture.At(fixture.T0))
	f.Must(err)

	noticed, chosen := fixture.T0.Add(2*time.Minute), fixture.T0.Add(10*time.Minute+time.Second)
	f.Must(f.DeclareRollback(ctx, "restored", fixture.At(noticed)))
	if done, err := f.SkipRolledBack(ctx, 0, 10, chosen); err != nil || done != (dispatcher.RollbackSkipped{}) {
		t.Errorf("before the choice %+v was done, %v; want nothing", done, err)
	}
	later, err := f.RequestRun(ctx, "shop", "due", nil, fixture.At(noticed.Add(time.Minute)))
	f.Must(err)
	effect, err := f.RollbackEffect(ctx, chosen)
	f.Must(err)
	// Fires: 10 minutes of two jobs, 9 of the one with a claimed fire, and one of a fixed delay.
	want := dispatcher.RollbackEffect{Apps: []dispatcher.RollbackApp{{App: "shop", Triggers: 4, Fires: 30, Runs: 2}}}
	if diff := cmp.Diff(want, effect); diff != "" {
		t.Errorf("before the choice, its effect is (-want +got):\n%s", diff)
	}
	f.Must(f.ResolveRollback(ctx, dispatcher.RollbackSkip, fixture.At(chosen)))
	total := dispatcher.RollbackSkipped{}
	// A page after the last one starts again from the beginning: changes may have left further due fires.
	for after, more := int64(math.MaxInt64), true; more; {
		done, err := f.SkipRolledBack(ctx, after, 2, chosen.Add(time.Minute))
		f.Must(err)
		total.Triggers, total.Runs, after, more = total.Triggers+done.Triggers, total.Runs+done.Runs, done.Last, done.More
	}
	if total.Triggers != 4 || total.Runs != 2 {
		t.Errorf("%d triggers were moved and %d runs ended, want 4 and 2", total.Triggers, total.Runs)
	}
	if rollback, err := f.Rollback(ctx); err != nil || rollback != nil {
		t.Errorf("at the end: got %+v, %v; want no rollback", rollback, err)
	}
	if heartbeat := f.stateOf(fixture.NodeA); heartbeat.State != dispatcher.NodeActive {
		t.Errorf("the node is %s, want active again", heartbeat.State)
	}

	for name, from := range map[string]time.Time{"under_way": fixture.T0.Add(2 * time.Minute), "due": fixture.T0.Add(time.Minute),
		"paused": fixture.T0.Add(time.Minute)} {
		trigger, err := f.Job(ctx, "shop", name)
		f.Must(err)
		if next := trigger.Triggers["tick"].NextFireTime; next == nil || !next.Equal(fixture.T0.Add(11*time.Minute)) {
			t.Errorf("%s fires next at %v, want after the choice", name, next)
		}
		missed, err := f.Misfires(ctx, dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 10}})
		f.Must(err)
		if len(missed) != 1 || missed[0].Decision != dispatcher.DecisionSkip || !missed[0].From.Equal(from) ||
			!missed[0].To.Equal(fixture.T0.Add(10*time.Minute)) || missed[0].Count != int(missed[0].To.Sub(from)/time.Minute)+1 {
			t.Errorf("%s has misfires %+v, want all its instants from %s on skipped", name, missed, from)
		}
	}
	if next := f.RunOf(held.Key); next.State != run.Lost {
		t.Errorf("what was under way is %s, want lost", next.State)
	}
	for id, want := range map[string]run.State{manual.ID: run.Lost, later.ID: run.Queued} {
		if run, err := f.Store.Run(ctx, id); err != nil || run.State != want {
			t.Errorf("run %s is %s, %v; want %s", id, run.State, err, want)
		}
	}
	delayed, err := f.Job(ctx, "shop", "delayed")
	f.Must(err)
	for name, trigger := range delayed.Triggers {
		if trigger.State != dispatcher.TriggerWaiting || trigger.NextFireTime == nil || !trigger.NextFireTime.After(chosen) {
			t.Errorf("fixed delay %s is %s and fires at %v, want it to go on after the choice", name, trigger.State, trigger.NextFireTime)
		}
	}
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, fixture.Outcome(chosen))}))
	if r := f.RunOf(held.Key); r.State != run.Lost || len(r.Attempts) != 1 || r.Attempts[0].Late == nil {
		t.Errorf("its result came later: got %+v, want it kept next to the run", r)
	}
}
