package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// claimTests test won fires.
func claimTests() tests {
	return tests{
		"a fire without its job is quarantined":                 testAdvanceWithoutJob,
		"a claim advances the trigger and inserts its run":      testClaim,
		"concurrent claims win a fire once":                     testClaimRace,
		"an outdated claim wins no run":                         testLostClaims,
		"a claim is never early by the database's clock":        testClaimByDatabaseTime,
		"claims agree with a model":                             testClaimModel,
		"a claim uses one time throughout":                      testClaimAsTimePasses,
		"a settlement uses one time throughout":                 testSettleAsTimePasses,
		"a node finds the runs that it holds":                   testHeld,
		"a settlement records misfires and inserts catch-ups":   testSettle,
		"a cancelled attempt began at its time at the earliest": testCancelledAhead,
		"a lost attempt began at its time at the earliest":      testLostAhead,
	}
}

// claimAhead claims a fire ahead. Its node does not record when the attempt begins.
func (f *wing) claimAhead() run.HeldRun {
	f.Helper()
	f.PutEvery("ahead", time.Minute)
	next := f.NextAdvance()
	won, err := f.Claim(f.Context(), dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken(), Advances: []dispatcher.Advance{next},
		Now: next.Next.Add(-50 * time.Millisecond), Lead: 100 * time.Millisecond})
	f.Must(won, err)
	return won[0]
}

func (f *wing) beganAsScheduled(held run.HeldRun) {
	f.Helper()
	if attempts := f.RunOf(held.Key).Attempts; len(attempts) != 1 || !attempts[0].StartedAt.Equal(held.ScheduledAt) {
		f.Errorf("attempts = %+v, want one that began at %s", attempts, held.ScheduledAt)
	}
}

func testCancelledAhead(_ *testing.T, f *wing) {
	held := f.claimAhead()
	f.Must(f.CancelRun(f.Context(), held.String(), fixture.At(held.ScheduledAt.Add(time.Second))))
	f.beganAsScheduled(held)
}

func testLostAhead(_ *testing.T, f *wing) {
	held := f.claimAhead()
	if f.both() {
		f.Must(f.Deregister(f.Context(), fixture.NodeA))
	}
	f.Must(f.Adopt(f.Context(), dispatcher.AdoptQuery{Node: fixture.NodeB, Token: fixture.Token2, Limit: 10, Now: fixture.Minutes(9)}))
	f.beganAsScheduled(held)
}

// testAdvanceWithoutJob claims and settles fires without their job. Their triggers are quarantined, and the other fire
// of the batch is claimed.
func testAdvanceWithoutJob(t *testing.T, f *wing) {
	for _, name := range []string{"claimed", "settled", "whole"} {
		f.Put(fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))}), fixture.T0)
	}
	without := map[string]dispatcher.Advance{}
	for _, due := range f.DueAll(fixture.Minutes(1)) {
		one := f.Advance(due)
		for _, name := range []string{"claimed", "settled", "whole"} {
			if one.JobID == run.JobID("shop", name) {
				without[name] = one
			}
		}
	}
	claimed, settled, whole := without["claimed"], without["settled"], without["whole"]
	claimed.JobID, settled.JobID = 0, 0
	held, err := f.Claim(t.Context(), dispatcher.ClaimBatch{Node: fixture.NodeA, Token: fixture.Token1, Now: fixture.Minutes(1),
		Advances: []dispatcher.Advance{claimed, whole}})
	f.Must(err)
	if len(held) != 1 || held[0].JobID != whole.JobID {
		t.Errorf("claimed %v, want 1 run of job %d", held, whole.JobID)
	}
	skip := dispatcher.Settlement{Advance: settled, To: settled.Next, Count: 1, Decision: dispatcher.DecisionSkip, Reason: "late"}
	_, err = f.Settle(t.Context(), dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token1, Now: fixture.Minutes(2),
		Settlements: []dispatcher.Settlement{skip}})
	f.Must(err)
	for name, advance := range map[string]dispatcher.Advance{"claimed": claimed, "settled": settled} {
		job, err := f.Job(t.Context(), "shop", name)
		f.Must(err)
		if tick := job.Triggers["tick"]; tick.State != dispatcher.TriggerError ||
			!strings.Contains(tick.Error, fmt.Sprintf("trigger %d: JobID is 0", advance.TriggerID)) {
			t.Errorf("%s: the trigger is %s with error %q, want one that says that JobID is 0", name, tick.State, tick.Error)
		}
	}
}

