package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
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

// finishAll ends what is under way and goes on, until nothing more is queued. It returns the minutes that were queued.
func (b *backfilling) finishAll() (queued []int) {
	b.Helper()
	for {
		b.endAll(run.Succeeded)
		more := b.feed()
		if queued = append(queued, more...); len(more) == 0 {
			return queued
		}
	}
}

// The schedule is edited in the middle: all instants that were counted are run, and verify finds no contradiction.
func testBackfillKeepsSchedule(_ *testing.T, f *fixture) {
	b := f.backfill(func(s *repeat.BackfillSpec) { s.Concurrency = 2 })
	b.wantQueued("at first", 1, 2)
	f.put(job("tick", map[string]dispatcher.Trigger{"tick": every(time.Hour, t0.Add(30*time.Minute)),
		"new": every(time.Minute, t0.Add(time.Minute))}), b.now)
	f.expect("what is queued after the edit", b.finishAll(), []int{3, 4, 5, 6})
	b.want("at the end", "complete total=6 queued=6 skipped=0 running=0 succeeded=6 failed=0 cancelled=0")
	for name, account := range f.audit(time.Time{}, b.now, b.now) {
		if !strings.Contains(account, " 0 unexplained") {
			f.Errorf("verify says of %s: %s", name, account)
		}
	}
}

// A calendar is opened in the middle, and deleted later: the instants that it excluded at first are left out.
func testBackfillKeepsCalendars(_ *testing.T, f *fixture) {
	base := calendar("base", schedule.CalendarRule{From: "10:03", To: "10:05"})
	freeze := calendar("freeze")
	freeze.Bases = []string{"base"}
	f.putCalendar(base, t0)
	f.putCalendar(freeze, t0)
	f.careful("tick")
	b := f.backfillOf(nil)
	b.wantQueued("at first", 1)
	base.Rules = []schedule.CalendarRule{{From: "10:05", To: "10:07"}}
	f.putCalendar(base, b.now)
	b.endAll(run.Succeeded)
	b.wantQueued("after the calendar changed", 2)
	f.putEvery("tick", time.Minute)
	f.must(f.DeleteCalendar(f.Context(), "shop", "freeze", at(b.now)))
	// The change of the calendar let one catch-up run stand for the fires that were missed, up to that of minute 6.
	f.expect("what is queued once it is deleted", b.finishAll(), []int{5})
	b.want("at the end", "complete total=4 queued=3 skipped=1 running=0 succeeded=3 failed=0 cancelled=0")
}

// The job and the trigger are renamed in the middle: the runs are those of the same trigger.
func testBackfillRenamed(_ *testing.T, f *fixture) {
	f.putEvery("tick", time.Minute)
	b := f.backfillOf(func(s *repeat.BackfillSpec) { s.Trigger, s.Concurrency = "tick", 2 })
	b.wantQueued("at first", 1, 2)
	f.rename("tick", "tock", map[string]string{"tick": "tack"}, b.now)
	f.putEvery("tick", time.Minute) // another job takes the name
	b.endAll(run.Succeeded)
	b.wantQueued("after the rename", 3, 4)
	for _, held := range b.held() {
		if run := f.run(held.Key); run.Job != "tock" || run.Trigger != "tack" {
			f.Errorf("run %s is of %s/%s, want tock/tack", run.ID, run.Job, run.Trigger)
		}
	}
	f.expect("what is left", b.finishAll(), []int{5, 6})
	b.want("at the end", "complete total=6 queued=6 skipped=0 running=0 succeeded=6 failed=0 cancelled=0")
	found, err := f.Backfill(f.Context(), "shop", repeat.BackfillID(b.id))
	if f.must(err); found.Job != "tock" {
		f.Errorf("the backfill is of job %s, want its new name", found.Job)
	}
}

// A trigger of which a backfill runs instants is removed: no run could be made for it, so the backfill ends, and says why.
func testBackfillOfRemovedTrigger(_ *testing.T, f *fixture) {
	f.put(job("tick", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute)),
		"other": every(time.Hour, t0.Add(time.Minute))}), t0)
	b := f.backfillOf(func(s *repeat.BackfillSpec) { s.Concurrency = 3 })
	b.wantQueued("at first", 1, 1, 2)
	f.putEvery("tick", time.Minute)
	b.endAll(run.Succeeded)
	b.wantQueued("once the trigger is gone")
	b.want("at the end", "cancelled total=7 queued=3 skipped=0 running=0 succeeded=3 failed=0 cancelled=0")
	found, err := f.Backfill(f.Context(), "shop", repeat.BackfillID(b.id))
	if f.must(err); found.Error != "trigger other of the job was removed" {
		f.Errorf("it ended because %q, want that the trigger was removed", found.Error)
	}
}

// Another version of the time zone data may give a range another number of instants than was counted.
func testBackfillMiscounted(_ *testing.T, f *fixture) {
	f.putEvery("tick", time.Minute)
	b := f.begin("tick", func(s *repeat.BackfillSpec) { s.From, s.To = t0, t0.Add(2*time.Minute) },
		func(plan *repeat.BackfillPlan) { plan.Total++ })
	b.finishAll()
	found, err := f.Backfill(f.Context(), "shop", repeat.BackfillID(b.id))
	f.must(err)
	if want := "3 instants were counted at first, and 2 were reached"; found.State != repeat.BackfillComplete ||
		!strings.HasPrefix(found.Error, want) {
		f.Errorf("it is %s because %q, want complete and %q", found.State, found.Error, want)
	}
}

// The instants of a backfill over the night in which an hour is skipped, and over that in which it is repeated, are those of the
// options of its trigger.
func testBackfillDaylightSaving(_ *testing.T, f *fixture) {
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
		f.put(job(name, map[string]dispatcher.Trigger{"berlin": {TriggerSpec: dispatcher.TriggerSpec{Enabled: true,
			MisfireAfter: dispatcher.DefaultMisfireAfter,
			Schedule: dispatcher.Schedule{Expression: "0 30 2 * * ?",
				Timezone: "Europe/Berlin", Gap: tt.gap, Overlap: tt.overlap}}}}), t0)
		night, err := time.Parse(time.DateOnly, tt.night)
		f.must(err)
		b := f.begin(name, func(s *repeat.BackfillSpec) { s.From, s.To, s.Concurrency = night, night.Add(12*time.Hour), 5 }, nil)
		b.feed()
		var got []string
		for _, run := range b.held() {
			got = append(got, run.ScheduledAt.Format("15:04"))
		}
		f.expect(fmt.Sprintf("runs of %s with gap %q and overlap %q", tt.night, tt.gap, tt.overlap), got, tt.want)
		b.finishAll()
		b.want(name, fmt.Sprintf("complete total=%[1]d queued=%[1]d skipped=0 running=0 succeeded=%[1]d failed=0 cancelled=0", len(tt.want)))
	}
}
