package api

import (
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// verify compares the ledger of an app with its schedules.
func (a *API) verify(r *request) (response, error) {
	var problems input.Problems
	query := verify.Query{
		App: r.PathValue("app"), From: r.instant(&problems, "from"), To: r.instant(&problems, "to"),
		Page: r.page(&problems, verify.IsCursor),
	}
	checkOrder(&problems, query.From, query.To)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	ctx, done, err := a.gate.Evaluate(r.Request, gate.VerifyTimeout)
	if err != nil {
		return response{}, err
	}
	defer done()
	page, err := verify.Ledger(ctx, a.store, query)
	return response{body: page}, err
}

// explain says what became of one scheduled time of a trigger.
func (a *API) explain(r *request) (response, error) {
	var problems input.Problems
	at := r.instant(&problems, "at")
	if at.IsZero() && len(problems) == 0 {
		problems.Add("/at", input.CodeRequired,
			"at is missing; give the scheduled time to explain, such as at=2026-05-01T10:00:00Z")
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	ctx, done, err := a.gate.Evaluate(r.Request, gate.EvaluationTimeout)
	if err != nil {
		return response{}, err
	}
	defer done()
	found, err := verify.Explain(ctx, a.store, verify.ExplainQuery{
		App: r.PathValue("app"), Job: r.PathValue("job"), Trigger: r.PathValue("trigger"), At: at,
	})
	return response{body: found}, err
}

// strip says what became of the latest scheduled times of one trigger, and which are next.
func (a *API) strip(r *request) (response, error) {
	var problems input.Problems
	query := view.StripQuery{
		App: r.PathValue("app"), Job: r.PathValue("job"), Trigger: r.PathValue("trigger"),
		Past: r.count(&problems, "past", view.DefaultStripPast, view.MostStripPast),
		Next: r.count(&problems, "next", view.DefaultStripNext, view.MostStripNext),
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	ctx, done, err := a.gate.Evaluate(r.Request, gate.EvaluationTimeout)
	if err != nil {
		return response{}, err
	}
	defer done()
	found, err := verify.Strip(ctx, a.store, query)
	return response{body: found}, err
}

// count reads a query parameter that is a number from 0 to most.
func (r *request) count(problems *input.Problems, name string, otherwise, most int) int {
	values := r.URL.Query()
	if !values.Has(name) {
		return otherwise
	}
	n, err := strconv.Atoi(values.Get(name))
	if err != nil || n < 0 || n > most {
		problems.Add("/"+name, input.CodePageLimit, "%s %s is not a number from 0 to %d", name, input.Echo(values.Get(name)), most)
	}
	return n
}
