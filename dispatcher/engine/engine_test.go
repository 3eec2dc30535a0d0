package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestDenseTriggerFiresEveryTimeWithinOneWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("dense", "* * * * * ?", nil)
	if n := r.poll(5 * time.Second); n != 1 {
		t.Fatalf("poll planned %d fires, want the first of the one trigger", n)
	}
	for range 4 {
		r.claimOnce(t.Context(), r.now.Add(4*time.Second))
	}
	if n := r.claimOnce(t.Context(), r.now.Add(4*time.Second)); n != 0 {
		t.Errorf("%d fires were claimed that are not due yet", n)
	}
	want := []string{"1s schedule succeeded #1", "2s schedule succeeded #1", "3s schedule succeeded #1", "4s schedule succeeded #1"}
	if diff := cmp.Diff(want, offsets(r, r.settled())); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestLateFireWithinTheThresholdRunsAndBeyondItIsCaughtUpOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("patient", "rate(4s)", nil)
	r.declare("impatient", "rate(4s)", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(2 * time.Second) })
	r.now = r.now.Add(10 * time.Second) // two instants of each are past: 6 s and 2 s ago
	if err := r.settle(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	r.poll(0)
	for range 3 {
		r.claimOnce(t.Context(), r.now)
	}
	byJob := map[string][]string{}
	for _, run := range r.settled() {
		byJob[run.Job] = append(byJob[run.Job], fmt.Sprintf("%s %s", run.ScheduledAt.Sub(r.now), run.Kind))
	}
	want := map[string][]string{"patient": {"-6s schedule", "-2s schedule"}, "impatient": {"-2s catch_up"}}
	if diff := cmp.Diff(want, byJob); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	misfires, err := r.store.Misfires(t.Context(), dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 10}})
	if err != nil || len(misfires) != 1 {
		t.Fatalf("misfires = %+v, %v, want one", misfires, err)
	}
	m := misfires[0]
	got := fmt.Sprintf("%s %d from %s to %s", m.Job, m.Count, m.From.Sub(r.now), m.To.Sub(r.now))
	if got != "impatient 2 from -6s to -2s" || m.Run == "" {
		t.Errorf("misfire = %+v, want both instants of impatient with a catch-up run", m)
	}
}

// lostResponse executes the first statement of each kind and then reports a failure, like a connection that dies
// between COMMIT and its response.
type lostResponse struct {
	Store
	claim, settle, adopt sync.Once
}

var errLost = errors.New("connection lost")

func (l *lostResponse) Claim(ctx context.Context, b dispatcher.ClaimBatch) (held []run.HeldRun, err error) {
	held, err = l.Store.Claim(ctx, b)
	l.claim.Do(func() { held, err = nil, errLost })
	return held, err
}

func (l *lostResponse) Settle(ctx context.Context, b dispatcher.SettleBatch) (held []run.HeldRun, err error) {
	held, err = l.Store.Settle(ctx, b)
	l.settle.Do(func() { held, err = nil, errLost })
	return held, err
}

func (l *lostResponse) Adopt(
	ctx context.Context, q dispatcher.AdoptQuery, runs []dispatcher.Adoptable,
) (held []run.HeldRun, err error) {
	held, err = l.Store.Adopt(ctx, q, runs)
	l.adopt.Do(func() { held, err = nil, errLost })
	return held, err
}

func TestRunsWonWithALostResponseAreExecutedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s Store) Store { return &lostResponse{Store: s} })
	r.declare("claimed", "rate(5s)", nil)
	r.declare("missed", "rate(5s)", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(time.Second) })
	if _, err := r.store.RequestRun(t.Context(), "app", "claimed", nil, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(7 * time.Second)
	if err := errors.Join(r.chores.Round(t.Context(), r.now), r.adopt(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.poll(0)
	r.claimOnce(t.Context(), r.now)
	want := []string{"-7s manual succeeded #1", "-2s catch_up succeeded #1", "-2s schedule succeeded #1"}
	got := offsets(r, r.settled())
	slices.Sort(got[1:])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if len(r.calls) != 3 {
		t.Errorf("%d calls were made, want one for each run", len(r.calls))
	}
}

// stoppedNode is a store that stops its node when the node asks for runs. A call with an ended context then has no
// effect.
type stoppedNode struct {
	Store
	stop context.CancelFunc
}

func (s *stoppedNode) Claim(ctx context.Context, b dispatcher.ClaimBatch) ([]run.HeldRun, error) {
	s.stop()
	return s.Store.Claim(ctx, b)
}

func (s *stoppedNode) Settle(ctx context.Context, b dispatcher.SettleBatch) ([]run.HeldRun, error) {
	s.stop()
	return s.Store.Settle(ctx, b)
}

func (s *stoppedNode) Adopt(ctx context.Context, q dispatcher.AdoptQuery, runs []dispatcher.Adoptable) ([]run.HeldRun, error) {
	s.stop()
	return s.Store.Adopt(ctx, q, runs)
}

// A statement that is cut off may still be committed later, and its runs are lost with the node.
func TestShutdownWaitsForStatementsThatWinRuns(t *testing.T) {
	t.Parallel()
	s := &stoppedNode{}
	r := newRig(t, func(inner Store) Store { s.Store = inner; return s })
	r.declare("claimed", "rate(5s)", nil)
	r.declare("missed", "rate(5s)", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(time.Second) })
	if _, err := r.store.RequestRun(t.Context(), "app", "claimed", nil, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(7 * time.Second)
	for step, do := range map[string]func(context.Context){
		"settle": func(ctx context.Context) { _ = r.settle(ctx, r.now) }, // its later reads are cut off
		"adopt":  func(ctx context.Context) { _ = r.adopt(ctx) },
		"claim": func(ctx context.Context) {
			r.poll(0)
			r.claimOnce(ctx, r.now)
		},
	} {
		ctx, stop := context.WithCancel(t.Context())
		s.stop = stop
		if do(ctx); ctx.Err() == nil {
			t.Errorf("%s asked for no runs", step)
		}
	}
	want := []string{"-7s manual succeeded #1", "-2s catch_up succeeded #1", "-2s schedule succeeded #1"}
	got := offsets(r, r.settled())
	slices.Sort(got[1:])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestRunUnknownToItsNodeIsReclaimedAfterAnInterval(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("unknown", "rate(1s)", nil)
	r.atMostOnce("unknown") // the store knows the claims that it has made for its node
	due := r.due(time.Second)
	next := due.AdvanceTo(r.now.Add(time.Hour), r.now.Add(time.Hour))
	claim := dispatcher.ClaimBatch{Node: r.fleet.ID(), Token: 7, Advances: []dispatcher.Advance{next}}
	if held, err := r.store.Claim(t.Context(), claim); err != nil || len(held) != 1 {
		t.Fatalf("claim = %v, %v, want one run", held, err)
	}
	for round, want := range []int{0, 0, 1} {
		if err := r.chores.Reclaim(t.Context(), r.now.Add(time.Duration(round)*r.opts.Handler/2)); err != nil {
			t.Fatal(err)
		}
		if r.settled(); len(r.calls) != want {
			t.Errorf("%d calls after round %d, want %d", len(r.calls), round+1, want)
		}
	}
	for round := range 2 {
		if err := r.chores.Reclaim(t.Context(), r.now.Add(time.Duration(2+round)*r.opts.Handler)); err != nil {
			t.Fatal(err)
		}
	}
	if r.settled(); len(r.calls) != 1 {
		t.Errorf("%d calls after the run was recorded, want no more", len(r.calls))
	}
}

// The node knows the job from an earlier run, and hears nothing of the deletion. The run may have moved with its app, and
// be attempted in another installation.
func TestRunOfADeletedJobEndsCancelledWithTheReason(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("gone", "rate(1h)", nil)
	change := input.Change{Actor: "test", Now: r.now}
	request := func() {
		t.Helper()
		if _, err := r.store.RequestRun(t.Context(), "app", "gone", nil, change); err != nil {
			t.Fatal(err)
		}
	}
	request()
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found := r.settled(); len(found) != 1 || found[0].State != run.Succeeded {
		t.Fatalf("runs = %+v, want one that succeeded", found)
	}
	request()
	if err := errors.Join(r.store.DeleteJob(t.Context(), "app", "gone", change), r.adopt(t.Context())); err != nil {
		t.Fatal(err)
	}
	found := r.settled()
	if len(found) != 2 || found[1].State != run.Cancelled || found[1].Class != run.ClassJobDeleted || len(r.calls) != 1 {
		t.Errorf("runs = %+v after %d calls, want the latter cancelled with class job_deleted and no call", found, len(r.calls))
	}
}

func TestNodeDeclaredDeadRegistersAgainAndDropsItsOldRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	old := r.fleet.ID()
	if err := r.store.Deregister(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := r.heartbeatOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.fleet.ID() == old || !r.fleet.Active() {
		t.Fatalf("node %s is active: %v, want a new, active incarnation of %s", r.fleet.ID(), r.fleet.Active(), old)
	}
	stale := plan.Held{Node: old, HeldRun: run.HeldRun{Key: run.Key{ScheduledAt: r.now}}}
	if r.waitUntilDue(t.Context(), stale, nil) {
		t.Error("a run of the old incarnation was begun, though another node has it now")
	}
}

func TestSecondAttemptIsNotSentTwiceWhenTheFirstEndsLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	began, end := make(chan int, 8), map[int]chan struct{}{1: make(chan struct{}), 2: make(chan struct{})}
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		began <- call.Attempt
		<-end[call.Attempt]
		return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
	}
	ended := make(chan struct{}, 2)
	r.opts.OnOutcome = func(target.Call, run.Outcome) { ended <- struct{}{} }
	r.declare("slow", "rate(1h)", nil)
	change := input.Change{Actor: "test"}
	one, err := r.store.RequestRun(t.Context(), "app", "slow", nil, change)
	if err != nil {
		t.Fatal(err)
	}
	adopt := func(attempt int) {
		if err := r.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-began; got != attempt {
			t.Fatalf("attempt %d began, want %d", got, attempt)
		}
	}
	adopt(1)
	for _, request := range []func(context.Context, string, input.Change) (run.Run, error){r.store.CancelRun, r.store.RetryRun} {
		if _, err := request(t.Context(), one.ID, change); err != nil {
			t.Fatal(err)
		}
	}
	adopt(2)
	close(end[1])
	<-ended
	r.recorder.drain(patience)
	for round := range 3 {
		if err := r.chores.Reclaim(t.Context(), r.now.Add(time.Duration(round)*r.opts.Handler)); err != nil {
			t.Fatal(err)
		}
	}
	close(end[2])
	if found := r.settled(); len(r.calls) != 2 || found[0].State != run.Succeeded || found[0].Attempt != 2 {
		t.Errorf("%d calls, run %+v, want two calls and the run succeeded at the second attempt", len(r.calls), found)
	}
}

func TestSettledMisfireWakesThePoll(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("dense", "* * * * * ?", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(time.Second) })
	if err := r.settle(t.Context(), r.now.Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.wakePoll:
	default:
		t.Error("the poll was not woken, so the next fires may be missed before it")
	}
}

