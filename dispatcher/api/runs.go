package api

import (
	"context"
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
)

func (a *API) listRuns(r *request) (answer, error) {
	query, err := r.runQuery()
	if err != nil {
		return answer{}, err
	}
	return paged(query.Page, func(run dispatcher.Run) string { return run.ID }, func(page dispatcher.Page) ([]dispatcher.Run, error) {
		query.Page = page
		return a.store.Runs(r.Context(), query)
	})
}

func (a *API) listMisfires(r *request) (answer, error) {
	query, err := r.runQuery()
	if err != nil {
		return answer{}, err
	}
	return paged(query.Page, dispatcher.Misfire.Cursor, func(page dispatcher.Page) ([]dispatcher.Misfire, error) {
		query.Page = page
		return a.store.Misfires(r.Context(), query)
	})
}

func (a *API) getRun(r *request) (answer, error) {
	run, err := a.visibleRun(r)
	return answer{body: run}, err
}

// visibleRun reads the run that the path names. Runs that there are not, that another app
// has and ids that are none are answered alike.
func (a *API) visibleRun(r *request) (dispatcher.Run, error) {
	id := r.PathValue("run")
	missing := dispatcher.NotFound("run", id)
	if !isRunID(id) {
		return dispatcher.Run{}, missing
	}
	run, err := a.store.Run(r.Context(), id)
	if errors.Is(err, dispatcher.ErrNotFound) || err == nil && !r.maySee(run.App) {
		return dispatcher.Run{}, missing
	}
	return run, err
}

func (a *API) cancelRun(r *request) (answer, error) { return a.changeRun(r, a.store.CancelRun) }
func (a *API) retryRun(r *request) (answer, error)  { return a.changeRun(r, a.store.RetryRun) }

func (a *API) changeRun(r *request, write func(context.Context, string, dispatcher.Change) (dispatcher.Run, error)) (answer, error) {
	if err := r.decodeNothing(); err != nil {
		return answer{}, err
	}
	if _, err := a.visibleRun(r); err != nil {
		return answer{}, err
	}
	run, err := write(r.Context(), r.PathValue("run"), dispatcher.Change{Actor: r.token.Name})
	return answer{body: run}, err
}
