package storetest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// calendarTests are the tests of calendars.
func calendarTests() tests {
	return tests{
		"calendars are created, replaced, listed and deleted":  testCalendars,
		"calendars build on others, without circles":           testCalendarChains,
		"a changed calendar moves the fires of its triggers":   testRescheduleForCalendar,
		"a changed calendar follows the rules of rescheduling": testRescheduleForCalendarRules,
		"a calendar that is used cannot be deleted":            testCalendarUsers,
		"concurrent calendar changes all count":                testCalendarRace,
		"a changed calendar leaves fixed delays waiting":       testRescheduleForCalendarDelays,
	}
}

func calendar(name string, rules ...schedule.CalendarRule) dispatcher.Calendar {
	return dispatcher.Calendar{App: "shop", Name: name, CalendarSpec: dispatcher.CalendarSpec{Rules: rules}}
}

// allDay excludes everything.
var allDay = schedule.CalendarRule{From: "00:00", To: "00:00"}

func (f *fixture) putCalendar(c dispatcher.Calendar, now time.Time) dispatcher.Calendar {
	f.Helper()
	stored, _, err := f.PutCalendar(f.Context(), c, at(now))
	f.must(err)
	return stored
}

// careful stores a job that fires each minute as the calendar "freeze" allows.
func (f *fixture) careful(name string) dispatcher.Job {
	f.Helper()
	tick := every(time.Minute, t0.Add(time.Minute))
	tick.Calendar = "freeze"
	return f.put(job(name, map[string]dispatcher.Trigger{"tick": tick}), t0)
}

func (f *fixture) trigger(name string) dispatcher.Trigger {
	f.Helper()
	stored, err := f.Job(f.Context(), "shop", name)
	f.must(err)
	return stored.Triggers["tick"]
}

func testCalendars(t *testing.T, f *fixture) {
	ctx := t.Context()
	declared := calendar("holidays", schedule.CalendarRule{Only: true, Dates: []string{"12-25"}}, allDay)
	declared.Description, declared.Timezone, declared.Bases = "days off", "Europe/Berlin", nil
	stored, _, err := f.PutCalendar(ctx, declared, input.Change{IfAbsent: true, Now: t0})
	f.must(err)
	want := declared
	want.Revision, want.CreatedAt, want.UpdatedAt = 1, t0, t0
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error("a new calendar (-want +got):\n" + diff)
	}
	_, _, err = f.PutCalendar(ctx, declared, input.Change{IfAbsent: true, Now: t0})
	wantError(t, "put if absent", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutCalendar(ctx, declared, input.Change{IfRevision: 7, Now: t0})
	wantError(t, "put of another revision", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutCalendar(ctx, dispatcher.Calendar{App: "none", Name: "c"}, at(t0))
	wantError(t, "put into no app", err, dispatcher.ErrNotFound)
	_, err = f.Calendar(ctx, "shop", "none")
	wantError(t, "read of none", err, dispatcher.ErrNotFound)

	f.putCalendar(calendar("all"), t0)
	page, err := f.Calendars(ctx, "shop", input.Page{Limit: 10, Cursor: "all"})
	f.must(err)
	if diff := cmp.Diff([]dispatcher.Calendar{want}, page); diff != "" {
		t.Error("the page after the first (-want +got):\n" + diff)
	}
	wantError(t, "delete of another revision", f.DeleteCalendar(ctx, "shop", "holidays",
		input.Change{IfRevision: 9}), dispatcher.ErrPrecondition)
	f.must(f.DeleteCalendar(ctx, "shop", "holidays", at(t0)))
	_, err = f.Calendar(ctx, "shop", "holidays")
	wantError(t, "read of what was deleted", err, dispatcher.ErrNotFound)
	if again := f.putCalendar(declared, t0.Add(time.Hour)); again.Revision != 2 || !again.CreatedAt.Equal(t0.Add(time.Hour)) {
		t.Errorf("made again: got revision %d of %v, want 2, made then", again.Revision, again.CreatedAt)
	}
	wantError(t, "delete of an app with calendars", f.DeleteApp(ctx, "shop", at(t0)), dispatcher.ErrNotEmpty)
}

func testCalendarChains(t *testing.T, f *fixture) {
	ctx := t.Context()
	based := func(name string, bases ...string) dispatcher.Calendar {
		c := calendar(name)
		c.Bases = bases
		return c
	}
	var problems input.Problems
	if _, _, err := f.PutCalendar(ctx, based("a", "none"), at(t0)); !errors.As(err, &problems) ||
		problems[0].Code != input.CodeCalendarUnknown {
		t.Errorf("unknown base: got %v", err)
	}
	f.putCalendar(based("a"), t0)
	f.putCalendar(based("b", "a"), t0)
	if _, _, err := f.PutCalendar(ctx, based("a", "b"), at(t0)); !errors.As(err, &problems) ||
		problems[0].Code != input.CodeCalendarBase {
		t.Errorf("a circle: got %v", err)
	}
	if err := f.DeleteCalendar(ctx, "shop", "a", at(t0)); !errors.Is(err, dispatcher.ErrInUse) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("delete of a base: got %v, want it to name its user", err)
	}
	// A trigger under b feels a change of a.
	tick := every(time.Minute, t0.Add(time.Minute))
	tick.Calendar = "b"
	f.put(job("j", map[string]dispatcher.Trigger{"tick": tick}), t0)
	f.putCalendar(calendar("a", allDay), t0)
	if got := f.trigger("j"); got.State != dispatcher.TriggerComplete || got.NextFireTime != nil {
		t.Errorf("under a base that excludes all: got %+v, want no fire", got)
	}
	if err := f.DeleteCalendar(ctx, "shop", "b", at(t0)); !errors.Is(err, dispatcher.ErrInUse) || !strings.Contains(err.Error(), `"j"`) {
		t.Errorf("delete of a calendar in use: got %v, want it to name the job", err)
	}
}

