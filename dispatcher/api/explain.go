package api

import (
	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// explain says what became of one scheduled time of a trigger.
func (a *API) explain(r *request) (response, error) {
	var problems dispatcher.Problems
	at := r.instant(&problems, "at")
	if at.IsZero() && len(problems) == 0 {
		problems.Add("/at", dispatcher.CodeRequired,
			"at is missing; give the scheduled time to explain, such as at=2026-05-01T10:00:00Z")
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	found, err := verify.Explain(r.Context(), a.store, verify.ExplainQuery{
		App: r.PathValue("app"), Job: r.PathValue("job"), Trigger: r.PathValue("trigger"), At: at,
	})
	return response{body: found}, err
}