func testClaim(t *testing.T, f *wing) {
	trigger := fixture.Every(time.Minute, fixture.T0.Add(time.Minute))
	trigger.RepeatCount = 2
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": trigger}), fixture.T0)
	id := run.TriggerID("shop", "tick", "tick")

	// The first fire has no previous one.
	first := f.NextAdvance()
	if !first.Prev.IsZero() {
		t.Fatalf("the first fire has a previous one at %s", first.Prev)
	}
	want := run.HeldRun{
		Key:   run.Key{TriggerID: id, ScheduledAt: fixture.T0.Add(time.Minute), Kind: run.KindSchedule},
		JobID: run.JobID("shop", "tick"), Revision: 1, Token: fixture.Token1, Attempt: 1, ClaimedAt: fixture.T0.Add(time.Minute),
	}
	if diff := cmp.Diff([]run.HeldRun{want}, f.ClaimAll(first)); diff != "" {
		t.Error("first claim (-want +got):\n" + diff)
	}
	r := f.RunOf(want.Key)
	installation, err := f.Installation(t.Context())
	f.Must(err)
	node, claimedAt := fixture.NodeA, fixture.T0.Add(time.Minute)
	if diff := cmp.Diff(run.Run{
		ID: want.String(), App: "shop", Job: "tick", Trigger: "tick", Kind: run.KindSchedule, ScheduledAt: want.ScheduledAt,
		Revision: 1, State: run.Claimed, Attempt: 1, Node: &node, ClaimedAt: &claimedAt,
		TraceID: run.TraceOf(installation, want.String()).String(),
		EventID: f.Prepared(want.JobID).EventID(installation, "tick", want.ScheduledAt, run.KindSchedule),
	}, r); diff != "" {
		t.Error("the run (-want +got):\n" + diff)
	}

	// The last fire completes the trigger and still yields its run.
	last := f.NextAdvance()
	if !last.Then.IsZero() || !last.Prev.Equal(first.Next) {
		t.Fatalf("the last fire: got %+v, want one after %s and none after it", last, first.Next)
	}
	if held := f.ClaimAll(last); len(held) != 1 {
		t.Fatalf("the last fire: %d runs, want 1", len(held))
	}
	j, err := f.Job(t.Context(), "shop", "tick")
	f.Must(err)
	if got := j.Triggers["tick"]; got.State != dispatcher.TriggerComplete || got.NextFireTime != nil || !got.PrevFireTime.Equal(last.Next) {
		t.Errorf("after the last fire: got %+v, want complete", got)
	}
	if len(f.DueAll(fixture.T0.Add(48*time.Hour))) != 0 {
		t.Error("after the last fire triggers are due")
	}

	if held, err := f.Claim(t.Context(), dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken()}); err != nil || len(held) != 0 {
		t.Errorf("empty claim: got %v, %v", held, err)
	}
}

