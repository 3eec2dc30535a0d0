package feeds

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// backfillTests test runs for the instants of ranges.
func backfillTests() tests {
	return tests{
		"a backfill runs each instant once":            testBackfill,
		"a backfill may begin with the latest instant": testBackfillLatestFirst,
		"a backfill leaves out runs in the ledger":     testBackfillExisting,
		"a backfill is paused, resumed and cancelled":  testBackfillChanges,
		"a backfill keeps its pace":                    testBackfillPace,
		"a fast backfill goes in portions":             testBackfillPortions,
		"a backfill ends with its job":                 testBackfillOfDeletedJob,
	}
}

// Each instant of the range is queued once, in order, and never more runs are in progress than the concurrency allows.
func testBackfill(t *testing.T, f *wing) {
	b := f.BackfillOfNew(func(s *repeat.BackfillSpec) { s.Concurrency, s.Payload = 4, json.RawMessage(`{"again":"<1>"}`) })
	b.WantQueued("at first", 1, 2, 3, 4)
	b.WantQueued("again")
	b.Want("under way", "running total=6 queued=4 skipped=0 running=4 succeeded=0 failed=0 cancelled=0")
	r := f.RunOf(b.AtWork()[0].Key)
	want := &run.Cause{Backfill: repeat.BackfillID(b.ID), Range: &run.Range{From: fixture.T0, To: fixture.T0.Add(6 * time.Minute)}}
	if diff := cmp.Diff(want, r.Cause); diff != "" || r.Trigger != "tick" || string(r.Payload) != `{"again":"<1>"}` {
		t.Errorf("run of trigger %q with payload %s, cause (-want +got):\n%s", r.Trigger, r.Payload, diff)
	}
	b.EndAll(run.Failed)
	b.WantQueued("once they failed", 5, 6)
	b.EndAll(run.Succeeded)
	b.WantQueued("at the end")
	b.Want("at the end", "complete total=6 queued=6 skipped=0 running=0 succeeded=2 failed=4 cancelled=0")
	counts, err := f.Backfilled(t.Context(), run.JobID("shop", "tick"), fixture.T0.Add(2*time.Minute), fixture.T0.Add(5*time.Minute))
	if f.Must(err); counts[run.TriggerID("shop", "tick", "tick")] != 4 {
		t.Errorf("verify counts %v runs in four minutes, want 4", counts)
	}
	_, err = f.ChangeBackfill(t.Context(), "shop", repeat.BackfillID(b.ID), repeat.PauseBackfill, fixture.At(b.Now))
	fixture.WantError(t, "pause one that has ended", err, dispatcher.ErrConflict)
	if open, err := f.OpenBackfills(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open backfills %v, %v, want none", open, err)
	}
}

// The latest instant goes first if this is requested.
func testBackfillLatestFirst(_ *testing.T, f *wing) {
	b := f.BackfillOfNew(func(s *repeat.BackfillSpec) { s.Order = repeat.BackfillLatestFirst })
	for want := 6; want > 0; want-- {
		b.WantQueued("next", want)
		b.EndAll(run.Succeeded)
	}
	b.WantQueued("at the end")
	b.Want("at the end", "complete total=6 queued=6 skipped=0 running=0 succeeded=6 failed=0 cancelled=0")
}

// The option decides about instants with runs in the ledger. A backfill brings back runs of an earlier one.
func testBackfillExisting(t *testing.T, f *wing) {
	for i, tt := range []struct {
		existing repeat.BackfillExisting
		want     []int
	}{
		{repeat.ExistingSkip, []int{3, 4, 5, 6}},
		{repeat.ExistingSkip, nil},
		{repeat.ExistingFailed, []int{2}},
		{repeat.ExistingRun, []int{1, 2, 3, 4, 5, 6}},
	} {
		if i == 0 { // minute 1 succeeded, and minute 2 failed
			held := f.ClaimOne("tick")
			f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(held, fixture.Outcome(held.ScheduledAt))}))
			second := f.ClaimAll(f.NextAdvance())[0]
			failed := fixture.Outcome(second.ScheduledAt)
			failed.State = run.Failed
			f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(second, failed)}))
		}
		plan := f.PlanOf("tick", repeat.BackfillSpec{From: fixture.T0, To: fixture.T0.Add(6 * time.Minute), Existing: tt.existing})
		if skipped, err := f.BackfillSkips(t.Context(), plan); err != nil || skipped != plan.Total-len(tt.want) {
			t.Errorf("%d %s: %d instants would be left out (%v), want all but %d of %d", i, tt.existing, skipped, err, len(tt.want), plan.Total)
		}
		b := f.BackfillOfTick(func(s *repeat.BackfillSpec) { s.Existing, s.Concurrency = tt.existing, 10 })
		b.WantQueued(fmt.Sprint(i, " ", tt.existing), tt.want...)
		for _, run := range b.AtWork() {
			if cause := f.RunOf(run.Key).Cause; cause == nil || cause.Backfill != repeat.BackfillID(b.ID) {
				t.Errorf("%d %s: run %s is of %+v, want of backfill %s", i, tt.existing, run.Key, cause, repeat.BackfillID(b.ID))
			}
		}
		b.EndAll(run.Succeeded)
		b.Feed()
		if got := b.Shown(); !strings.HasPrefix(got, "complete") {
			t.Errorf("%d %s: %s, want it complete", i, tt.existing, got)
		}
	}
}

