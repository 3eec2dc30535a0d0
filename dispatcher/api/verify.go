package api

import (
	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// verify compares the ledger of an app with its schedules.
func (a *API) verify(r *request) (response, error) {
	var problems dispatcher.Problems
	query := verify.Query{
		App: r.PathValue("app"), From: r.instant(&problems, "from"), To: r.instant(&problems, "to"),
		Page: r.page(&problems, verify.IsCursor),
	}
	checkOrder(&problems, query.From, query.To)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	ctx, done, err := a.evaluate(r, verifyTimeout)
	if err != nil {
		return response{}, err
	}
	defer done()
	page, err := verify.Ledger(ctx, a.store, query)
	return response{body: page}, err
}

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
	ctx, done, err := a.evaluate(r, evaluationTimeout)
	if err != nil {
		return response{}, err
	}
	defer done()
	found, err := verify.Explain(ctx, a.store, verify.ExplainQuery{
		App: r.PathValue("app"), Job: r.PathValue("job"), Trigger: r.PathValue("trigger"), At: at,
	})
	return response{body: found}, err
}
