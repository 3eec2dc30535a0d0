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

// putDelay stores a job whose trigger "tick" fires a minute after the end of its run.
func (f *wing) putDelay(name string) {
	f.Helper()
	tick := dispatcher.Trigger{
		TriggerSpec: dispatcher.TriggerSpec{
			Schedule:     dispatcher.Schedule{Expression: "delay(1m)", RepeatCount: 3},
			MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true,
		},
	}
	f.Put(fixture.Job(name, map[string]dispatcher.Trigger{"tick": tick}), fixture.T0)
}

func testDelays(t *testing.T, f *wing) {
	f.putDelay("j")
	first := f.NextAdvance()
	if !first.Next.Equal(fixture.T0.Add(time.Minute)) || !first.Then.IsZero() {
		t.Fatalf("the first fire: got %+v, want a minute after it was made and none then", first)
	}
	held := f.ClaimAll(first)[0]
	running := f.Trigger("j")
	if running.State != dispatcher.TriggerWaiting || running.NextFireTime != nil || len(f.DelaysToArm()) != 0 {
		t.Errorf("while it runs: got %+v and %d ended, want it waiting without a next fire", running, len(f.DelaysToArm()))
	}
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(held, fixture.Outcome(fixture.T0.Add(2*time.Minute)))}))
	if got := f.DelaysToArm(1, 2, 3); len(got) != 0 {
		t.Errorf("among other triggers: got %d, want none", len(got))
	}
	got := f.DelaysToArm(first.TriggerID)
	end := fixture.T0.Add(2*time.Minute + time.Second)
	if len(got) != 1 || !got[0].EndedAt.Equal(end) || !got[0].Spec.Anchor.Equal(end) || got[0].Fired != 0 {
		t.Fatalf("after it ended: got %+v, want the end of the run", got)
	}
	armed := dispatcher.DelayedFire{
		TriggerID: got[0].DueTrigger.ID, Revision: got[0].DueTrigger.Revision, Prev: got[0].PrevFireTime,
		Anchor: end, Next: end.Add(time.Minute), Due: end.Add(time.Minute),
	}
	stale := armed
	stale.Revision++
	f.Must(f.ScheduleNext(t.Context(), []dispatcher.DelayedFire{stale}))
	if len(f.DelaysToArm()) != 1 {
		t.Error("a rearming of another revision had an effect")
	}
	for range 2 { // repeating it changes nothing
		f.Must(f.ScheduleNext(t.Context(), []dispatcher.DelayedFire{armed}))
	}
	after := f.Trigger("j")
	if after.Fired != 1 || !after.AnchorAt.Equal(end) || !after.NextFireTime.Equal(armed.Next) || !after.DueAt.Equal(armed.Due) {
		t.Errorf("armed: got %+v, want it counted once, from the end of the run", after)
	}
	changed := fixture.Job("j", map[string]dispatcher.Trigger{"tick": after})
	changed.Description = "the schedule stays"
	if put := f.Put(changed, fixture.T0.Add(time.Hour)).Triggers["tick"]; put.Fired != 1 || !put.NextFireTime.Equal(armed.Next) {
		t.Errorf("after a change of something else: got %+v, want its count and its fire", put)
	}
	f.ClaimAll(f.NextAdvance())
	complete := dispatcher.DelayedFire{TriggerID: armed.TriggerID, Revision: f.RevisionOf("j"), Prev: armed.Next, Anchor: end}
	f.Must(f.ScheduleNext(t.Context(), []dispatcher.DelayedFire{complete}))
	if done := f.Trigger("j"); done.State != dispatcher.TriggerComplete || done.Fired != 2 {
		t.Errorf("without a next fire: got %+v, want it complete", done)
	}
}

