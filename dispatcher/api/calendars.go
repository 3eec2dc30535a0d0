package api

import (
	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// listCalendars lists the calendars of an app by name.
func (a *API) listCalendars(r *request) (response, error) {
	name := func(c dispatcher.Calendar) string { return c.Name }
	return pagedByName(r, name, func(page input.Page) ([]dispatcher.Calendar, error) {
		return a.store.Calendars(r.Context(), r.PathValue("app"), page)
	})
}

// getCalendar gets a calendar.
func (a *API) getCalendar(r *request) (response, error) {
	calendar, err := a.store.Calendar(r.Context(), r.PathValue("app"), r.PathValue("calendar"))
	return response{revision: calendar.Revision, body: calendar}, err
}

// putCalendar creates or replaces a calendar. In the same transaction, all triggers that use the calendar,
// directly or through another calendar, get new fire times. The revisions of their jobs do not change. If a
// fire is due at that moment and the calendar now excludes it, it is recorded as a misfire.
func (a *API) putCalendar(r *request) (response, error) {
	calendar := dispatcher.Calendar{App: r.PathValue("app"), Name: r.PathValue("calendar")}
	problems := r.Decode(&calendar)
	mustMatch(&problems, "/app", calendar.App, r.PathValue("app"))
	mustMatch(&problems, "/name", calendar.Name, r.PathValue("calendar"))
	return put(a, r, calendar, problems, a.store.PutCalendar, func(stored dispatcher.Calendar) int64 { return stored.Revision })
}

// deleteCalendar deletes a calendar. While a trigger or another calendar refers to it, returns 409 with code
// calendar_in_use. With when_unused=true, it returns 202 instead, and the change that removes the last use deletes the
// calendar. A PUT keeps it.
func (a *API) deleteCalendar(r *request) (response, error) {
	app, name := r.PathValue("app"), r.PathValue("calendar")
	return removeUnused(a, r, deletion[dispatcher.Calendar]{
		now: func(by input.Change) error {
			return withRemedy(a.store.DeleteCalendar(r.Context(), app, name, by), dispatcher.ErrInUse, input.CodeCalendarInUse,
				"remove it there first, or delete it with ?when_unused=true")
		},
		whenUnused: func(by input.Change) (*dispatcher.Calendar, error) {
			return a.store.DeleteCalendarWhenUnused(r.Context(), app, name, by)
		},
		revision: func(c dispatcher.Calendar) int64 { return c.Revision },
	})
}
