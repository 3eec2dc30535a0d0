package definitions

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
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

// allDay excludes everything.
var allDay = schedule.CalendarRule{From: "00:00", To: "00:00"}

func testCalendars(t *testing.T, f *wing) {
	ctx := t.Context()
	declared := fixture.Calendar("holidays", schedule.CalendarRule{Only: true, Dates: []string{"12-25"}}, allDay)
	declared.Description, declared.Timezone, declared.Bases = "days off", "Europe/Berlin", nil
	stored, _, err := f.PutCalendar(ctx, declared, input.Change{IfAbsent: true, Now: fixture.T0})
	f.Must(err)
	want := declared
	want.Revision, want.CreatedAt, want.UpdatedAt = 1, fixture.T0, fixture.T0
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error("a new calendar (-want +got):\n" + diff)
	}
	_, _, err = f.PutCalendar(ctx, declared, input.Change{IfAbsent: true, Now: fixture.T0})
	fixture.WantError(t, "put if absent", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutCalendar(ctx, declared, input.Change{IfRevision: 7, Now: fixture.T0})
	fixture.WantError(t, "put of another revision", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutCalendar(ctx, dispatcher.Calendar{App: "none", Name: "c"}, fixture.At(fixture.T0))
	fixture.WantError(t, "put into no app", err, dispatcher.ErrNotFound)
	_, err = f.Calendar(ctx, "shop", "none")
	fixture.WantError(t, "read of none", err, dispatcher.ErrNotFound)

	f.DeclareCalendar(fixture.Calendar("all"), fixture.T0)
	page, err := f.Calendars(ctx, "shop", input.Page{Limit: 10, Cursor: "all"})
	f.Must(err)
	if diff := cmp.Diff([]dispatcher.Calendar{want}, page); diff != "" {
		t.Error("the page after the first (-want +got):\n" + diff)
	}
	fixture.WantError(t, "delete of another revision", f.DeleteCalendar(ctx, "shop", "holidays",
		input.Change{IfRevision: 9}), dispatcher.ErrPrecondition)
	f.Must(f.DeleteCalendar(ctx, "shop", "holidays", fixture.At(fixture.T0)))
	_, err = f.Calendar(ctx, "shop", "holidays")
	fixture.WantError(t, "read of what was deleted", err, dispatcher.ErrNotFound)
	if again := f.DeclareCalendar(declared, fixture.T0.Add(time.Hour)); again.Revision != 2 ||
		!again.CreatedAt.Equal(fixture.T0.Add(time.Hour)) {
		t.Errorf("made again: got revision %d of %v, want 2, made then", again.Revision, again.CreatedAt)
	}
	fixture.WantError(t, "delete of an app with calendars", f.DeleteApp(ctx, "shop", fixture.At(fixture.T0)), dispatcher.ErrNotEmpty)
}

func testCalendarChains(t *testing.T, f *wing) {
	ctx := t.Context()
	based := func(name string, bases ...string) dispatcher.Calendar {
		c := fixture.Calendar(name)
		c.Bases = bases
		return c
	}
	var problems input.Problems
	if _, _, err := f.PutCalendar(ctx, based("a", "none"), fixture.At(fixture.T0)); !errors.As(err, &problems) ||
		problems[0].Code != input.CodeCalendarUnknown {
		t.Errorf("unknown base: got %v", err)
	}
	f.DeclareCalendar(based("a"), fixture.T0)
	f.DeclareCalendar(based("b", "a"), fixture.T0)
	if _, _, err := f.PutCalendar(ctx, based("a", "b"), fixture.At(fixture.T0)); !errors.As(err, &problems) ||
		problems[0].Code != input.CodeCalendarBase {
		t.Errorf("a circle: got %v", err)
	}
	if err := f.DeleteCalendar(ctx, "shop", "a", fixture.At(fixture.T0)); !errors.Is(err,
		dispatcher.ErrInUse) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("delete of a base: got %v, want it to name its user", err)
	}
	// A change of a affects a trigger under b.
	tick := fixture.Every(time.Minute, fixture.T0.Add(time.Minute))
	tick.Calendar = "b"
	f.Put(fixture.Job("j", map[string]dispatcher.Trigger{"tick": tick}), fixture.T0)
	f.DeclareCalendar(fixture.Calendar("a", allDay), fixture.T0)
	if got := f.Trigger("j"); got.State != dispatcher.TriggerComplete || got.NextFireTime != nil {
		t.Errorf("under a base that excludes all: got %+v, want no fire", got)
	}
	if err := f.DeleteCalendar(ctx, "shop", "b", fixture.At(fixture.T0)); !errors.Is(err,
		dispatcher.ErrInUse) || !strings.Contains(err.Error(), `"j"`) {
		t.Errorf("delete of a calendar in use: got %v, want it to name the job", err)
	}
}

