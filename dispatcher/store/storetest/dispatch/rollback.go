package storetest

import (
	"math"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// stateOf is a node's state, as its heartbeat is told.
func (f *fixture) stateOf(id run.NodeID) dispatcher.HeartbeatReply {
	f.Helper()
	heartbeat, err := f.Heartbeat(f.Context(), id, dispatcher.NodeReport{}, t0)
	f.must(err)
	return heartbeat
}

func (f *fixture) declareRollback() dispatcher.Rollback {
	f.Helper()
	rollback, err := f.DeclareRollback(f.Context(), "restored", at(t0))
	f.must(err)
	return rollback
}

// All nodes wait, whatever is asked of them, and so do those to come.
func testRollback(t *testing.T, f *fixture) {
	ctx := t.Context()
	if rollback, err := f.Rollback(ctx); err != nil || rollback != nil {
		t.Fatalf("got %+v, %v; want no rollback", rollback, err)
	}
	_, err := f.ResolveRollback(ctx, dispatcher.RollbackReplay, at(t0))
	wantError(t, "resolve none", err, dispatcher.ErrConflict)
	f.putEvery("job", time.Minute)
	first := f.nextAdvance()

	f.declareRollback()
	again, err := f.DeclareRollback(ctx, "once more", at(t0.Add(time.Hour)))
	if err != nil || again.Reason != "restored" || !again.At.Equal(t0) {
		t.Errorf("declared twice: got %+v, %v; want the first to stand", again, err)
	}
	if heartbeat := f.stateOf(nodeA); heartbeat.State != dispatcher.NodePaused || !heartbeat.RolledBack || len(heartbeat.Live) != 0 {
		t.Errorf("the node is told %+v, want paused by a rollback", heartbeat)
	}
	f.register(nodeB)
	if heartbeat := f.stateOf(nodeB); heartbeat.State != dispatcher.NodePaused || !heartbeat.RolledBack ||
		heartbeat.OperatorState != dispatcher.NodeActive {
		t.Errorf("who registers is told %+v, want paused by a rollback, and by nobody else", heartbeat)
	}
	f.must(f.SetNodeState(ctx, nodeB, dispatcher.NodePaused, at(t0)))
	if heartbeat := f.stateOf(nodeB); heartbeat.OperatorState != dispatcher.NodePaused {
		t.Errorf("who is paused by an operator meanwhile is told %+v, want that it is", heartbeat)
	}
	if held := f.claim(first); len(held) != 0 {
		t.Errorf("paused nodes claimed %v", held)
	}
	_, err = f.SetNodeState(ctx, nodeB, dispatcher.NodeActive, at(t0))
	wantError(t, "resume a node", err, dispatcher.ErrRolledBack)

	f.must(f.ResolveRollback(ctx, dispatcher.RollbackSkip, at(t0)))
	_, err = f.ResolveRollback(ctx, dispatcher.RollbackReplay, at(t0))
	wantError(t, "resolve twice", err, dispatcher.ErrConflict)
	if rollback, err := f.Rollback(ctx); err != nil || rollback == nil || rollback.Choice != dispatcher.RollbackSkip {
		t.Errorf("while it is skipped: got %+v, %v", rollback, err)
	}
}

// Replay goes on as the database has it, with the nodes that only the rollback had paused.
func testReplay(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putEvery("job", time.Minute)
	next := f.nextAdvance()
	f.must(f.Register(ctx, dispatcher.Node{ID: nodeC, Name: "host", State: dispatcher.NodePaused}, t0))
	f.declareRollback()
	f.register(nodeA + 0x100)
	f.must(f.Register(ctx, dispatcher.Node{ID: nodeD, Name: "host", State: dispatcher.NodePaused}, t0))
	f.register(nodeB)
	f.must(f.ResolveRollback(ctx, dispatcher.RollbackReplay, at(t0)))
	if rollback, err := f.Rollback(ctx); err != nil || rollback != nil {
		t.Errorf("after the choice: got %+v, %v; want no rollback", rollback, err)
	}
	nodes, err := f.Nodes(ctx)
	f.must(err)
	for _, node := range nodes {
		want := dispatcher.NodeActive
		if node.ID == nodeC || node.ID == nodeD {
			want = dispatcher.NodePaused
		}
		if node.State != want && node.State != dispatcher.NodeDead {
			t.Errorf("node %s is %s, want %s", node.ID, node.State, want)
		}
	}
	held, err := f.Claim(ctx, dispatcher.ClaimBatch{Node: nodeB, Token: token1, Advances: []dispatcher.Advance{next}, Now: next.Next})
	if err != nil || len(held) != 1 {
		t.Errorf("claimed %v, %v; want what was due", held, err)
	}
}

// Skip settles what was due, ends what was under way, and leaves what is to come.
func testSkip(t *testing.T, f *fixture) {
	ctx := t.Context()
	held := f.claimOne("under_way")
	f.putEvery("due", time.Minute)
	f.putEvery("paused", time.Minute)
	f.must(f.PauseJob(ctx, "shop", "paused", "tick", true, at(t0)))
	f.put(job("later", map[string]dispatcher.Trigger{"tick": every(time.Hour, t0.Add(24*time.Hour))}), t0)
	f.putDelay("delayed")
	manual, err := f.RequestRun(ctx, "shop", "due", nil, at(t0))
	f.must(err)

	noticed, chosen := t0.Add(2*time.Minute), t0.Add(10*time.Minute+time.Second)
	f.must(f.DeclareRollback(ctx, "restored", at(noticed)))
	if done, err := f.SkipRolledBack(ctx, 0, 10, chosen); err != nil || done != (dispatcher.RollbackSkipped{}) {
		t.Errorf("before the choice %+v was done, %v; want nothing", done, err)
	}
	later, err := f.RequestRun(ctx, "shop", "due", nil, at(noticed.Add(time.Minute)))
	f.must(err)
	f.must(f.ResolveRollback(ctx, dispatcher.RollbackSkip, at(chosen)))
	total := dispatcher.RollbackSkipped{}
	// Anyone who comes to the end looks once more from the beginning: what was changed may be as due as before.
	for after, more := int64(math.MaxInt64), true; more; {
		done, err := f.SkipRolledBack(ctx, after, 2, chosen.Add(time.Minute))
		f.must(err)
		total.Triggers, total.Runs, after, more = total.Triggers+done.Triggers, total.Runs+done.Runs, done.Last, done.More
	}
	if total.Triggers != 4 || total.Runs != 2 {
		t.Errorf("%d triggers were moved and %d runs ended, want 4 and 2", total.Triggers, total.Runs)
	}
	if rollback, err := f.Rollback(ctx); err != nil || rollback != nil {
		t.Errorf("at the end: got %+v, %v; want no rollback", rollback, err)
	}
	if heartbeat := f.stateOf(nodeA); heartbeat.State != dispatcher.NodeActive {
		t.Errorf("the node is %s, want active again", heartbeat.State)
	}

	for name, from := range map[string]time.Time{"under_way": t0.Add(2 * time.Minute), "due": t0.Add(time.Minute),
		"paused": t0.Add(time.Minute)} {
		trigger, err := f.Job(ctx, "shop", name)
		f.must(err)
		if next := trigger.Triggers["tick"].NextFireTime; next == nil || !next.Equal(t0.Add(11*time.Minute)) {
			t.Errorf("%s fires next at %v, want after the choice", name, next)
		}
		missed, err := f.Misfires(ctx, dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 10}})
		f.must(err)
		if len(missed) != 1 || missed[0].Decision != dispatcher.DecisionSkip || !missed[0].From.Equal(from) ||
			!missed[0].To.Equal(t0.Add(10*time.Minute)) || missed[0].Count != int(missed[0].To.Sub(from)/time.Minute)+1 {
			t.Errorf("%s has misfires %+v, want all its instants from %s on skipped", name, missed, from)
		}
	}
	if next := f.run(held.Key); next.State != run.Lost {
		t.Errorf("what was under way is %s, want lost", next.State)
	}
	for id, want := range map[string]run.State{manual.ID: run.Lost, later.ID: run.Queued} {
		if run, err := f.Store.Run(ctx, id); err != nil || run.State != want {
			t.Errorf("run %s is %s, %v; want %s", id, run.State, err, want)
		}
	}
	delayed, err := f.Job(ctx, "shop", "delayed")
	f.must(err)
	for name, trigger := range delayed.Triggers {
		if trigger.State != dispatcher.TriggerWaiting || trigger.NextFireTime == nil || !trigger.NextFireTime.After(chosen) {
			t.Errorf("fixed delay %s is %s and fires at %v, want it to go on after the choice", name, trigger.State, trigger.NextFireTime)
		}
	}
	f.must(f.Record(ctx, []dispatcher.Record{record(held, outcome(chosen))}))
	if r := f.run(held.Key); r.State != run.Lost || len(r.Attempts) != 1 || r.Attempts[0].Late == nil {
		t.Errorf("its result came later: got %+v, want it kept next to the run", r)
	}
}