// The poll reads the time limit of an attempt, even after the job was changed.
func testDueTimeout(t *testing.T, f *wing) {
	j := fixture.Job("report", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	for _, timeout := range []input.Duration{target.DefaultTimeout, input.Duration(5 * time.Minute)} {
		j.Target.Webhook.Timeout = timeout
		f.Put(j, fixture.T0)
		if due := f.DueAll(fixture.T0.Add(time.Hour)); len(due) != 1 || due[0].Timeout != timeout.Std() {
			t.Errorf("timeout %s: got %+v, want one trigger with it", timeout, due)
		}
	}
}

// Exactly one of any number of claimers wins a fire.
func testClaimRace(t *testing.T, f *wing) {
	const jobs, claimers = 20, 4
	triggers := map[string]dispatcher.Trigger{}
	for i := range jobs {
		triggers[string(rune('a'+i))] = fixture.Every(time.Minute, fixture.T0.Add(time.Minute))
	}
	f.Put(fixture.Job("tick", triggers), fixture.T0)
	for round := range 3 {
		var advances []dispatcher.Advance
		for i, d := range f.DueAll(fixture.T0.Add(time.Hour)) {
			a := f.Advance(d)
			a.Live = i%3 == 0
			advances = append(advances, a)
		}
		var wg sync.WaitGroup
		won := make([][]run.HeldRun, claimers)
		for i := range claimers {
			wg.Go(func() {
				mine := slices.Clone(advances)
				if i%2 == 1 {
					slices.Reverse(mine)
				}
				var err error
				won[i], err = f.Claim(t.Context(), dispatcher.ClaimBatch{Node: fixture.NodeA, Token: run.Token(100*round + i + 1),
					Advances: mine, Now: advances[0].Next})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		seen := map[run.Key]int{}
		for i, runs := range won {
			for _, r := range runs {
				seen[r.Key]++
				if r.Token != run.Token(100*round+i+1) {
					t.Errorf("claimer %d holds a run of token %d", i+1, r.Token)
				}
			}
		}
		if len(seen) != jobs {
			t.Errorf("%d fires were won, want %d", len(seen), jobs)
		}
		for key, times := range seen {
			if times != 1 {
				t.Errorf("fire %s was won %d times", key, times)
			}
		}
	}
}

// Changes since the poll make a claim lose, without an error.
func testLostClaims(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	lose := func(what string, a dispatcher.Advance, before, after func()) {
		t.Helper()
		before()
		if held := f.ClaimAll(a); len(held) != 0 {
			t.Errorf("%s: the claim won", what)
		}
		after()
	}
	nothing := func() {}
	pause := func(trigger string, paused bool) func() {
		return func() { f.Must(f.PauseJob(ctx, "shop", "tick", trigger, paused, fixture.At(fixture.T0))) }
	}
	lose("job paused", f.NextAdvance(), pause("", true), pause("", false))
	lose("trigger paused", f.NextAdvance(), pause("tick", true), pause("tick", false))
	lose("paused and resumed", f.NextAdvance(), func() { pause("", true)(); pause("", false)() }, nothing)
	lose("edited", f.NextAdvance(), func() { f.EditEvery("tick", time.Minute) }, nothing)
	enable := func(enabled bool) func() {
		return func() {
			f.Must(f.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: enabled}}, fixture.At(fixture.T0)))
		}
	}
	lose("app disabled", f.NextAdvance(), enable(false), enable(true))
	state := func(s dispatcher.NodeState) func() {
		return func() { f.Must(f.SetNodeState(ctx, fixture.NodeA, s, fixture.At(fixture.T0))) }
	}
	lose("node paused", f.NextAdvance(), state(dispatcher.NodePaused), state(dispatcher.NodeActive))
	lose("node draining", f.NextAdvance(), state(dispatcher.NodeDraining), state(dispatcher.NodeActive))
	wrong := f.NextAdvance()
	wrong.Prev = fixture.T0
	lose("another previous fire", wrong, nothing, nothing)
	wrong = f.NextAdvance()
	wrong.Next = wrong.Next.Add(time.Millisecond)
	lose("another next fire", wrong, nothing, nothing)

	a := f.NextAdvance()
	early := dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken(), Lead: 50 * time.Millisecond,
		Advances: []dispatcher.Advance{a}, Now: a.Next.Add(-51 * time.Millisecond)}
	if held, err := f.Claim(ctx, early); err != nil || len(held) != 0 {
		t.Errorf("too early: got %v, %v, want none", held, err)
	}
	early.Now = a.Next.Add(-50 * time.Millisecond)
	if held, err := f.Claim(ctx, early); err != nil || len(held) != 1 {
		t.Errorf("within the lead: got %v, %v, want 1", held, err)
	}
	lose("claimed", a, nothing, nothing)
	lose("deleted", f.NextAdvance(), func() { f.Must(f.DeleteJob(ctx, "shop", "tick", fixture.At(fixture.T0))) }, nothing)
	// Declared again at a time before that fire: it has its run already and gets no second one.
	f.PutEvery("tick", time.Minute)
	if again := f.NextAdvance(); !again.Next.After(a.Next) {
		t.Errorf("declared again, it fires at %s, want it past %s, which has its run", again.Next, a.Next)
	}
}

