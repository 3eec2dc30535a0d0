package api

import "github.com/carillon-dev/carillon/dispatcher"

func (a *API) getRewind(r *request) (answer, error) {
	rewind, err := a.store.Rewind(r.Context())
	if err == nil && rewind == nil {
		err = dispatcher.NotFound("rewind", "of this database")
	}
	return answer{body: rewind}, err
}

// resolveRewind serves what an operator may choose.
func resolveRewind(choice dispatcher.RewindChoice) func(*API, *request) (answer, error) {
	return func(a *API, r *request) (answer, error) {
		if err := r.decodeNothing(); err != nil {
			return answer{}, err
		}
		rewind, err := a.store.ResolveRewind(r.Context(), choice, dispatcher.Change{Actor: r.token.Name})
		return answer{body: rewind}, conflict(err, "GET /v1/rewind tells how it stands")
	}
}
