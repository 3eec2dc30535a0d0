package api

import (
	"context"
	_ "embed"
	"encoding/json"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

//go:embed openapi.json
var openAPIDocument []byte

// live says that the process serves; it asks nobody, so that a database that is away does
// not get every node restarted.
func (a *API) live(*request) (answer, error) {
	return answer{body: map[string]string{"status": "ok"}}, nil
}

// ready says whether the node can do its work now.
func (a *API) ready(r *request) (answer, error) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if _, err := a.store.Installation(ctx); err != nil {
		a.log.WarnContext(ctx, "not ready: database", "request_id", r.id, "err", err)
		return answer{}, refuse(dispatcher.CodeUnavailable, "the database does not answer")
	}
	if err := a.opts.Ready(ctx); err != nil {
		a.log.WarnContext(ctx, "not ready: engine", "request_id", r.id, "err", err)
		return answer{}, refuse(dispatcher.CodeUnavailable, "the engine is not ready")
	}
	return answer{body: map[string]string{"status": "ok"}}, nil
}

func (a *API) version(*request) (answer, error) {
	return answer{body: map[string]string{"version": a.opts.Version}}, nil
}

func (a *API) openAPI(*request) (answer, error) {
	return answer{body: json.RawMessage(openAPIDocument)}, nil
}
