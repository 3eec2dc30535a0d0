package api

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Starting serves while there is no store yet. The process is alive but not ready, and every other
// route returns 503.
func Starting(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{opts: o, log: o.Logger}
	mux := http.NewServeMux()
	waiting := a.handle(route{path: "/", serve: func(*API, *request) (response, error) {
		return response{}, refuse(dispatcher.CodeUnavailable, "the node is waiting for its database; try again in a moment")
	}})
	mux.Handle("/", waiting)
	for _, rt := range routes {
		if slices.Contains([]string{"/livez", "/version", "/openapi.json"}, rt.path) {
			mux.Handle(rt.method+" "+rt.path, a.handle(rt))
		}
	}
	a.mux, a.notFound = mux, waiting
	return a
}
