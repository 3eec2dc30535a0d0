package api

import (
	"context"
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
)

func (a *API) listRuns(r *request) (response, error) {
	query, err := r.runQuery()
	if err != nil {
		return response{}, err
	}
	return paged(query.Page, func(run dispatcher.Run) string { return run.ID }, func(page dispatcher.Page) ([]dispatcher.Run, error) {
		query.Page = page
		return a.store.Runs(r.Context(), query)
	})
}

func (a *API) listMisfires(r *request) (response, error) {
	query, err := r.runQuery()
	if err != nil {
		return response{}, err
	}
	return paged(query.Page, dispatcher.Misfire.Cursor, func(page dispatcher.Page) ([]dispatcher.Misfire, error) {
		query.Page = page
		return a.store.Misfires(r.Context(), query)
	})
}

func (a *API) getRun(r *request) (response, error) {
	run, err := a.visibleRun(r)
	return response{body: run}, err
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

func (a *API) cancelRun(r *request) (response, error) {
	return a.changeRun(r, a.store.CancelRun, func(dispatcher.Run) error { return nil }, "its outcome stands; retry repeats it")
}

func (a *API) retryRun(r *request) (response, error) {
	return a.changeRun(r, a.store.RetryRun, func(run dispatcher.Run) error {
		if run.State == dispatcher.RunQueued || run.State == dispatcher.RunClaimed {
			return nil // which the store refuses, and is the better reason
		}
		return a.mayRun(r, run.App)
	},
		"wait for its end, or cancel it first")
}

// changeRun writes to the run that the path names, if may allows it. wayOut is for a run
// whose state does not.
func (a *API) changeRun(r *request, write func(context.Context, string, dispatcher.Change) (dispatcher.Run, error),
	may func(dispatcher.Run) error, wayOut string,
) (response, error) {
	if err := r.decodeNothing(); err != nil {
		return response{}, err
	}
	run, err := a.visibleRun(r)
	if err != nil {
		return response{}, err
	}
	if err := may(run); err != nil {
		return response{}, err
	}
	run, err = write(r.Context(), run.ID, dispatcher.Change{Actor: r.token.Name})
	return response{body: run}, conflict(err, wayOut)
}

// mayRun refuses to queue a run that no node would claim. An app that is not there is left
// to the store.
func (a *API) mayRun(r *request, name string) error {
	app, err := a.store.App(r.Context(), name)
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		return nil
	case err != nil || app.Enabled:
		return err
	}
	return refuse(dispatcher.CodeAppDisabled, "app %s is disabled, so no node would claim the run; enable it first, in Terraform or with PATCH /v1/apps/%s",
		dispatcher.Echo(name), name)
}
