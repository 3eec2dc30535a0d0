package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// putDelay stores a job whose trigger "tick" fires a minute after the end of its run.
func (f *fixture) putDelay(name string) {
	f.Helper()
	tick := dispatcher.Trigger{
		TriggerSpec: dispatcher.TriggerSpec{
			Schedule:     dispatcher.Schedule{Expression: "delay(1m)", RepeatCount: 3},
			MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true,
		},
	}
	f.put(job(name, map[string]dispatcher.Trigger{"tick": tick}), t0)
}

// ended returns the fixed delays that wait to be armed, none of them named or one.
func (f *fixture) ended(ids ...int64) []dispatcher.EndedDelay {
	f.Helper()
	all, err := f.EndedDelays(f.Context(), ids, 10)
	f.must(err)
	return all
}

func testDelays(t *testing.T, f *fixture) {
	f.putDelay("j")
	first := f.nextAdvance()
	if !first.Next.Equal(t0.Add(time.Minute)) || !first.Then.IsZero() {
		t.Fatalf("the first fire: got %+v, want a minute after it was made and none then", first)
	}
	held := f.claim(first)[0]
	running := f.trigger("j")
	if running.State != dispatcher.TriggerWaiting || running.NextFireTime != nil || len(f.ended()) != 0 {
		t.Errorf("while it runs: got %+v and %d ended, want it waiting without a next fire", running, len(f.ended()))
	}
	f.must(f.Record(t.Context(), []dispatcher.Record{record(held, outcome(t0.Add(2*time.Minute)))}))
	if got := f.ended(1, 2, 3); len(got) != 0 {
		t.Errorf("among other triggers: got %d, want none", len(got))
	}
	got := f.ended(first.TriggerID)
	end := t0.Add(2*time.Minute + time.Second)
	if len(got) != 1 || !got[0].EndedAt.Equal(end) || !got[0].Spec.Anchor.Equal(end) || got[0].Fired != 0 {
		t.Fatalf("after it ended: got %+v, want the end of the run", got)
	}
	armed := dispatcher.DelayedFire{
		TriggerID: got[0].DueTrigger.ID, Revision: got[0].DueTrigger.Revision, Prev: got[0].PrevFireTime,
		Anchor: end, Next: end.Add(time.Minute), Due: end.Add(time.Minute),
	}
	stale := armed
	stale.Revision++
	f.must(f.ScheduleNext(t.Context(), []dispatcher.DelayedFire{stale}))
	if len(f.ended()) != 1 {
		t.Error("a rearming of another revision had an effect")
	}
	for range 2 { // again changes nothing
		f.must(f.ScheduleNext(t.Context(), []dispatcher.DelayedFire{armed}))
	}
	after := f.trigger("j")
	if after.Fired != 1 || !after.AnchorAt.Equal(end) || !after.NextFireTime.Equal(armed.Next) || !after.DueAt.Equal(armed.Due) {
		t.Errorf("armed: got %+v, want it counted once, from the end of the run", after)
	}
	changed := job("j", map[string]dispatcher.Trigger{"tick": after})
	changed.Description = "the schedule stays"
	if put := f.put(changed, t0.Add(time.Hour)).Triggers["tick"]; put.Fired != 1 || !put.NextFireTime.Equal(armed.Next) {
		t.Errorf("after a change of something else: got %+v, want its count and its fire", put)
	}
	f.claim(f.nextAdvance())
	complete := dispatcher.DelayedFire{TriggerID: armed.TriggerID, Revision: revisionOf(f, "j"), Prev: armed.Next, Anchor: end}
	f.must(f.ScheduleNext(t.Context(), []dispatcher.DelayedFire{complete}))
	if done := f.trigger("j"); done.State != dispatcher.TriggerComplete || done.Fired != 2 {
		t.Errorf("without a next fire: got %+v, want it complete", done)
	}
}

// revisionOf is the revision of a job.
func revisionOf(f *fixture, name string) int64 {
	f.Helper()
	stored, err := f.Job(f.Context(), "shop", name)
	f.must(err)
	return stored.Revision
}

