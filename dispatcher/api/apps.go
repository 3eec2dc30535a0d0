package api

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

func (a *API) listApps(r *request) (response, error) {
	read := func(page input.Page) ([]access.App, error) { return a.store.Apps(r.Context(), page) }
	if bound := r.Token.Apps; len(bound) > 0 {
		read = func(page input.Page) ([]access.App, error) { return a.boundApps(r.Context(), bound, page) }
	}
	return pagedByName(r, func(app access.App) string { return app.Name }, read)
}

// boundApps lists those apps among names that exist. A token is bound to a handful of apps, so reading
// them one by one is cheaper than searching all apps.
func (a *API) boundApps(ctx context.Context, names []string, page input.Page) ([]access.App, error) {
	var apps []access.App
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if name <= page.Cursor || len(apps) == page.Limit {
			continue
		}
		app, err := a.store.App(ctx, name)
		switch {
		case errors.Is(err, dispatcher.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			apps = append(apps, app)
		}
	}
	return apps, nil
}

func (a *API) getApp(r *request) (response, error) {
	app, err := a.store.App(r.Context(), r.PathValue("app"))
	return response{revision: app.Revision, body: app}, err
}

func (a *API) putApp(r *request) (response, error) {
	app := access.App{Name: r.PathValue("app")}
	problems := r.Decode(&app)
	mustMatch(&problems, "/name", app.Name, r.PathValue("app"))
	return put(a, r, app, problems, a.store.PutApp, func(stored access.App) int64 { return stored.Revision })
}

// patchApp enables or disables an app and leaves the rest of it unchanged.
func (a *API) patchApp(r *request) (response, error) {
	var patch struct {
		Enabled *bool `json:"enabled"`
	}
	problems := r.Decode(&patch)
	if patch.Enabled == nil {
		decode.AddInvalid(&problems, &input.Problem{
			Path: "/enabled", Code: input.CodeRequired, Message: "enabled is missing; PATCH sets only this field",
		})
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	change, err := a.gate.Change(r.Request)
	if err != nil {
		return response{}, err
	}
	conditional := change.IfRevision != 0
	// Another caller may change the app between the read and the write. Without a condition of this
	// caller, patchApp tries again.
	const tries = 5
	for try := 1; ; try++ {
		app, err := a.store.App(r.Context(), r.PathValue("app"))
		if err != nil {
			return response{}, err
		}
		if !conditional {
			change.IfRevision = app.Revision
		}
		app.Enabled, app.Bounds = *patch.Enabled, nil
		app, _, err = a.store.PutApp(r.Context(), app, change)
		if errors.Is(err, dispatcher.ErrPrecondition) && !conditional && try < tries {
			continue
		}
		return response{revision: app.Revision, body: app}, a.gate.ExplainFailed(r.Request, change, err)
	}
}

func (a *API) deleteApp(r *request) (response, error) {
	return a.remove(r, func(change input.Change) error {
		err := a.store.DeleteApp(r.Context(), r.PathValue("app"), change)
		if errors.Is(err, dispatcher.ErrNotEmpty) {
			content := strings.TrimSuffix(err.Error(), ": "+dispatcher.ErrNotEmpty.Error())
			return input.Refuse(input.CodeAppNotEmpty, "%s still has %s; delete its jobs, calendars, groups and alerts first",
				r.DefinitionName(), content)
		}
		return err
	})
}