func TestNextFireGoesToTheNodePreferredNow(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("moving", "rate(1s)", nil)
	if r.poll(5*time.Second) != 1 {
		t.Fatal("poll did not plan the fire")
	}
	// The preferred node for the trigger joins after this one has planned the fire.
	own := r.fleet.ID()
	for other := run.NodeID(1); r.fleet.Prefers(dispatcher.DueTrigger{ID: run.TriggerID("app", "moving", "only")}); {
		live := []dispatcher.Node{{ID: own}, {ID: other}}
		r.fleet.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
		other = math.MaxInt64
	}
	if n := r.claimOnce(t.Context(), r.now.Add(time.Second)); n != 1 {
		t.Fatalf("%d fires were tried, want the planned one", n)
	}
	if head, ok := r.plan.Timeline.Head(); ok {
		t.Errorf("the fire of %s is planned here, want it left to the other node", head)
	}
}

func TestLostFireWakesThePoll(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("lost", "rate(1s)", nil)
	r.poll(5 * time.Second)
	if _, err := r.store.PauseJob(t.Context(), "app", "lost", "", true, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	if !r.plan.LostFires.Load() {
		t.Error("the next sweep will not wake the poll to look for the lost fire")
	}
}

// countedClaims counts the fires that a node asks for.
type countedClaims struct {
	Store
	asked int
}

func (c *countedClaims) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]run.HeldRun, error) {
	c.asked += len(batch.Advances)
	return c.Store.Claim(ctx, batch)
}

// A node may plan a fire and then be paused, frozen or busy until the fire counts as missed. It is settled by the policy
// then, as if no node had planned it.
func TestFireThatWasMissedSinceItWasPlannedIsNotClaimed(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]int{time.Hour: 1, time.Hour + time.Millisecond: 0} {
		var counted *countedClaims
		r := newRig(t, func(s Store) Store {
			counted = &countedClaims{Store: s}
			return counted
		})
		r.declare("late", "rate(1s)", nil)
		if r.poll(5*time.Second) != 1 {
			t.Fatal("poll did not plan the fire")
		}
		due, _ := r.plan.Timeline.Head()
		if r.claimOnce(t.Context(), due.Add(late)); counted.asked != want {
			t.Errorf("%s after it was due, %d fires were asked for, want %d", late, counted.asked, want)
		}
		if held := r.pool.Held(); held != want {
			t.Errorf("%s after it was due, %d places of the pool are taken, want %d", late, held, want)
		}
	}
}

func TestPausedNodeClaimsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("idle", "rate(1s)", nil)
	if r.poll(5*time.Second) != 1 {
		t.Fatal("poll did not plan the fire")
	}
	if _, err := r.store.SetNodeState(t.Context(), r.fleet.ID(), dispatcher.NodePaused, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	// The claim itself checks it, even before the node knows.
	r.claimOnce(t.Context(), r.now.Add(3*time.Second))
	if found := r.settled(); len(found) != 0 {
		t.Errorf("a paused node made runs: %+v", found)
	}
	if err := r.heartbeatOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.poll(5 * time.Second); n != 0 || r.fleet.Active() {
		t.Errorf("a paused node planned %d fires", n)
	}
}
