package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

func (a *API) listCalendars(r *request) (response, error) {
	name := func(c dispatcher.Calendar) string { return c.Name }
	return pagedByName(r, name, func(page dispatcher.Page) ([]dispatcher.Calendar, error) {
		return a.store.Calendars(r.Context(), r.PathValue("app"), page)
	})
}

func (a *API) getCalendar(r *request) (response, error) {
	calendar, err := a.store.Calendar(r.Context(), r.PathValue("app"), r.PathValue("calendar"))
	return response{revision: calendar.Revision, body: calendar}, err
}

func (a *API) putCalendar(r *request) (response, error) {
	calendar := dispatcher.Calendar{App: r.PathValue("app"), Name: r.PathValue("calendar")}
	problems := r.decode(&calendar)
	mustMatch(&problems, "/app", calendar.App, r.PathValue("app"))
	mustMatch(&problems, "/name", calendar.Name, r.PathValue("calendar"))
	addInvalid(&problems, calendar.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	return a.put(r, func(change dispatcher.Change) (response, bool, error) {
		stored, created, err := a.store.PutCalendar(r.Context(), calendar, change)
		return response{revision: stored.Revision, body: stored}, created, err
	})
}

func (a *API) deleteCalendar(r *request) (response, error) {
	change, err := a.change(r)
	if err != nil {
		return response{}, err
	}
	err = a.store.DeleteCalendar(r.Context(), r.PathValue("app"), r.PathValue("calendar"), change)
	if errors.Is(err, dispatcher.ErrInUse) {
		use := strings.TrimSuffix(err.Error(), ": "+dispatcher.ErrInUse.Error())
		return response{}, refuse(dispatcher.CodeCalendarInUse, "%s; remove it there first", use)
	}
	return response{status: http.StatusNoContent}, a.explainFailed(r, change, err)
}