// A pause keeps runs in progress, and a cancel ends waiting ones.
func testBackfillChanges(t *testing.T, f *wing) {
	b := f.BackfillOfNew(func(s *repeat.BackfillSpec) { s.Concurrency = 2 })
	id := repeat.BackfillID(b.ID)
	_, err := f.CreateBackfill(t.Context(), "shop", "tick", f.PlanOf("tick", repeat.BackfillSpec{From: fixture.T0, To: fixture.T0}),
		fixture.At(b.Now))
	fixture.WantError(t, "another backfill of the job", err, dispatcher.ErrConflict)
	b.WantQueued("at first", 1, 2)
	f.Must(f.ChangeBackfill(t.Context(), "shop", id, repeat.PauseBackfill, fixture.At(b.Now)))
	b.EndAll(run.Succeeded)
	b.WantQueued("paused")
	b.Want("paused", "paused total=6 queued=2 skipped=0 running=0 succeeded=2 failed=0 cancelled=0")
	f.Must(f.ChangeBackfill(t.Context(), "shop", id, repeat.ResumeBackfill, fixture.At(b.Now)))
	b.WantQueued("resumed", 3, 4)
	b.Must(f.Release(t.Context(), b.AtWork()[:1]))
	f.Must(f.ChangeBackfill(t.Context(), "shop", id, repeat.CancelBackfill, fixture.At(b.Now)))
	b.WantQueued("cancelled")
	b.Want("while a run is in flight", "cancelling total=6 queued=4 skipped=0 running=1 succeeded=2 failed=0 cancelled=1")
	b.EndAll(run.Succeeded)
	b.Feed()
	b.Want("at the end", "cancelled total=6 queued=4 skipped=0 running=0 succeeded=3 failed=0 cancelled=1")
	all, err := f.Backfills(t.Context(), repeat.BackfillQuery{App: "shop", Job: "tick", Page: input.Page{Limit: 10}})
	if f.Must(err); len(all) != 1 || all[0].ID != id {
		t.Errorf("listed %+v, want one backfill", all)
	}
	if _, err := f.Store.Backfill(t.Context(), "other", id); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("read from another app: error %v, want ErrNotFound", err)
	}
}

// The pace holds on average: unused time of a second is made up for.
func testBackfillPace(t *testing.T, f *wing) {
	b := f.BackfillOfNew(func(s *repeat.BackfillSpec) {
		s.Concurrency, s.Pace = 10, input.Duration(400*time.Millisecond)
	})
	b.WantQueued("at first", 1, 2, 3)
	fed, err := f.FeedBackfill(t.Context(), b.ID, b.Now)
	if f.Must(err); !fed.NextAt.Equal(b.Now.Add(200 * time.Millisecond)) {
		t.Errorf("goes on at %s, want 200 ms later", fed.NextAt)
	}
	b.Now = b.Now.Add(199 * time.Millisecond)
	b.WantQueued("before it may")
	b.Now = b.Now.Add(time.Millisecond)
	b.WantQueued("when it may", 4)
}

