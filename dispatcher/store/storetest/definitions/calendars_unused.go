package definitions

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// unusedCalendarTests are those of calendars that go with their last use.
func unusedCalendarTests() tests {
	return tests{
		"a calendar goes with its last use":               testCalendarWhenUnused,
		"a calendar that goes with its last use may stay": testCalendarKept,
		"a calendar goes with what is built on it":        testBaseWhenUnused,
	}
}

// using is a job with a trigger under a calendar.
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
