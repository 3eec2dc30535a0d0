package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func testCalendars(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	declared := dispatcher.Calendar{App: "crm", Name: "holidays",
		CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{Dates: []string{"12-25"}}}}}
	calendar, err := c.PutCalendar(ctx, declared, client.Condition{Absent: true})
	if err != nil || calendar.Revision != 1 || !cmp.Equal(calendar.Rules, declared.Rules) {
		t.Fatalf("PutCalendar = %+v, %v", calendar, err)
	}
	if got, err := c.Calendar(ctx, "crm", "holidays"); err != nil || !cmp.Equal(got, calendar) {
		t.Errorf("Calendar = %+v, %v, want %+v", got, err, calendar)
	}
	if got, err := c.Calendars(ctx, "crm", input.Page{Limit: 1}); err != nil || len(got.Items) != 1 {
		t.Errorf("Calendars = %+v, %v", got, err)
	}
	user := dispatcher.Calendar{App: "crm", Name: "user", CalendarSpec: dispatcher.CalendarSpec{Bases: []string{"holidays"}}}
	if _, err := c.PutCalendar(ctx, user, client.Condition{}); err != nil {
		t.Error(err)
	}
	if err := c.DeleteCalendar(ctx, "crm", "holidays", client.Condition{Existing: true}); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("DeleteCalendar of one in use = %v, want ErrConflict", err)
	}
	if waiting, err := c.DeleteCalendarWhenUnused(ctx, "crm", "holidays", client.Condition{Existing: true}); err != nil || !waiting {
		t.Errorf("DeleteCalendarWhenUnused of one in use = %t, %v, want true", waiting, err)
	}
	if waiting, err := c.DeleteCalendarWhenUnused(ctx, "crm", "user", client.Condition{Existing: true}); err != nil || waiting {
		t.Errorf("DeleteCalendarWhenUnused of one that is not in use = %t, %v, want false", waiting, err)
	}
	for _, name := range []string{"user", "holidays"} {
		if _, err := c.PutCalendar(ctx, dispatcher.Calendar{App: "crm", Name: name}, client.Condition{}); err != nil {
			t.Error(err)
		}
		if err := c.DeleteCalendar(ctx, "crm", name, client.Condition{Existing: true}); err != nil {
			t.Error(err)
		}
	}
}