// A fixed delay continues however its run ended.
func testDelayEnds(t *testing.T, f *wing) {
	f.putDelay("cancelled")
	f.putDelay("missed")
	var held []run.HeldRun
	for _, d := range f.DueAll(fixture.T0.Add(time.Hour)) {
		if d.ID == run.TriggerID("shop", "cancelled", "tick") {
			held = f.ClaimAll(f.Advance(d))
			continue
		}
		settled, err := f.Settle(t.Context(), dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token2, Now: fixture.T0.Add(time.Hour),
			Settlements: []dispatcher.Settlement{{
				Advance: f.Advance(d), To: d.NextFireTime, Count: 1, CatchUp: d.NextFireTime, Decision: dispatcher.DecisionFireOnce,
			}}})
		f.Must(err)
		f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(settled[0], fixture.Outcome(fixture.T0.Add(time.Hour)))}))
	}
	_, err := f.CancelRun(t.Context(), held[0].Key.String(), fixture.At(fixture.T0.Add(2*time.Hour)))
	f.Must(err)
	var got []time.Time
	for _, one := range f.DelaysToArm() {
		got = append(got, one.EndedAt)
	}
	want := map[time.Time]bool{fixture.T0.Add(2 * time.Hour): true, fixture.T0.Add(time.Hour + time.Second): true}
	for _, end := range got {
		delete(want, end)
	}
	if len(want) != 0 || len(got) != 2 {
		t.Errorf("ends: got %v, missing %v", got, want)
	}
	// Disabled or deleted delays are not scheduled next.
	off := fixture.Job("missed", f.Put(fixture.Job("missed", nil), fixture.T0).Triggers)
	f.Put(off, fixture.T0)
	f.Must(f.DeleteJob(t.Context(), "shop", "cancelled", fixture.At(fixture.T0)))
	if rest := f.DelaysToArm(); len(rest) != 0 {
		t.Errorf("of jobs that are gone: got %d", len(rest))
	}
}

func testJitter(t *testing.T, f *wing) {
	tick := fixture.Every(time.Minute, fixture.T0.Add(time.Minute))
	tick.Jitter = input.Duration(30 * time.Second)
	tick.DriftHour, tick.OnExcluded = true, ""
	stored := f.Put(fixture.Job("j", map[string]dispatcher.Trigger{"tick": tick}), fixture.T0).Triggers["tick"]
	if diff := cmp.Diff(tick.Jitter, stored.Jitter); diff != "" || !stored.DriftHour || stored.DueAt.Before(*stored.NextFireTime) {
		t.Fatalf("stored: got %+v", stored)
	}
	a := f.NextAdvance()
	a.Then, a.ThenDue = fixture.T0.Add(2*time.Minute), fixture.T0.Add(2*time.Minute+20*time.Second)
	f.ClaimAll(dispatcher.Advance{TriggerID: a.TriggerID, JobID: a.JobID, Revision: a.Revision, Next: a.Next.Add(time.Second)}) // unknown
	now := *stored.DueAt
	held, err := f.Claim(t.Context(), dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken(),
		Advances: []dispatcher.Advance{a}, Now: now.Add(-time.Millisecond)})
	f.Must(err)
	if stored.DueAt.After(*stored.NextFireTime) && len(held) != 0 {
		t.Error("a fire was claimed before it was due, though after its instant")
	}
	held, err = f.Claim(t.Context(), dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken(), Advances: []dispatcher.Advance{a},
		Now: now})
	f.Must(err)
	if len(held) != 1 || !held[0].ScheduledAt.Equal(a.Next) {
		t.Fatalf("claim when due: got %+v, want the run of the instant", held)
	}
	due := fixture.T0.Add(2*time.Minute + 20*time.Second)
	for _, tt := range []struct {
		until time.Time
		want  int
	}{{due.Add(-time.Millisecond), 0}, {due, 1}} {
		if got := f.DueAll(tt.until); len(got) != tt.want {
			t.Errorf("due by %v: got %d, want %d", tt.until, len(got), tt.want)
		}
	}
	late := due.Add(dispatcher.DefaultMisfireAfter.Std())
	for _, tt := range []struct {
		now  time.Time
		want int
	}{{late, 0}, {late.Add(time.Millisecond), 1}} {
		overdue, err := f.Due(t.Context(), dispatcher.DueQuery{Until: tt.now, Now: tt.now, Overdue: true, Limit: 5})
		f.Must(err)
		if len(overdue) != tt.want {
			t.Errorf("overdue at %v: got %d, want %d", tt.now, len(overdue), tt.want)
		}
	}
}
