package definitions

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// What triggers were is kept as long as what they did.
func testRecords(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareCalendar(fixture.Closed("12-24"), fixture.T0)
	f.PutEvery("tick", time.Hour)
	for day := range 3 {
		f.Must(f.PauseJob(ctx, "shop", "tick", "", day%2 == 0, fixture.At(fixture.T0.AddDate(0, 0, day))))
		f.DeclareCalendar(fixture.Closed(fmt.Sprintf("12-1%d", day)), fixture.T0.AddDate(0, 0, day))
	}
	revisions := func() (n int) {
		records, err := f.TriggerHistories(ctx, run.JobID("shop", "tick"), fixture.T0)
		f.Must(err)
		for _, r := range records {
			n += len(r.Revisions)
		}
		return n
	}
	calendarAt := func(revision int64) int {
		all, err := f.CalendarsAt(ctx, "shop", revision)
		f.Must(err)
		return len(all)
	}
	if n := revisions(); n != 4 || calendarAt(1) != 1 || calendarAt(4) != 1 {
		t.Errorf("%d revisions, want the first and three pauses; %d and %d calendars", n, calendarAt(1), calendarAt(4))
	}
	f.PurgeAll(fixture.ShopEnd.Add(-time.Millisecond))
	if n := revisions(); n != 4 {
		t.Errorf("%d revisions are left while the day of their end is kept", n)
	}
	f.PurgeAll(fixture.ShopEnd.AddDate(0, 0, 1))
	if n := revisions(); n != 2 || calendarAt(1) != 0 || calendarAt(4) != 1 {
		t.Errorf("%d revisions are left, want that which ended later and that in force; %d and %d calendars", n, calendarAt(1), calendarAt(4))
	}
	f.Must(f.DeleteJob(ctx, "shop", "tick", fixture.At(fixture.ShopEnd)))
	f.PurgeAll(fixture.ShopEnd.AddDate(1, 0, 0))
	if n := revisions(); n != 0 {
		t.Errorf("%d revisions of a deleted job are left", n)
	}

	// A longer retention brings nothing back.
	f.Must(f.PutApp(ctx, access.App{Name: "shop",
		AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(90 * 24 * time.Hour)}}, fixture.At(fixture.ShopEnd)))
	for day, want := range map[int]time.Time{0: fixture.ShopEnd.AddDate(0, 0, -30), 59: fixture.ShopEnd.AddDate(0, 0, -30),
		70: fixture.ShopEnd.AddDate(0, 0, -20)} {
		record, err := f.AppHistory(ctx, "shop", time.Time{}, fixture.ShopEnd.AddDate(0, 0, day))
		if err != nil || !record.Since.Equal(want) {
			t.Errorf("history on day %d goes back to %s, %v, want %s", day, record.Since, err, want)
		}
	}
}
