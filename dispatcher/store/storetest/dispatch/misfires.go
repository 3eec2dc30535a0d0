package dispatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// misfireTests test the policies for misfires.
func misfireTests() tests {
	return tests{
		"missed fires are settled one by one":            testSettleOneByOne,
		"misfire policies read back as written":          testMisfirePolicies,
		"a skipped fixed delay counts from the decision": testSkippedDelays,
	}
}

// A fire that is caught up individually has a run of kind schedule and no misfire; a second attempt to do so comes too
// late, whether by a settlement or by a claim.
func testSettleOneByOne(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	now := fixture.T0.Add(10 * time.Minute)
	a := f.NextAdvance()
	a.ThenDue = now.Add(time.Second)
	batch := dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token1, Now: now, Settlements: []dispatcher.Settlement{{
		Advance: a, To: a.Next, Count: 1, Decision: dispatcher.DecisionFireAll, Reason: "late", CatchUp: a.Next,
	}}}
	held, err := f.Settle(ctx, batch)
	f.Must(err)
	key := run.Key{TriggerID: a.TriggerID, ScheduledAt: a.Next, Kind: run.KindSchedule}
	if diff := cmp.Diff([]run.HeldRun{{Key: key, JobID: run.JobID("shop", "tick"), Revision: 1,
		Token: fixture.Token1, Attempt: 1, ClaimedAt: now, Live: true}}, held); diff != "" {
		t.Error("run (-want +got):\n" + diff)
	}
	if again, err := f.Settle(ctx, batch); err != nil || len(again) != 0 {
		t.Errorf("settled twice: got %v, %v, want none", again, err)
	}
	if again := f.ClaimAll(a); len(again) != 0 {
		t.Errorf("claimed after it was settled: got %v, want none", again)
	}
	if misfires, err := f.Misfires(ctx, dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 10}}); err != nil || len(misfires) != 0 {
		t.Errorf("misfires = %v, %v, want none", misfires, err)
	}
	// The next fire is due later than its instant, so it is late only after that.
	next := f.NextAdvance()
	if !next.Next.Equal(a.Then) {
		t.Errorf("next is %s, want %s", next.Next, a.Then)
	}
	for _, tt := range []struct {
		now  time.Time
		want int
	}{{a.ThenDue.Add(dispatcher.DefaultMisfireAfter.Std()), 0}, {a.ThenDue.Add(dispatcher.DefaultMisfireAfter.Std() + time.Millisecond), 1}} {
		overdue, err := f.Due(ctx, dispatcher.DueQuery{Until: tt.now, Now: tt.now, Overdue: true, Limit: 5})
		f.Must(err)
		if len(overdue) != tt.want {
			t.Errorf("overdue at %v: got %d, want %d", tt.now, len(overdue), tt.want)
		}
	}
}

// The window reads the policy of a trigger, and a catch-up run shows the fires that it stands for.
func testMisfirePolicies(t *testing.T, f *wing) {
	ctx := t.Context()
	for _, policy := range []dispatcher.MisfirePolicy{"", dispatcher.FireOnce, dispatcher.FireAll, dispatcher.Skip} {
		trigger := fixture.Every(time.Minute, fixture.T0.Add(time.Minute))
		trigger.MisfirePolicy, trigger.CatchUpWindow = policy, input.Duration(time.Hour)
		if policy == "" {
			trigger.CatchUpWindow = 0
		}
		f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": trigger}), fixture.T0)
		wantPolicy, wantWindow := policy, time.Hour
		if policy == "" {
			wantPolicy, wantWindow = dispatcher.FireOnce, dispatcher.MaxCatchUpWindow.Std()
		}
		due := f.DueAll(fixture.T0.Add(time.Hour))
		if len(due) != 1 {
			t.Fatalf("policy %q: %d triggers are due, want one", policy, len(due))
		}
		if v := f.Version(due[0].ID); v.MisfirePolicy != wantPolicy || v.CatchUpWindow != wantWindow {
			t.Errorf("policy %q: due %+v, want %s within %s", policy, v, wantPolicy, wantWindow)
		}
	}
	a := f.NextAdvance()
	a.Then = fixture.T0.Add(6 * time.Minute)
	held, err := f.Settle(ctx, dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token1, Now: fixture.T0.Add(5 * time.Minute),
		Settlements: []dispatcher.Settlement{{
			Advance: a, To: fixture.T0.Add(5 * time.Minute), Count: 5, Decision: dispatcher.DecisionFireOnce, Reason: "late",
			CatchUp: fixture.T0.Add(5 * time.Minute),
		}}})
	f.Must(err)
	own := f.ClaimAll(f.NextAdvance())
	if len(held) != 1 || len(own) != 1 {
		t.Fatalf("got %d catch-up runs and %d of the fire after them, want one each", len(held), len(own))
	}
	want := &run.MissedRange{From: fixture.T0.Add(time.Minute), To: fixture.T0.Add(5 * time.Minute), Count: 5}
	if diff := cmp.Diff(want, f.RunOf(held[0].Key).Missed); diff != "" {
		t.Error("what the catch-up stands for (-want +got):\n" + diff)
	}
	if got := f.RunOf(own[0].Key).Missed; got != nil {
		t.Errorf("a fire on time stands for %+v, want nothing but itself", got)
	}
	listed, err := f.Runs(ctx, dispatcher.RunQuery{App: "shop", Job: "tick", Page: input.Page{Limit: 10}})
	f.Must(err)
	if len(listed) != 2 || listed[0].Missed != nil || !cmp.Equal(want, listed[1].Missed) {
		t.Errorf("listed: %+v, want the range with the catch-up only", listed)
	}
}

// No run of a skipped fixed delay ends, so its next fire counts from the decision to skip.
func testSkippedDelays(t *testing.T, f *wing) {
	ctx := t.Context()
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{
			Schedule:     dispatcher.Schedule{Expression: "delay(1m)"},
			MisfireAfter: dispatcher.DefaultMisfireAfter, MisfirePolicy: dispatcher.Skip, Enabled: true,
		},
	}}), fixture.T0)
	a := f.NextAdvance()
	a.Then = time.Time{}
	decided := a.Next.Add(time.Hour)
	f.Must(f.Settle(ctx, dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token1, Now: decided,
		Settlements: []dispatcher.Settlement{{
			Advance: a, To: a.Next, Count: 1, Decision: dispatcher.DecisionSkip, Reason: "late",
		}}}))
	for _, ids := range [][]int64{nil, {a.TriggerID}} {
		ended, err := f.EndedDelays(ctx, ids, 10)
		f.Must(err)
		if len(ended) != 1 || !ended[0].EndedAt.Equal(decided) || ended[0].Fired != 0 || !ended[0].PrevFireTime.Equal(a.Next) {
			t.Fatalf("ended delays of %v = %+v, want the one that was skipped at %v", ids, ended, decided)
		}
	}
	next := decided.Add(time.Minute)
	f.Must(f.ScheduleNext(ctx, []dispatcher.DelayedFire{{TriggerID: a.TriggerID, Revision: a.Revision, Prev: a.Next,
		Anchor: decided, Next: next, Due: next}}))
	if again, err := f.EndedDelays(ctx, nil, 10); err != nil || len(again) != 0 {
		t.Errorf("after it was armed: %v, %v, want none", again, err)
	}
	if got := f.NextAdvance(); !got.Next.Equal(next) {
		t.Errorf("next fire at %v, want %v", got.Next, next)
	}
}
