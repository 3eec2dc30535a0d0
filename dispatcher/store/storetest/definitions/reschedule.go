package definitions

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// A change of a calendar reschedules the affected triggers, in any state.
func testRescheduleForCalendarRules(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Calendar("freeze"), fixture.T0)
	f.Careful("j")
	check := func(what string, state dispatcher.TriggerState, next time.Time) {
		t.Helper()
		if got := f.Trigger("j"); got.State != state || !next.Equal(zeroable(got.NextFireTime)) || !next.Equal(zeroable(got.DueAt)) {
			t.Errorf("%s: got %+v, want %s, next at %s", what, got, state, next)
		}
	}
	until := func(clock string) dispatcher.Calendar {
		return fixture.Calendar("freeze", schedule.CalendarRule{To: clock})
	}

	// The fire of 10:01 is due and stays due under a calendar that still allows it.
	f.DeclareCalendar(until("09:00"), fixture.T0.Add(90*time.Second))
	check("due and allowed", dispatcher.TriggerWaiting, fixture.T0.Add(time.Minute))
	if won := f.ClaimAll(f.NextAdvance()); len(won) != 1 {
		t.Errorf("claim of what stayed due: won %d, want 1", len(won))
	}
	f.DeclareCalendar(fixture.Calendar("freeze", allDay), fixture.T0.Add(90*time.Second))
	check("nothing left", dispatcher.TriggerComplete, time.Time{})
	f.DeclareCalendar(until("11:00"), fixture.T0.Add(90*time.Second))
	check("open again", dispatcher.TriggerWaiting, fixture.T0.Add(time.Hour))
	f.Must(f.Quarantine(t.Context(), run.TriggerID("shop", "j", "tick"), 1, "unreadable"))
	f.DeclareCalendar(until("12:00"), fixture.T0.Add(90*time.Second))
	check("out of quarantine", dispatcher.TriggerWaiting, fixture.T0.Add(2*time.Hour))
	f.Must(f.PauseJob(t.Context(), "shop", "j", "tick", true, fixture.At(fixture.T0)))
	f.DeclareCalendar(until("13:00"), fixture.T0.Add(90*time.Second))
	check("paused", dispatcher.TriggerPaused, fixture.T0.Add(3*time.Hour))
	f.Must(f.PauseJob(t.Context(), "shop", "j", "tick", false, fixture.At(fixture.T0)))
	check("resumed", dispatcher.TriggerWaiting, fixture.T0.Add(3*time.Hour))
	misfires, err := f.Misfires(t.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 5}})
	if err != nil || len(misfires) != 0 {
		t.Errorf("misfires: got %+v, %v, want none: nothing that was due was taken away", misfires, err)
	}

	declared := f.Careful("j")
	declared.Enabled = false
	f.Put(declared, fixture.T0)
	f.DeclareCalendar(until("14:00"), fixture.T0)
	check("disabled", dispatcher.TriggerWaiting, time.Time{})
	declared.Enabled = true
	f.Put(declared, fixture.T0)
	check("enabled", dispatcher.TriggerWaiting, fixture.T0.Add(4*time.Hour))
}

func zeroable(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// A fixed delay is scheduled next by the calendar in force when its run ends.
func testRescheduleForCalendarDelays(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Calendar("freeze"), fixture.T0)
	tick := dispatcher.Trigger{
		TriggerSpec: dispatcher.TriggerSpec{
			Schedule:     dispatcher.Schedule{Expression: "delay(1m)", Calendar: "freeze", OnExcluded: schedule.OnExcludedNextIncluded},
			MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true,
		},
	}
	f.Put(fixture.Job("j", map[string]dispatcher.Trigger{"tick": tick}), fixture.T0)
	held := f.ClaimAll(f.NextAdvance())
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(held[0], fixture.Outcome(fixture.T0.Add(2*time.Minute)))}))
	before := f.DelaysToArm(held[0].TriggerID)
	f.DeclareCalendar(fixture.Calendar("freeze", schedule.CalendarRule{To: "11:00"}), fixture.T0.Add(3*time.Minute))
	if got := f.Trigger("j"); got.State != dispatcher.TriggerWaiting || got.NextFireTime != nil {
		t.Errorf("changed between run and arming: got %+v, want it to wait as before", got)
	}
	f.Must(f.PauseJob(t.Context(), "shop", "j", "", true, fixture.At(fixture.T0)))
	scheduleNext := func(ended []dispatcher.EndedDelay) {
		t.Helper()
		if len(ended) != 1 {
			t.Fatalf("%d fixed delays are to be armed, want 1", len(ended))
		}
		next := fixture.T0.Add(time.Hour)
		f.Must(f.ScheduleNext(t.Context(), []dispatcher.DelayedFire{{
			TriggerID: ended[0].DueTrigger.ID, Revision: 2, CalendarRevision: ended[0].CalendarRevision, Prev: ended[0].PrevFireTime,
			Anchor: ended[0].EndedAt, Next: next, Due: next,
		}}))
	}
	scheduleNext(before)
	if got := f.Trigger("j"); got.NextFireTime != nil {
		t.Errorf("armed by the older calendar: got next %s, want none", got.NextFireTime)
	}
	scheduleNext(f.DelaysToArm())
	if got := f.Trigger("j"); got.State != dispatcher.TriggerPaused || !fixture.T0.Add(time.Hour).Equal(zeroable(got.NextFireTime)) {
		t.Errorf("armed while paused: got %+v, want a next fire, paused", got)
	}
}