func testClaimByDatabaseTime(t *testing.T, f *wing) {
	ctx := t.Context()
	now, err := f.Clock(ctx)
	f.Must(err)
	start := now.Truncate(time.Second).Add(time.Hour)
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Hour, start)}), time.Time{})
	due, err := f.Due(ctx, dispatcher.DueQuery{Until: start, Limit: 10})
	f.Must(err)
	if len(due) != 1 {
		t.Fatalf("%d triggers are due within the hour, want 1", len(due))
	}
	batch := dispatcher.ClaimBatch{Node: fixture.NodeA, Token: fixture.Token1, Advances: []dispatcher.Advance{f.Advance(due[0])},
		Lead: 30 * time.Minute}
	if held, err := f.Claim(ctx, batch); err != nil || len(held) != 0 {
		t.Errorf("half an hour early: got %v, %v, want none", held, err)
	}
	batch.Lead = time.Hour
	held, err := f.Claim(ctx, batch)
	if err != nil || len(held) != 1 {
		t.Fatalf("within the lead: got %v, %v, want 1", held, err)
	}
	if off := f.RunOf(held[0].Key).ClaimedAt.Sub(now); off < 0 || off > time.Minute {
		t.Errorf("claimed %s after the clock was read", off)
	}
}

func testHeld(t *testing.T, f *wing) {
	ctx := t.Context()
	held := f.ClaimOne("tick")
	got, err := f.Held(ctx, fixture.NodeA, fixture.Token1)
	f.Must(err)
	if diff := cmp.Diff([]run.HeldRun{held}, got); diff != "" {
		t.Error("under its token (-want +got):\n" + diff)
	}
	if got, err = f.Held(ctx, fixture.NodeA, fixture.Token2); err != nil || len(got) != 0 {
		t.Errorf("under another token: got %v, %v, want none", got, err)
	}
	if got, err = f.Held(ctx, fixture.NodeA, 0); err != nil || len(got) != 0 {
		t.Errorf("under any token: got %v, %v, want none, because the response to the claim came", got, err)
	}
	if got, err = f.Held(ctx, fixture.NodeB, fixture.Token1); err != nil || len(got) != 0 {
		t.Errorf("by another node: got %v, %v, want none", got, err)
	}
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, fixture.Outcome(fixture.T0))}))
	if got, err = f.Held(ctx, fixture.NodeA, fixture.Token1); err != nil || len(got) != 0 {
		t.Errorf("recorded: got %v, %v, want none", got, err)
	}
}

