package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// listApps lists apps by name. A token that is bound to apps sees only those apps.
func (a *API) listApps(r *request) (response, error) {
	read := func(page input.Page) ([]access.App, error) { return a.store.Apps(r.Context(), page) }
	if bound := r.Token.Apps; len(bound) > 0 {
		read = func(page input.Page) ([]access.App, error) {
			// A token is bound to a handful of apps, so reading them one by one is cheaper than searching all apps.
			var apps []access.App
			for _, name := range slices.Compact(slices.Sorted(slices.Values(bound))) {
				if name <= page.Cursor || len(apps) == page.Limit {
					continue
				}
				app, err := a.store.App(r.Context(), name)
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
	}
	return pagedByName(r, func(app access.App) string { return app.Name }, read)
}

// getApp gets an app.
func (a *API) getApp(r *request) (response, error) {
	app, err := a.store.AppWithUsage(r.Context(), r.PathValue("app"))
	return response{revision: app.Revision, body: app}, err
}

// putApp creates or replaces an app. Bounds need the scope admin and a token that is bound to no app. If a change of
// the bounds breaks jobs, the response lists these jobs. Two apps whose names differ only by - and _ cannot both exist:
// 409 with code name_taken.
func (a *API) putApp(r *request) (response, error) {
	app := access.App{Name: r.PathValue("app")}
	problems := r.Decode(&app)
	mustMatch(&problems, "/name", app.Name, r.PathValue("app"))
	return put(a, r, app, problems, a.store.PutApp, func(stored access.App) int64 { return stored.Revision })
}

// appPatch is the part of an app that can be changed separately.
type appPatch struct {
	Enabled *bool `json:"enabled" schema:"required"`
}

// patchApp enables or disables an app.
func (a *API) patchApp(r *request) (response, error) {
	var patch appPatch
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

// deleteApp deletes an app that has no jobs and no calendars.
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

// listAppPauses lists the pauses of an app. Returns all current ones, oldest first. Pauses of single jobs and triggers
// are shown with these.
func (a *API) listAppPauses(r *request) (response, error) {
	pauses, err := a.store.AppPauses(r.Context(), r.PathValue("app"))
	return response{body: newList(pauses)}, err
}

// pauseApp pauses an app, or its jobs with some labels. The pause also applies to jobs that are created, or get the
// labels, while it lasts. A job is paused while any pause applies to it, one of its app or one of its own. Each request
// adds a pause of its own, and takes no condition. Once you have the response, no node claims a fire of a paused job;
// runs in flight finish, and manual runs work. Owed fires are handled as after a pause of the job. An app has at most
// 100 pauses.
//
// pauseApp responds when all jobs have followed the pause, however many there are. It has no condition, because each
// pause is an object of its own.
func (a *API) pauseApp(r *request) (response, error) {
	var asked dispatcher.AppPauseRequest
	problems := r.DecodeIfAny(&asked)
	decode.AddInvalid(&problems, asked.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	if err := noCondition(r, "a pause"); err != nil {
		return response{}, err
	}
	pause, err := a.store.PauseApp(r.Context(), r.PathValue("app"), asked, r.By())
	if err != nil {
		return response{}, err
	}
	if pause.Pending {
		pause.Pending = a.followPauses(r)
	}
	return response{status: http.StatusCreated, body: pause}, nil
}

// endAppPause ends a pause of an app. Jobs without another pause go on. Takes no condition.
func (a *API) endAppPause(r *request) (response, error) {
	if err := noCondition(r, "a pause"); err != nil {
		return response{}, err
	}
	if err := a.store.EndAppPause(r.Context(), r.PathValue("app"), r.PathValue("pause"), r.By()); err != nil {
		return response{}, err
	}
	a.followPauses(r)
	return response{status: http.StatusNoContent}, nil
}

// pausePage is how many triggers follow in a transaction. Due fires wait for it, some 15 ms.
const pausePage = 500

// followPauses lets the other jobs of the app follow its pauses. If it is interrupted, the change stands, the handler
// of a node continues, and followPauses returns true.
func (a *API) followPauses(r *request) (pending bool) {
	for more := true; more; {
		var err error
		if more, err = a.store.FollowPauses(r.Context(), r.PathValue("app"), pausePage); err != nil {
			a.log.WarnContext(r.Context(), "jobs have yet to follow the pauses of their app", "app", r.PathValue("app"), "err", err)
			return true
		}
	}
	return false
}

// exportApp exports a disabled app. Returns the app with its calendars, jobs, fire times and waiting runs, so that
// another installation can continue with it. The app must be disabled and have no run in flight; otherwise the response
// is 409. Values of stored secrets are left out.
func (a *API) exportApp(r *request) (response, error) {
	export, err := a.store.ExportApp(r.Context(), r.PathValue("app"))
	return response{body: export}, conflict(err, "carillon app export disables the app and waits until it can be exported")
}

// importApp imports an app. Creates an app from an export, completely or not at all. It needs the scope import. The app
// must not exist, and its quotas of jobs, triggers and waiting runs apply. Replace the word stored by the value of each
// stored secret. The body may have up to 64 MiB.
func (a *API) importApp(r *request) (response, error) {
	if err := a.admitImport(r); err != nil {
		return response{}, err
	}
	var export access.Export
	problems := r.Decode(&export)
	mustMatch(&problems, "/app/name", export.App.Name, r.PathValue("app"))
	if len(problems) > 0 {
		return response{}, problems.Err()
	}
	change := r.By()
	change.IfAbsent = true
	app, err := a.store.ImportApp(r.Context(), export, change)
	return response{revision: app.Revision, body: app}, a.gate.ExplainFailed(r.Request, change, err)
}

// admitImport refuses an import that exceeds the quotas of its app. It counts in the text and decodes only the app, so
// that a million empty jobs take no memory. Decoding reports all other problems.
func (a *API) admitImport(r *request) error {
	text, problems := r.Text()
	if text = bytes.TrimSpace(text); len(problems) > 0 || !json.Valid(text) {
		return nil
	}
	app, change := access.App{Name: r.PathValue("app")}, r.By()
	if raw := decode.Member(text, "app"); raw != nil && decode.Part(raw, &app) {
		if invalid := app.Validate() != nil; invalid && change.Operator {
			return nil // its quotas may be wrong
		}
	}
	app.Name = r.PathValue("app")
	quotas, err := a.store.ImportQuotas(r.Context(), app, change)
	if err != nil {
		return err
	}
	return quotas.CheckImport(app.Name, countImport(text))
}

// countImport returns the counts of an export, given as a valid text, that quotas bound.
func countImport(text json.RawMessage) target.ImportCounts {
	jobs := decode.Member(text, "jobs")
	counts := target.ImportCounts{Jobs: decode.Count(jobs), WaitingRuns: decode.Count(decode.Member(text, "waiting_runs"))}
	for _, one := range decode.Parts(jobs) {
		counts.Triggers += decode.Count(decode.Member(decode.Member(one, "job"), "triggers"))
	}
	return counts
}