// A pace of less than a tenth of a second goes in portions of that time, and an early step is idle.
func testBackfillPortions(t *testing.T, f *wing) {
	f.PutEvery("tick", 10*time.Second)
	b := f.BackfillOfTick(func(s *repeat.BackfillSpec) {
		s.Concurrency, s.Pace = 1000, input.Duration(50*time.Millisecond)
	})
	for _, step := range []struct {
		after  time.Duration
		queued int
		next   time.Duration
	}{{0, 21, 100}, {60, 0, 40}, {40, 2, 100}, {99, 0, 1}, {1, 2, 100}} {
		b.Now = b.Now.Add(step.after * time.Millisecond)
		fed, err := b.FeedBackfill(t.Context(), b.ID, b.Now)
		if f.Must(err); fed.Queued != step.queued || !fed.NextAt.Equal(b.Now.Add(step.next*time.Millisecond)) {
			t.Errorf("%d ms later %d are queued, and it goes on at %s, want %d and %d ms later", step.after, fed.Queued, fed.NextAt, step.queued,
				step.next)
		}
	}
}

// A backfill of a deleted job ends, and shows why.
func testBackfillOfDeletedJob(t *testing.T, f *wing) {
	b := f.BackfillOfNew(nil)
	f.Must(f.DeleteJob(t.Context(), "shop", "tick", fixture.At(b.Now)))
	b.Feed()
	if got, err := f.Store.Backfill(t.Context(), "shop", repeat.BackfillID(b.ID)); err != nil ||
		got.State != repeat.BackfillCancelled || got.Error != "the job was deleted" {
		t.Errorf("got %+v, %v, want it cancelled because the job was deleted", got, err)
	}
}

// backfillScheduleTests test which schedules a backfill uses.
func backfillScheduleTests() tests {
	return tests{
		"a backfill keeps the requested schedule":    testBackfillKeepsSchedule,
		"a backfill keeps the requested calendars":   testBackfillKeepsCalendars,
		"a backfill continues under new names":       testBackfillRenamed,
		"a backfill ends with its trigger":           testBackfillOfRemovedTrigger,
		"a backfill reports a different count":       testBackfillMiscounted,
		"a backfill over a night of daylight saving": testBackfillDaylightSaving,
	}
}

// The schedule is edited in the middle: all counted instants are run, and verify finds no contradiction.
func testBackfillKeepsSchedule(_ *testing.T, f *wing) {
	b := f.BackfillOfNew(func(s *repeat.BackfillSpec) { s.Concurrency = 2 })
	b.WantQueued("at first", 1, 2)
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Hour, fixture.T0.Add(30*time.Minute)),
		"new": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))}), b.Now)
	f.Expect("what is queued after the edit", b.FinishAll(), []int{3, 4, 5, 6})
	b.Want("at the end", "complete total=6 queued=6 skipped=0 running=0 succeeded=6 failed=0 cancelled=0")
	for name, account := range f.Audit(time.Time{}, b.Now, b.Now) {
		if !strings.Contains(account, " 0 unexplained") {
			f.Errorf("verify says of %s: %s", name, account)
		}
	}
}

// A calendar is opened in the middle, and deleted later: the instants that it excluded at first are left out.
func testBackfillKeepsCalendars(_ *testing.T, f *wing) {
	base := fixture.Calendar("base", schedule.CalendarRule{From: "10:03", To: "10:05"})
	freeze := fixture.Calendar("freeze")
	freeze.Bases = []string{"base"}
	f.DeclareCalendar(base, fixture.T0)
	f.DeclareCalendar(freeze, fixture.T0)
	f.Careful("tick")
	b := f.BackfillOfTick(nil)
	b.WantQueued("at first", 1)
	base.Rules = []schedule.CalendarRule{{From: "10:05", To: "10:07"}}
	f.DeclareCalendar(base, b.Now)
	b.EndAll(run.Succeeded)
	b.WantQueued("after the calendar changed", 2)
	f.PutEvery("tick", time.Minute)
	f.Must(f.DeleteCalendar(f.Context(), "shop", "freeze", fixture.At(b.Now)))
	// Because of the calendar change one catch-up run stood for the missed fires, up to that of minute 6.
	f.Expect("what is queued once it is deleted", b.FinishAll(), []int{5})
	b.Want("at the end", "complete total=4 queued=3 skipped=1 running=0 succeeded=3 failed=0 cancelled=0")
}

