package api

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Starting serves while there is no store yet: the process lives, is not ready, and says of all
// else that it has to wait.
func Starting(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{opts: o, log: o.Logger}
	mux := http.NewServeMux()
	waiting := route{path: "/", serve: func(*API, *request) (response, error) {
		return response{}, refuse(dispatcher.CodeUnavailable, "the node waits for its database; try again in a moment")
	}}
	mux.Handle("/", a.handle(waiting))
	for _, rt := range routes {
		if slices.Contains([]string{"/livez", "/version", "/openapi.json"}, rt.path) {
			mux.Handle(rt.method+" "+rt.path, a.handle(rt))
		}
	}
	a.mux, a.lost = mux, a.handle(waiting)
	return a
}