func testRescheduleForCalendar(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Calendar("freeze"), fixture.T0)
	f.DeclareCalendar(fixture.Calendar("other"), fixture.T0)
	before := f.Careful("j")
	stale := f.NextAdvance()
	revision, all, err := f.AppCalendars(t.Context(), "shop")
	f.Must(err)
	if len(all) != 2 || revision != stale.CalendarRevision {
		t.Errorf("calendars: got %d at revision %d, want 2 at that of the trigger, %d", len(all), revision, stale.CalendarRevision)
	}
	f.DeclareCalendar(fixture.Calendar("other", allDay), fixture.T0)
	described := fixture.Calendar("freeze")
	described.Description = "no rule changes"
	f.DeclareCalendar(described, fixture.T0)
	if now := f.NextAdvance(); now.CalendarRevision != stale.CalendarRevision {
		t.Error("a trigger was touched by a change that does not concern it")
	}

	// Two instants are due when the calendar closes.
	f.DeclareCalendar(fixture.Calendar("freeze", schedule.CalendarRule{To: "11:00"}), fixture.T0.Add(150*time.Second))
	if won := f.ClaimAll(stale); len(won) != 0 {
		t.Errorf("a node with the older calendar won %d fires", len(won))
	}
	closed, err := f.Job(t.Context(), "shop", "j")
	f.Must(err)
	if got := closed.Triggers["tick"].NextFireTime; closed.Revision != before.Revision || got == nil || !got.Equal(fixture.T0.Add(time.Hour)) {
		t.Errorf("got next fire %v at revision %d, want when it opens, at revision %d", got, closed.Revision, before.Revision)
	}
	misfires, err := f.Misfires(t.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 5}})
	f.Must(err)
	if len(misfires) != 1 || misfires[0].Count != 2 || misfires[0].Decision != dispatcher.DecisionFireOnce || misfires[0].Run == "" {
		t.Errorf("got misfires %+v, want a catch-up run for the 2 instants", misfires)
	}
	if won := f.ClaimAll(f.NextAdvance()); len(won) != 1 {
		t.Errorf("a node with the new calendar won %d fires, want 1", len(won))
	}
}

// Calendars, jobs and claims change the same rows at once.
func testCalendarRace(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Calendar("freeze"), fixture.T0)
	for _, name := range []string{"a", "b", "c", "d"} {
		f.Careful(name)
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
		c := fixture.Calendar("freeze", schedule.CalendarRule{DaysOfMonth: []int{2 + i%20}})
		_, _, err := f.PutCalendar(t.Context(), c, fixture.At(fixture.T0))
		return err
	})
	for _, name := range []string{"d", "a"} {
		each(func(i int) error {
			tick := fixture.Every(time.Duration(i+1)*time.Minute, fixture.T0.Add(time.Minute))
			tick.Calendar = "freeze"
			_, _, err := f.PutJob(t.Context(), fixture.Job(name, map[string]dispatcher.Trigger{"tick": tick}), fixture.At(fixture.T0))
			return err
		})
	}
	each(func(int) error {
		due, err := f.Due(t.Context(), dispatcher.DueQuery{Until: fixture.T0.Add(time.Hour), Now: fixture.T0, Limit: 10})
		if err != nil {
			return err
		}
		batch := dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken(), Now: fixture.T0.Add(time.Hour)}
		for _, d := range due {
			batch.Advances = append(batch.Advances, f.Advance(d))
		}
		_, err = f.Claim(t.Context(), batch)
		return err
	})
	all.Wait()
	for _, name := range []string{"a", "b", "c", "d"} {
		if got := f.Trigger(name); got.NextFireTime == nil || got.PrevFireTime != nil && !got.NextFireTime.After(*got.PrevFireTime) {
			t.Errorf("trigger of %s fires next at %v after %v", name, got.NextFireTime, got.PrevFireTime)
		}
	}
}

// unusedCalendarTests test calendars that are deleted after their last use.
func unusedCalendarTests() tests {
	return tests{
		"a calendar is deleted after its last use":         testCalendarWhenUnused,
		"a calendar marked for deletion may stay":          testCalendarKept,
		"a base is deleted with the calendars built on it": testBaseWhenUnused,
	}
}

// using returns a job with a trigger under a calendar.
func using(name, calendar string) dispatcher.Job {
	tick := fixture.Every(time.Minute, fixture.T0.Add(time.Minute))
	tick.Calendar = calendar
	return fixture.Job(name, map[string]dispatcher.Trigger{"tick": tick})
}

func (f *wing) wantCalendar(what, name string, marked bool) dispatcher.Calendar {
	f.Helper()
	c, err := f.Calendar(f.Context(), "shop", name)
	if err != nil || (c.RemovalRequestedAt != nil) != marked {
		f.Errorf("%s: calendar %s is marked at %v, error %v; want marked: %t", what, name, c.RemovalRequestedAt, err, marked)
	}
	return c
}

