package api

import "github.com/carillon-dev/carillon/dispatcher"

// explain says what became of one instant of a trigger.
func (a *API) explain(r *request) (answer, error) {
	var faults dispatcher.Faults
	at := r.instant(&faults, "at")
	if at.IsZero() && len(faults) == 0 {
		faults.Add("/at", dispatcher.CodeRequired, "at is missing; it is the instant to explain, such as at=2026-05-01T10:00:00Z")
	}
	if err := faults.Err(); err != nil {
		return answer{}, err
	}
	found, err := dispatcher.Explain(r.Context(), a.store, dispatcher.ExplainQuery{
		App: r.PathValue("app"), Job: r.PathValue("job"), Trigger: r.PathValue("trigger"), At: at,
	})
	return answer{body: found}, err
}

// audit reconciles the ledger of an app with its schedules.
func (a *API) audit(r *request) (answer, error) {
	var faults dispatcher.Faults
	query := dispatcher.AuditQuery{
		App: r.PathValue("app"), From: r.instant(&faults, "from"), To: r.instant(&faults, "to"),
		Page: r.page(&faults, dispatcher.IsAuditCursor),
	}
	checkOrder(&faults, query.From, query.To)
	if err := faults.Err(); err != nil {
		return answer{}, err
	}
	page, err := dispatcher.Audit(r.Context(), a.store, query)
	return answer{body: page}, err
}