// However a run ended, its fixed delay goes on.
func testDelayEnds(t *testing.T, f *fixture) {
	f.putDelay("cancelled")
	f.putDelay("missed")
	var held []run.HeldRun
	for _, d := range f.dueAll(t0.Add(time.Hour)) {
		if d.ID == run.TriggerID("shop", "cancelled", "tick") {
			held = f.claim(f.advance(d))
			continue
		}
		settled, err := f.Settle(t.Context(), dispatcher.SettleBatch{Node: nodeA, Token: token2, Now: t0.Add(time.Hour),
			Settlements: []dispatcher.Settlement{{
				Advance: f.advance(d), To: d.NextFireTime, Count: 1, CatchUp: d.NextFireTime, Decision: dispatcher.DecisionFireOnce,
			}}})
		f.must(err)
		f.must(f.Record(t.Context(), []dispatcher.Record{record(settled[0], outcome(t0.Add(time.Hour)))}))
	}
	_, err := f.CancelRun(t.Context(), held[0].Key.String(), at(t0.Add(2*time.Hour)))
	f.must(err)
	var got []time.Time
	for _, one := range f.ended() {
		got = append(got, one.EndedAt)
	}
	want := map[time.Time]bool{t0.Add(2 * time.Hour): true, t0.Add(time.Hour + time.Second): true}
	for _, end := range got {
		delete(want, end)
	}
	if len(want) != 0 || len(got) != 2 {
		t.Errorf("ends: got %v, missing %v", got, want)
	}
	// What is switched off is not armed, nor what is deleted.
	off := job("missed", f.put(job("missed", nil), t0).Triggers)
	f.put(off, t0)
	f.must(f.DeleteJob(t.Context(), "shop", "cancelled", at(t0)))
	if rest := f.ended(); len(rest) != 0 {
		t.Errorf("of jobs that are gone: got %d", len(rest))
	}
}

func testJitter(t *testing.T, f *fixture) {
	tick := every(time.Minute, t0.Add(time.Minute))
	tick.Jitter = input.Duration(30 * time.Second)
	tick.DriftHour, tick.OnExcluded = true, ""
	stored := f.put(job("j", map[string]dispatcher.Trigger{"tick": tick}), t0).Triggers["tick"]
	if diff := cmp.Diff(tick.Jitter, stored.Jitter); diff != "" || !stored.DriftHour || stored.DueAt.Before(*stored.NextFireTime) {
		t.Fatalf("stored: got %+v", stored)
	}
	a := f.nextAdvance()
	a.Then, a.ThenDue = t0.Add(2*time.Minute), t0.Add(2*time.Minute+20*time.Second)
	f.claim(dispatcher.Advance{TriggerID: a.TriggerID, JobID: a.JobID, Revision: a.Revision, Next: a.Next.Add(time.Second)}) // no such fire
	now := *stored.DueAt
	held, err := f.Claim(t.Context(), dispatcher.ClaimBatch{Node: nodeA, Token: f.token(),
		Advances: []dispatcher.Advance{a}, Now: now.Add(-time.Millisecond)})
	f.must(err)
	if stored.DueAt.After(*stored.NextFireTime) && len(held) != 0 {
		t.Error("a fire was claimed before it was due, though after its instant")
	}
	held, err = f.Claim(t.Context(), dispatcher.ClaimBatch{Node: nodeA, Token: f.token(), Advances: []dispatcher.Advance{a}, Now: now})
	f.must(err)
	if len(held) != 1 || !held[0].ScheduledAt.Equal(a.Next) {
		t.Fatalf("claim when due: got %+v, want the run of the instant", held)
	}
	due := t0.Add(2*time.Minute + 20*time.Second)
	for _, tt := range []struct {
		until time.Time
		want  int
	}{{due.Add(-time.Millisecond), 0}, {due, 1}} {
		if got := f.dueAll(tt.until); len(got) != tt.want {
			t.Errorf("due by %v: got %d, want %d", tt.until, len(got), tt.want)
		}
	}
	late := due.Add(dispatcher.DefaultMisfireAfter.Std())
	for _, tt := range []struct {
		now  time.Time
		want int
	}{{late, 0}, {late.Add(time.Millisecond), 1}} {
		overdue, err := f.Due(t.Context(), dispatcher.DueQuery{Until: tt.now, Now: tt.now, Overdue: true, Limit: 5})
		f.must(err)
		if len(overdue) != tt.want {
			t.Errorf("overdue at %v: got %d, want %d", tt.now, len(overdue), tt.want)
		}
	}
}