func (f *wing) wantNoCalendar(what, name string) {
	f.Helper()
	_, err := f.Calendar(f.Context(), "shop", name)
	fixture.WantError(f.T, what+": read calendar "+name, err, dispatcher.ErrNotFound)
}

func testCalendarWhenUnused(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareCalendar(fixture.Calendar("free"), fixture.T0)
	if marked, err := f.DeleteCalendarWhenUnused(ctx, "shop", "free", fixture.At(fixture.T0)); err != nil || marked != nil {
		t.Errorf("delete of what nothing uses: marked %+v, %v, want it deleted", marked, err)
	}
	f.wantNoCalendar("without a use", "free")
	was := f.DeclareCalendar(fixture.Calendar("freeze"), fixture.T0)
	for _, name := range []string{"a", "b", "c"} {
		f.Put(using(name, "freeze"), fixture.T0)
	}
	_, err := f.DeleteCalendarWhenUnused(ctx, "shop", "freeze", input.Change{IfRevision: was.Revision + 1, Now: fixture.T0})
	fixture.WantError(t, "delete of another revision", err, dispatcher.ErrPrecondition)
	marked, err := f.DeleteCalendarWhenUnused(ctx, "shop", "freeze", fixture.At(fixture.T0))
	f.Must(err)
	if marked == nil || marked.RemovalRequestedAt == nil || !marked.RemovalRequestedAt.Equal(fixture.T0) || marked.Revision != was.Revision+1 {
		t.Fatalf("delete of what is used: %+v, want it marked, at the next revision", marked)
	}
	again, err := f.DeleteCalendarWhenUnused(ctx, "shop", "freeze", fixture.At(fixture.T0.Add(time.Minute)))
	f.Must(err)
	if again == nil || again.Revision != marked.Revision || !again.RemovalRequestedAt.Equal(fixture.T0) {
		t.Errorf("deleted once more: %+v, want it as it was", again)
	}
	f.Must(f.DeleteJob(ctx, "shop", "a", fixture.At(fixture.T0)))
	f.wantCalendar("used by two", "freeze", true)
	f.Put(using("b", ""), fixture.T0)
	f.wantCalendar("used by one", "freeze", true)
	f.Put(fixture.Job("c", nil), fixture.T0)
	f.wantNoCalendar("used by none", "freeze")
	entries := f.AuditLog(access.AuditQuery{Subject: "calendar freeze", OldestFirst: true})
	if got, want := words(entries), "put calendar freeze, delete when unused calendar freeze, delete calendar freeze"; len(got) != 3 ||
		got[0]+", "+got[1]+", "+got[2] != want {
		t.Errorf("audit log: %v, want %s", got, want)
	}
}

func testCalendarKept(t *testing.T, f *wing) {
	ctx := t.Context()
	freeze := fixture.Calendar("freeze")
	f.DeclareCalendar(freeze, fixture.T0)
	f.Put(using("a", "freeze"), fixture.T0)
	marked, err := f.DeleteCalendarWhenUnused(ctx, "shop", "freeze", fixture.At(fixture.T0))
	f.Must(err)
	kept := f.DeclareCalendar(*marked, fixture.T0)
	if kept.RemovalRequestedAt != nil || kept.Revision != marked.Revision+1 {
		t.Errorf("put again: %+v, want no mark, at the next revision", kept)
	}
	f.Must(f.DeleteJob(ctx, "shop", "a", fixture.At(fixture.T0)))
	f.wantCalendar("put again", "freeze", false)
}

func testBaseWhenUnused(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareCalendar(fixture.Calendar("base"), fixture.T0)
	on := fixture.Calendar("built")
	on.Bases = []string{"base"}
	f.DeclareCalendar(on, fixture.T0)
	f.Put(using("a", "built"), fixture.T0)
	for _, name := range []string{"base", "built"} {
		if marked, err := f.DeleteCalendarWhenUnused(ctx, "shop", name, fixture.At(fixture.T0)); err != nil || marked == nil {
			t.Fatalf("delete of %s: marked %+v, %v, want it marked", name, marked, err)
		}
	}
	f.Must(f.DeleteJob(ctx, "shop", "a", fixture.At(fixture.T0)))
	f.wantNoCalendar("after its job", "built")
	f.wantNoCalendar("after the calendar that is built on it", "base")

	f.DeclareCalendar(fixture.Calendar("base"), fixture.T0)
	f.DeclareCalendar(on, fixture.T0)
	f.Must(f.DeleteCalendarWhenUnused(ctx, "shop", "base", fixture.At(fixture.T0)))
	on.Bases = nil
	f.DeclareCalendar(on, fixture.T0)
	f.wantNoCalendar("after the last calendar has another base", "base")
}
