package api

import (
	"bytes"
	"encoding/json"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// exportApp returns a disabled app with all that another installation needs of it.
func (a *API) exportApp(r *request) (response, error) {
	export, err := a.store.ExportApp(r.Context(), r.PathValue("app"))
	return response{body: export}, conflict(err, "carillon app export disables the app and waits until it can be exported")
}

// importApp creates an app from an export.
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

// admitImport refuses an import of more than the quotas of its app allow. It counts in the text and decodes only the app, so that
// a million empty jobs take no memory. Decoding says what else is wrong.
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

// countImport returns what an export, as a valid text, has of what is bounded by quotas.
func countImport(text json.RawMessage) target.ImportCounts {
	jobs := decode.Member(text, "jobs")
	counts := target.ImportCounts{Jobs: decode.Count(jobs), WaitingRuns: decode.Count(decode.Member(text, "waiting_runs"))}
	for _, one := range decode.Parts(jobs) {
		counts.Triggers += decode.Count(decode.Member(decode.Member(one, "job"), "triggers"))
	}
	return counts
}
