package api

import "github.com/carillon-dev/carillon/dispatcher"

// preview works by the database's clock, by which the schedule would be armed, and with the
// calendars of the app that it names.
func (a *API) preview(r *request) (answer, error) {
	var asked dispatcher.PreviewRequest
	faults := r.decode(&asked)
	addMeaning(&faults, asked.Validate())
	if err := faults.Err(); err != nil {
		return answer{}, err
	}
	var calendars dispatcher.Calendars
	if asked.Calendar != "" {
		if !r.maySee(asked.App) {
			return answer{}, notBound(r.token, asked.App)
		}
		_, all, err := a.store.AppCalendars(r.Context(), asked.App)
		if err != nil {
			return answer{}, err
		}
		calendars = dispatcher.CompileCalendars(all)
	}
	now, err := a.store.Clock(r.Context())
	if err != nil {
		return answer{}, err
	}
	found, err := asked.Preview(calendars, now)
	return answer{body: found}, err
}
