package storetest

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
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
	tick := every(time.Minute, t0.Add(time.Minute))
	tick.Calendar = calendar
	return job(name, map[string]dispatcher.Trigger{"tick": tick})
}

func (f *fixture) wantCalendar(what, name string, marked bool) dispatcher.Calendar {
	f.Helper()
	c, err := f.Calendar(f.Context(), "shop", name)
	if err != nil || (c.RemovalRequestedAt != nil) != marked {
		f.Errorf("%s: calendar %s is marked at %v, error %v; want marked: %t", what, name, c.RemovalRequestedAt, err, marked)
	}
	return c
}

func (f *fixture) wantNoCalendar(what, name string) {
	f.Helper()
	_, err := f.Calendar(f.Context(), "shop", name)
	wantError(f.T, what+": read calendar "+name, err, dispatcher.ErrNotFound)
}

func testCalendarWhenUnused(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putCalendar(calendar("free"), t0)
	if marked, err := f.DeleteCalendarWhenUnused(ctx, "shop", "free", at(t0)); err != nil || marked != nil {
		t.Errorf("delete of what nothing uses: marked %+v, %v, want it deleted", marked, err)
	}
	f.wantNoCalendar("without a use", "free")
	was := f.putCalendar(calendar("freeze"), t0)
	for _, name := range []string{"a", "b", "c"} {
		f.put(using(name, "freeze"), t0)
	}
	_, err := f.DeleteCalendarWhenUnused(ctx, "shop", "freeze", input.Change{IfRevision: was.Revision + 1, Now: t0})
	wantError(t, "delete of another revision", err, dispatcher.ErrPrecondition)
	marked, err := f.DeleteCalendarWhenUnused(ctx, "shop", "freeze", at(t0))
	f.must(err)
	if marked == nil || marked.RemovalRequestedAt == nil || !marked.RemovalRequestedAt.Equal(t0) || marked.Revision != was.Revision+1 {
		t.Fatalf("delete of what is used: %+v, want it marked, at the next revision", marked)
	}
	again, err := f.DeleteCalendarWhenUnused(ctx, "shop", "freeze", at(t0.Add(time.Minute)))
	f.must(err)
	if again == nil || again.Revision != marked.Revision || !again.RemovalRequestedAt.Equal(t0) {
		t.Errorf("deleted once more: %+v, want it as it was", again)
	}
	f.must(f.DeleteJob(ctx, "shop", "a", at(t0)))
	f.wantCalendar("used by two", "freeze", true)
	f.put(using("b", ""), t0)
	f.wantCalendar("used by one", "freeze", true)
	f.put(job("c", nil), t0)
	f.wantNoCalendar("used by none", "freeze")
	entries := f.auditLog(access.AuditQuery{Subject: "calendar freeze", OldestFirst: true})
	if got, want := words(entries), "put calendar freeze, delete when unused calendar freeze, delete calendar freeze"; len(got) != 3 ||
		got[0]+", "+got[1]+", "+got[2] != want {
		t.Errorf("audit log: %v, want %s", got, want)
	}
}

func testCalendarKept(t *testing.T, f *fixture) {
	ctx := t.Context()
	freeze := calendar("freeze")
	f.putCalendar(freeze, t0)
	f.put(using("a", "freeze"), t0)
	marked, err := f.DeleteCalendarWhenUnused(ctx, "shop", "freeze", at(t0))
	f.must(err)
	kept := f.putCalendar(*marked, t0)
	if kept.RemovalRequestedAt != nil || kept.Revision != marked.Revision+1 {
		t.Errorf("put again: %+v, want no mark, at the next revision", kept)
	}
	f.must(f.DeleteJob(ctx, "shop", "a", at(t0)))
	f.wantCalendar("put again", "freeze", false)
}

func testBaseWhenUnused(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putCalendar(calendar("base"), t0)
	on := calendar("built")
	on.Bases = []string{"base"}
	f.putCalendar(on, t0)
	f.put(using("a", "built"), t0)
	for _, name := range []string{"base", "built"} {
		if marked, err := f.DeleteCalendarWhenUnused(ctx, "shop", name, at(t0)); err != nil || marked == nil {
			t.Fatalf("delete of %s: marked %+v, %v, want it marked", name, marked, err)
		}
	}
	f.must(f.DeleteJob(ctx, "shop", "a", at(t0)))
	f.wantNoCalendar("after its job", "built")
	f.wantNoCalendar("after the calendar that is built on it", "base")

	f.putCalendar(calendar("base"), t0)
	f.putCalendar(on, t0)
	f.must(f.DeleteCalendarWhenUnused(ctx, "shop", "base", at(t0)))
	on.Bases = nil
	f.putCalendar(on, t0)
	f.wantNoCalendar("after the last calendar has another base", "base")
}
