package api

import "github.com/carillon-dev/carillon/dispatcher"

// preview works by the database's clock, by which the schedule would be armed, and with the
// calendars of the app that it names.
func (a *API) preview(r *request) (response, error) {
	var asked dispatcher.PreviewRequest
	problems := r.decode(&asked)
	addMeaning(&problems, asked.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	var calendars dispatcher.Calendars
	if asked.Calendar != "" {
		if !r.maySee(asked.App) {
			return response{}, notBound(r.token, asked.App)
		}
		_, all, err := a.store.AppCalendars(r.Context(), asked.App)
		if err != nil {
			return response{}, err
		}
		calendars = dispatcher.CompileCalendars(all)
	}
	now, err := a.store.Clock(r.Context())
	if err != nil {
		return response{}, err
	}
	found, err := asked.Preview(calendars, now)
	return response{body: found}, err
}