func testRescheduleForCalendar(t *testing.T, f *fixture) {
	f.putCalendar(calendar("freeze"), t0)
	f.putCalendar(calendar("other"), t0)
	before := f.careful("j")
	stale := f.nextAdvance()
	revision, all, err := f.AppCalendars(t.Context(), "shop")
	f.must(err)
	if len(all) != 2 || revision != stale.CalendarRevision {
		t.Errorf("calendars: got %d at revision %d, want 2 at that of the trigger, %d", len(all), revision, stale.CalendarRevision)
	}
	f.putCalendar(calendar("other", allDay), t0)
	described := calendar("freeze")
	described.Description = "no rule changes"
	f.putCalendar(described, t0)
	if now := f.nextAdvance(); now.CalendarRevision != stale.CalendarRevision {
		t.Error("a trigger was touched by a change that does not concern it")
	}

	// Two instants are due when the calendar closes.
	f.putCalendar(calendar("freeze", schedule.CalendarRule{To: "11:00"}), t0.Add(150*time.Second))
	if won := f.claim(stale); len(won) != 0 {
		t.Errorf("a node with the older calendar won %d fires", len(won))
	}
	closed, err := f.Job(t.Context(), "shop", "j")
	f.must(err)
	if got := closed.Triggers["tick"].NextFireTime; closed.Revision != before.Revision || got == nil || !got.Equal(t0.Add(time.Hour)) {
		t.Errorf("got next fire %v at revision %d, want when it opens, at revision %d", got, closed.Revision, before.Revision)
	}
	misfires, err := f.Misfires(t.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 5}})
	f.must(err)
	if len(misfires) != 1 || misfires[0].Count != 2 || misfires[0].Decision != dispatcher.DecisionFireOnce || misfires[0].Run == "" {
		t.Errorf("got misfires %+v, want a catch-up run for the 2 instants", misfires)
	}
	if won := f.claim(f.nextAdvance()); len(won) != 1 {
		t.Errorf("a node with the new calendar won %d fires, want 1", len(won))
	}
}

// Calendars, jobs and claims change the same rows at once.
func testCalendarRace(t *testing.T, f *fixture) {
	f.putCalendar(calendar("freeze"), t0)
	for _, name := range []string{"a", "b", "c", "d"} {
		f.careful(name)
	}
	var all sync.WaitGroup
	each := func(do func(i int) error) {
		all.Go(func() {
			for i := range 20 {
				if err := do(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	each(func(i int) error {
		c := calendar("freeze", schedule.CalendarRule{DaysOfMonth: []int{2 + i%20}})
		_, _, err := f.PutCalendar(t.Context(), c, at(t0))
		return err
	})
	for _, name := range []string{"d", "a"} {
		each(func(i int) error {
			tick := every(time.Duration(i+1)*time.Minute, t0.Add(time.Minute))
			tick.Calendar = "freeze"
			_, _, err := f.PutJob(t.Context(), job(name, map[string]dispatcher.Trigger{"tick": tick}), at(t0))
			return err
		})
	}
	each(func(int) error {
		due, err := f.Due(t.Context(), dispatcher.DueQuery{Until: t0.Add(time.Hour), Now: t0, Limit: 10})
		if err != nil {
			return err
		}
		batch := dispatcher.ClaimBatch{Node: nodeA, Token: f.token(), Now: t0.Add(time.Hour)}
		for _, d := range due {
			batch.Advances = append(batch.Advances, f.advance(d))
		}
		_, err = f.Claim(t.Context(), batch)
		return err
	})
	all.Wait()
	for _, name := range []string{"a", "b", "c", "d"} {
		if got := f.trigger(name); got.NextFireTime == nil || got.PrevFireTime != nil && !got.NextFireTime.After(*got.PrevFireTime) {
			t.Errorf("trigger of %s fires next at %v after %v", name, got.NextFireTime, got.PrevFireTime)
		}
	}
}
