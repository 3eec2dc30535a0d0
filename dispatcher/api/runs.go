package api

import (
	"context"
	"errors"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func (a *API) listRuns(r *request) (response, error) {
	query, err := r.runQuery()
	if err != nil {
		return response{}, err
	}
	query.Parent = r.URL.Query().Get("parent")
	key := func(run run.Run) string { return run.ID }
	return paged(query.Page, key, func(page input.Page) ([]run.Run, error) {
		query.Page = page
		return a.store.Runs(r.Context(), query)
	})
}

func (a *API) listMisfires(r *request) (response, error) {
	query, err := r.runQuery()
	if err != nil {
		return response{}, err
	}
	return paged(query.Page, dispatcher.Misfire.Cursor, func(page input.Page) ([]dispatcher.Misfire, error) {
		query.Page = page
		return a.store.Misfires(r.Context(), query)
	})
}

func (a *API) getRun(r *request) (response, error) {
	run, err := a.visibleRun(r)
	return response{body: run}, err
}

// visibleRun reads the run in the path. The error is the same for an unknown run, a malformed id and
// a run of an app that the token does not permit.
func (a *API) visibleRun(r *request) (run.Run, error) {
	id := r.PathValue("run")
	missing := dispatcher.NotFound("run", id)
	if !run.IsID(id) {
		return run.Run{}, missing
	}
	one, err := a.store.Run(r.Context(), id)
	if errors.Is(err, dispatcher.ErrNotFound) || err == nil && !r.MaySee(one.App) {
		return run.Run{}, missing
	}
	r.App = one.App
	return r.shown(one), err
}

// shown returns a run as the token of r may see it.
func (r *request) shown(run run.Run) run.Run {
	if r.IsBound() {
		return run.WithoutAddresses()
	}
	return run
}

func (a *API) cancelRun(r *request) (response, error) {
	var accepted []run.Run
	res, err := a.changeRun(r, a.store.CancelRun, func(run run.Run) (err error) {
		accepted, err = a.acceptedRuns(r, run)
		return err
	}, "its outcome is final; retry it to run it again")
	if err == nil && len(accepted) > 0 {
		a.stopExecutors(r, accepted)
	}
	return res, err
}

func (a *API) releaseRun(r *request) (response, error) {
	return a.changeRun(r, a.store.ReleaseRun, nil, "cancel a run that has not ended; GET /v1/apps/{app}/jobs/{job}/slots lists the slots")
}

func (a *API) retryRun(r *request) (response, error) {
	return a.changeRun(r, a.store.RetryRun, func(one run.Run) error {
		if one.State == run.Queued || one.State == run.Claimed {
			return nil // the store refuses it, with the better reason
		}
		return a.checkEnabled(r, one.App)
	}, "wait until it ends, or cancel it first")
}

// changeRun writes to the run in the path, unless check, which may be nil, refuses it. remedy says
// what to do if the state of the run does not permit the change.
func (a *API) changeRun(r *request, write func(context.Context, string, input.Change) (run.Run, error),
	check func(run.Run) error, remedy string,
) (response, error) {
	run, err := a.visibleRun(r)
	if err != nil {
		return response{}, err
	}
	if check != nil {
		if err := check(run); err != nil {
			return response{}, err
		}
	}
	run, err = write(r.Context(), run.ID, r.By())
	return response{body: r.shown(run)}, conflict(err, remedy)
}

// checkEnabled refuses to queue a run that no node would claim, because its app is disabled. The
// store reports an app that does not exist.
func (a *API) checkEnabled(r *request, name string) error {
	app, err := a.store.App(r.Context(), name)
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		return nil
	case err != nil:
		return err
	case app.Bounds.Suspended:
		return input.Refuse(input.CodeBoundSuspended, "%s, so no node would claim the run", app.SuspendedMessage())
	case app.Enabled:
		return nil
	}
	return input.Refuse(input.CodeAppDisabled, "app %s is disabled, so no node would claim the run; "+
		"enable it first, in Terraform or with PATCH /v1/apps/%s", input.Echo(name), name)
}
