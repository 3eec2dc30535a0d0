package feeds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// backfillScheduleTests tell by which schedules a backfill goes.
func backfillScheduleTests() tests {
	return tests{
		"a backfill keeps the schedule that it was asked for":  testBackfillKeepsSchedule,
		"a backfill keeps the calendars that it was asked for": testBackfillKeepsCalendars,
		"a backfill goes on under new names":                   testBackfillRenamed,
		"a backfill ends with its trigger":                     testBackfillOfRemovedTrigger,
		"a backfill that counted otherwise says so":            testBackfillMiscounted,
		"a backfill over a night of daylight saving":           testBackfillDaylightSaving,
	}
}

// The schedule is edited in the middle: all instants that were counted are run, and verify finds no contradiction.
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
	// The change of the calendar let one catch-up run stand for the fires that were missed, up to that of minute 6.
	f.Expect("what is queued once it is deleted", b.FinishAll(), []int{5})
	b.Want("at the end", "complete total=4 queued=3 skipped=1 running=0 succeeded=3 failed=0 cancelled=0")
}

// The job and the trigger are renamed in the middle: the runs are those of the same trigger.
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

// A trigger of which a backfill runs instants is removed: no run could be made for it, so the backfill ends, and says why.
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

// The instants of a backfill over the night in which an hour is skipped, and over that in which it is repeated, are those of the
// options of its trigger.
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
