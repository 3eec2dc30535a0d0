package api

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func (a *API) getState(r *request) (response, error) {
	state, err := a.store.CarriedState(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{revision: state.Revision, body: state}, err
}

func (a *API) putState(r *request) (response, error) {
	var state run.CarriedState
	problems := r.Decode(&state)
	write := func(ctx context.Context, state run.CarriedState, change input.Change) (run.CarriedState, bool, error) {
		stored, err := a.store.SetCarriedState(ctx, r.PathValue("app"), r.PathValue("job"), state.State, change)
		return stored, false, err
	}
	return put(a, r, state, problems, write, func(stored run.CarriedState) int64 { return stored.Revision })
}

func (a *API) deleteState(r *request) (response, error) {
	return a.remove(r, func(change input.Change) error {
		_, err := a.store.SetCarriedState(r.Context(), r.PathValue("app"), r.PathValue("job"), nil, change)
		return err
	})
}

func (a *API) getObjective(r *request) (response, error) {
	status, err := a.store.ObjectiveStatus(r.Context(), r.PathValue("app"), r.PathValue("job"))
	return response{body: status}, err
}

func (a *API) listObjectives(r *request) (response, error) {
	name := func(s dispatcher.ObjectiveStatus) string { return s.Job }
	return pagedByName(r, name, func(page input.Page) ([]dispatcher.ObjectiveStatus, error) {
		return a.store.ObjectiveStatuses(r.Context(), r.PathValue("app"), page)
	})
}