// The job and the trigger are renamed in the middle: the runs belong to the same trigger.
func testBackfillRenamed(_ *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	b := f.BackfillOfTick(func(s *repeat.BackfillSpec) { s.Trigger, s.Concurrency = "tick", 2 })
	b.WantQueued("at first", 1, 2)
	f.Rename("tick", "tock", map[string]string{"tick": "tack"}, b.Now)
	f.PutEvery("tick", time.Minute) // another job takes the name
	b.EndAll(run.Succeeded)
	b.WantQueued("after the rename", 3, 4)
	for _, held := range b.AtWork() {
		if run := f.RunOf(held.Key); run.Job != "tock" || run.Trigger != "tack" {
			f.Errorf("run %s is of %s/%s, want tock/tack", run.ID, run.Job, run.Trigger)
		}
	}
	f.Expect("what is left", b.FinishAll(), []int{5, 6})
	b.Want("at the end", "complete total=6 queued=6 skipped=0 running=0 succeeded=6 failed=0 cancelled=0")
	found, err := f.Backfill(f.Context(), "shop", repeat.BackfillID(b.ID))
	if f.Must(err); found.Job != "tock" {
		f.Errorf("the backfill is of job %s, want its new name", found.Job)
	}
}

// A trigger with instants in a backfill is removed: its runs could not be made, so the backfill ends, and shows why.
func testBackfillOfRemovedTrigger(_ *testing.T, f *wing) {
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)),
		"other": fixture.Every(time.Hour, fixture.T0.Add(time.Minute))}), fixture.T0)
	b := f.BackfillOfTick(func(s *repeat.BackfillSpec) { s.Concurrency = 3 })
	b.WantQueued("at first", 1, 1, 2)
	f.PutEvery("tick", time.Minute)
	b.EndAll(run.Succeeded)
	b.WantQueued("once the trigger is gone")
	b.Want("at the end", "cancelled total=7 queued=3 skipped=0 running=0 succeeded=3 failed=0 cancelled=0")
	found, err := f.Backfill(f.Context(), "shop", repeat.BackfillID(b.ID))
	if f.Must(err); found.Error != "trigger other of the job was removed" {
		f.Errorf("it ended because %q, want that the trigger was removed", found.Error)
	}
}

// Another version of the time zone data may give a range another number of instants than was counted.
func testBackfillMiscounted(_ *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	b := f.BeginBackfill("tick", func(s *repeat.BackfillSpec) { s.From, s.To = fixture.T0, fixture.T0.Add(2*time.Minute) },
		func(plan *repeat.BackfillPlan) { plan.Total++ })
	b.FinishAll()
	found, err := f.Backfill(f.Context(), "shop", repeat.BackfillID(b.ID))
	f.Must(err)
	if want := "3 instants were counted at first, and 2 were reached"; found.State != repeat.BackfillComplete ||
		!strings.HasPrefix(found.Error, want) {
		f.Errorf("it is %s because %q, want complete and %q", found.State, found.Error, want)
	}
}

// The instants of a backfill over the night with a skipped hour, and over that with a repeated hour, follow the options
// of its trigger.
func testBackfillDaylightSaving(_ *testing.T, f *wing) {
	for i, tt := range []struct {
		night   string
		gap     schedule.Gap
		overlap schedule.Overlap
		want    []string
	}{
		{"2026-03-29", schedule.GapSkip, "", nil},
		{"2026-03-29", schedule.GapNext, "", []string{"01:00"}},
		{"2025-10-26", "", schedule.OverlapLast, []string{"01:30"}},
		{"2025-10-26", "", schedule.OverlapFirst, []string{"00:30"}},
		{"2025-10-26", "", schedule.OverlapBoth, []string{"00:30", "01:30"}},
	} {
		name := fmt.Sprintf("night-%d", i)
		f.Put(fixture.Job(name, map[string]dispatcher.Trigger{"berlin": {TriggerSpec: dispatcher.TriggerSpec{Enabled: true,
			MisfireAfter: dispatcher.DefaultMisfireAfter,
			Schedule: dispatcher.Schedule{Expression: "0 30 2 * * ?",
				Timezone: "Europe/Berlin", Gap: tt.gap, Overlap: tt.overlap}}}}), fixture.T0)
		night, err := time.Parse(time.DateOnly, tt.night)
		f.Must(err)
		b := f.BeginBackfill(name, func(s *repeat.BackfillSpec) { s.From, s.To, s.Concurrency = night, night.Add(12*time.Hour), 5 }, nil)
		b.Feed()
		var got []string
		for _, run := range b.AtWork() {
			got = append(got, run.ScheduledAt.Format("15:04"))
		}
		f.Expect(fmt.Sprintf("runs of %s with gap %q and overlap %q", tt.night, tt.gap, tt.overlap), got, tt.want)
		b.FinishAll()
		b.Want(name, fmt.Sprintf("complete total=%[1]d queued=%[1]d skipped=0 running=0 succeeded=%[1]d failed=0 cancelled=0", len(tt.want)))
	}
}