func testSettle(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	now := fixture.T0.Add(10*time.Minute + time.Second)
	a := f.NextAdvance()
	a.Then = fixture.T0.Add(11 * time.Minute)
	s := dispatcher.Settlement{
		Advance: a, To: fixture.T0.Add(10 * time.Minute), Count: 10, Decision: dispatcher.DecisionFireOnce,
		Reason: "nobody was there", CatchUp: fixture.T0.Add(10 * time.Minute),
	}
	batch := dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token1, Settlements: []dispatcher.Settlement{s}, Now: now}
	held, err := f.Settle(ctx, batch)
	f.Must(err)
	key := run.Key{TriggerID: a.TriggerID, ScheduledAt: s.CatchUp, Kind: run.KindCatchUp}
	if diff := cmp.Diff([]run.HeldRun{{Key: key, JobID: run.JobID("shop", "tick"), Revision: 1,
		Token: fixture.Token1, Attempt: 1, ClaimedAt: now, Live: true}}, held); diff != "" {
		t.Error("catch-up run (-want +got):\n" + diff)
	}
	if held, err = f.Settle(ctx, batch); err != nil || len(held) != 0 {
		t.Errorf("settled twice: got %v, %v, want none", held, err)
	}
	next := f.NextAdvance()
	if !next.Next.Equal(a.Then) || !next.Prev.Equal(a.Next) {
		t.Errorf("after settling: next %s and previous %s, want %s and %s", next.Next, next.Prev, a.Then, a.Next)
	}

	// A decision to skip makes no run; a paused trigger is not settled.
	skip := dispatcher.Settlement{Advance: next, To: next.Next, Count: 1, Decision: dispatcher.DecisionSkip, Reason: "late"}
	batch.Settlements, batch.Now = []dispatcher.Settlement{skip}, next.Next.Add(time.Hour)
	f.Must(f.PauseJob(ctx, "shop", "tick", "", true, fixture.At(fixture.T0)))
	f.Must(f.Settle(ctx, batch))
	f.Must(f.PauseJob(ctx, "shop", "tick", "", false, fixture.At(fixture.T0)))
	skip.Advance = f.NextAdvance()
	batch.Settlements = []dispatcher.Settlement{skip}
	if held, err = f.Settle(ctx, batch); err != nil || len(held) != 0 {
		t.Errorf("skip: got runs %v, %v, want none", held, err)
	}
	misfires, err := f.Misfires(ctx, dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 10}})
	f.Must(err)
	node := fixture.NodeA
	job, trigger := run.JobID("shop", "tick"), run.TriggerID("shop", "tick", "tick")
	want := []dispatcher.Misfire{
		{App: "shop", Job: "tick", Trigger: "tick", JobID: job, TriggerID: trigger, From: next.Next, To: next.Next, Count: 1,
			Decision: dispatcher.DecisionSkip, Reason: "late", Node: &node, DecidedAt: batch.Now},
		{App: "shop", Job: "tick", Trigger: "tick", JobID: job, TriggerID: trigger, From: a.Next, To: s.To, Count: 10,
			Decision: dispatcher.DecisionFireOnce, Reason: s.Reason, Run: key.String(), Node: &node, DecidedAt: now},
	}
	if diff := cmp.Diff(want, misfires); diff != "" {
		t.Error("misfires (-want +got):\n" + diff)
	}
}

func testQuarantine(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	a := f.NextAdvance()
	f.Must(f.Quarantine(ctx, a.TriggerID, a.Revision+1, "of another revision"))
	if len(f.DueAll(a.Next)) != 1 {
		t.Error("quarantined at another revision")
	}
	f.Must(f.Quarantine(ctx, a.TriggerID, a.Revision, "unreadable"))
	j, err := f.Job(ctx, "shop", "tick")
	f.Must(err)
	if got := j.Triggers["tick"]; got.State != dispatcher.TriggerError || got.Error != "unreadable" || j.State != dispatcher.JobError {
		t.Errorf("in quarantine: got %+v, job %s", got, j.State)
	}
	if held := f.ClaimAll(a); len(held) != 0 || len(f.DueAll(a.Next)) != 0 {
		t.Error("a trigger in quarantine fires")
	}
	j = f.PutEvery("tick", time.Minute)
	if got := j.Triggers["tick"]; got.State != dispatcher.TriggerWaiting || got.Error != "" {
		t.Errorf("declared again: got %+v, want waiting", got)
	}
}

