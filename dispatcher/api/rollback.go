package api

import "github.com/carillon-dev/carillon/dispatcher"

func (a *API) getRollback(r *request) (response, error) {
	rollback, err := a.store.Rollback(r.Context())
	if err == nil && rollback == nil {
		err = dispatcher.NotFound("rollback", "of this database")
	}
	return response{body: rollback}, err
}

// resolveRollback serves skip and replay.
func resolveRollback(choice dispatcher.RollbackChoice) func(*API, *request) (response, error) {
	return func(a *API, r *request) (response, error) {
		if err := r.expectNoBody(); err != nil {
			return response{}, err
		}
		rollback, err := a.store.ResolveRollback(r.Context(), choice, dispatcher.Change{Actor: r.token.Name})
		return response{body: rollback}, conflict(err, "see GET /v1/rollback")
	}
}
