package api

import (
	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// preview uses the database's clock, as a declaration of the schedule would, and the calendars of
// the app in the request.
func (a *API) preview(r *request) (response, error) {
	var asked view.PreviewRequest
	problems := r.Decode(&asked)
	if asked.App != "" && !r.MaySee(asked.App) {
		return response{}, r.NotBound(asked.App)
	}
	if asked.App != "" && asked.NeedsTimezone() {
		defaults, err := a.store.JobDefaults(r.Context(), asked.App)
		if err != nil {
			return response{}, err
		}
		if defaults != nil {
			asked.Timezone = defaults.Timezone
		}
	}
	decode.AddInvalid(&problems, asked.CheckTimezone())
	decode.AddInvalid(&problems, asked.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	var calendars dispatcher.Calendars
	if asked.Calendar != "" {
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
	ctx, done, err := a.gate.Evaluate(r.Request, gate.EvaluationTimeout)
	if err != nil {
		return response{}, err
	}
	defer done()
	found, err := asked.Preview(ctx, calendars, now)
	return response{body: found}, err
}