// model is the expected state of a trigger: the claimed or settled instants, in order.
type model struct {
	revision  int64
	prev      time.Time
	next      time.Time
	accounted int
	paused    bool
}

// testClaimModel runs claims, settlements, pauses and stale claims in random order, and compares the trigger with a
// model after each.
func testClaimModel(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	id := run.TriggerID("shop", "tick", "tick")
	m := model{revision: 1, next: fixture.T0.Add(time.Minute)}
	rapid.Check(t, func(r *rapid.T) {
		a := dispatcher.Advance{
			TriggerID: id, JobID: run.JobID("shop", "tick"), Revision: m.revision,
			Prev: m.prev, Next: m.next, Then: m.next.Add(time.Minute), Live: rapid.Bool().Draw(r, "live"),
		}
		valid := !m.paused
		switch rapid.IntRange(0, 5).Draw(r, "staleness") {
		case 0:
			a.Revision--
			valid = false
		case 1:
			a.Prev, a.Next = m.prev.Add(-time.Minute), m.prev
			valid = false
		}
		token := f.NextToken()
		var won []run.HeldRun
		var err error
		switch rapid.SampledFrom([]string{"claim", "claim", "settle", "pause", "resume"}).Draw(r, "step") {
		case "claim":
			won, err = f.Claim(ctx, dispatcher.ClaimBatch{Node: fixture.NodeA, Token: token, Advances: []dispatcher.Advance{a}, Now: a.Next})
		case "settle":
			won, err = f.Settle(ctx, dispatcher.SettleBatch{Node: fixture.NodeA, Token: token, Now: a.Next, Settlements: []dispatcher.Settlement{{
				Advance: a, To: a.Next, Count: 1, Decision: dispatcher.DecisionFireOnce, CatchUp: a.Next,
			}}})
		case "pause":
			_, err = f.PauseJob(ctx, "shop", "tick", "", true, fixture.At(fixture.T0))
			m.pause(true)
			valid = false
		case "resume":
			_, err = f.PauseJob(ctx, "shop", "tick", "", false, fixture.At(fixture.T0))
			m.pause(false)
			valid = false
		}
		if err != nil {
			r.Fatal(err)
		}
		if valid != (len(won) == 1) {
			r.Fatalf("%d runs were won, want a win: %t", len(won), valid)
		}
		if valid {
			m.prev, m.next, m.accounted = a.Next, a.Then, m.accounted+1
			if won[0].Token != token || !won[0].ScheduledAt.Equal(a.Next) {
				r.Fatalf("won %+v, want the fire of %s", won[0], a.Next)
			}
		}
		compare(r, f, m)
	})
}

// pause is a change unless the job is already in that state.
func (m *model) pause(paused bool) {
	if m.paused != paused {
		m.paused, m.revision = paused, m.revision+1
	}
}

func compare(r *rapid.T, f *wing, m model) {
	j, err := f.Job(f.Context(), "shop", "tick")
	if err != nil {
		r.Fatal(err)
	}
	got := j.Triggers["tick"]
	prev := time.Time{}
	if got.PrevFireTime != nil {
		prev = *got.PrevFireTime
	}
	if j.Revision != m.revision || !prev.Equal(m.prev) || !got.NextFireTime.Equal(m.next) || j.Paused != m.paused {
		r.Fatalf("got revision %d, previous %s, next %s, paused %t, want %+v", j.Revision, prev, got.NextFireTime, j.Paused, m)
	}
	runs, err := f.Runs(f.Context(), dispatcher.RunQuery{App: "shop", Job: "tick", Page: input.Page{Limit: 1000}})
	if err != nil {
		r.Fatal(err)
	}
	if len(runs) != m.accounted {
		r.Fatalf("%d runs, want %d", len(runs), m.accounted)
	}
}