// A calendar exists while anything names it, and only existing calendars can be named.
func testCalendarUsers(t *testing.T, f *wing) {
	ctx := t.Context()
	refused := func(what string) {
		t.Helper()
		tick := fixture.Every(time.Minute, fixture.T0)
		tick.Calendar = "freeze"
		_, _, err := f.PutJob(ctx, fixture.Job("late", map[string]dispatcher.Trigger{"tick": tick}), fixture.At(fixture.T0.Add(-time.Hour)))
		var problems input.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Path != "/triggers/tick/calendar" ||
			problems[0].Code != input.CodeCalendarUnknown {
			t.Errorf("%s: got %v, want a problem of /triggers/tick/calendar", what, err)
		}
	}
	refused("a calendar that never was")
	f.DeclareCalendar(fixture.Calendar("freeze"), fixture.T0)
	for _, name := range []string{"b", "a", "c"} {
		f.Careful(name)
	}
	used := func(want string) {
		t.Helper()
		err := f.DeleteCalendar(ctx, "shop", "freeze", fixture.At(fixture.T0))
		fixture.WantError(t, "delete in use", err, dispatcher.ErrInUse)
		if want += ": in use"; err != nil && err.Error() != want {
			t.Errorf("delete in use: got %q, want %q", err, want)
		}
	}
	used(`calendar "freeze" is used by job "a" trigger "tick" and 2 more`)
	f.Must(f.DeleteJob(ctx, "shop", "a", fixture.At(fixture.T0)))
	f.PutEvery("b", time.Minute)
	used(`calendar "freeze" is used by job "c" trigger "tick"`)
	f.Put(fixture.Job("c", nil), fixture.T0)
	before, _, err := f.AppCalendars(ctx, "shop")
	f.Must(err)
	f.Must(f.DeleteCalendar(ctx, "shop", "freeze", fixture.At(fixture.T0)))
	after, all, err := f.AppCalendars(ctx, "shop")
	if err != nil || len(all) != 0 || after != before+1 {
		t.Errorf("deleted: got %d calendars at revision %d, %v, want none at %d", len(all), after, err, before+1)
	}
	fixture.WantError(t, "delete twice", f.DeleteCalendar(ctx, "shop", "freeze", fixture.At(fixture.T0)), dispatcher.ErrNotFound)
	refused("a calendar that was deleted")
	_, _, err = f.AppCalendars(ctx, "none")
	fixture.WantError(t, "calendars of no app", err, dispatcher.ErrNotFound)
}

// A schedule reads back completely, for users and for the engine.
func testSchedules(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Calendar("freeze", schedule.CalendarRule{Weekdays: []string{"FRI"}}), fixture.T0) // T0 is a Friday
	_, all, err := f.AppCalendars(t.Context(), "shop")
	f.Must(err)
	end := fixture.T0.AddDate(1, 0, 0)
	trigger := func(s dispatcher.Schedule) dispatcher.Trigger {
		return dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: s, MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true}}
	}
	declared := fixture.Job("j", map[string]dispatcher.Trigger{
		"moved": trigger(dispatcher.Schedule{
			Expression: "0 H 12 * * ?", Timezone: "Europe/Berlin", Calendar: "freeze", OnExcluded: schedule.OnExcludedNextIncluded,
			Jitter: input.Duration(time.Hour), EndAt: &end, RepeatCount: 9, Gap: schedule.GapNext, Overlap: schedule.OverlapFirst,
		}),
		"drifts": trigger(dispatcher.Schedule{Expression: "every 1 month", StartAt: &fixture.T0, DriftHour: true, Timezone: "America/New_York"}),
		"delay":  trigger(dispatcher.Schedule{Expression: "delay(90s)", Jitter: input.Duration(1500 * time.Millisecond)}),
	})
	want, _, err := dispatcher.Apply(nil, declared, dispatcher.Prior{}, dispatcher.CompileCalendars(all), fixture.T0)
	f.Must(err)
	want.Warnings = want.Warn(dispatcher.CompileCalendars(all))
	if diff := cmp.Diff(want, f.Put(declared, fixture.T0)); diff != "" {
		t.Error("stored (-want by Revise, +got):\n" + diff)
	}
	read, err := f.Job(t.Context(), "shop", "j")
	f.Must(err)
	if diff := cmp.Diff(want, read); diff != "" {
		t.Error("read back (-want +got):\n" + diff)
	}
	specs := map[int64]schedule.Spec{}
	for _, d := range f.DueAll(fixture.T0.AddDate(0, 2, 0)) {
		specs[d.ID] = f.Version(d.ID).Spec
	}
	for name, one := range want.Triggers {
		if diff := cmp.Diff(one.Spec("", one.AnchorAt), specs[run.TriggerID("shop", "j", name)]); diff != "" {
			t.Errorf("trigger %s as the engine reads it (-want +got):\n%s", name, diff)
		}
	}
}
