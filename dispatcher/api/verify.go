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
	page, err := verify.Ledger(r.Context(), a.store, query)
	return response{body: page}, err
}
