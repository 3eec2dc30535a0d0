package api

import (
	"github.com/carillon-dev/carillon/dispatcher"
)

// exportApp returns a disabled app with all that another installation needs of it.
func (a *API) exportApp(r *request) (response, error) {
	export, err := a.store.ExportApp(r.Context(), r.PathValue("app"))
	return response{body: export}, conflict(err, "carillon app export disables the app and waits until it can be exported")
}

// importApp creates an app from an export.
func (a *API) importApp(r *request) (response, error) {
	var export dispatcher.Export
	problems := r.decode(&export)
	mustMatch(&problems, "/app/name", export.App.Name, r.PathValue("app"))
	if len(problems) > 0 {
		return response{}, problems.Err()
	}
	change := r.by()
	change.IfAbsent = true
	app, err := a.store.ImportApp(r.Context(), export, change)
	return response{revision: app.Revision, body: app}, a.explainFailed(r, change, err)
}
