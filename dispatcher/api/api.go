package api

import (
	"context"
	"log/slog"
	"net/http"
	"path"

	"github.com/prometheus/client_golang/prometheus"
)

// Options tunes an API. The zero value works.
type Options struct {
	// Version is what /version returns.
	Version string
	// Ready returns an error if the engine is not ready; nil: only the database is checked. The
	// error is logged, never sent.
	Ready func(ctx context.Context) error
	// Metrics are served by /metrics; nil: none.
	Metrics prometheus.Gatherer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// API serves the HTTP API. It is an http.Handler.
type API struct {
	store Store
	opts  Options
	log   *slog.Logger
	mux   *http.ServeMux
	// notFound serves requests that match no route.
	notFound http.Handler
}

// New returns the API over store.
func New(store Store, o Options) *API {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Ready == nil {
		o.Ready = func(context.Context) error { return nil }
	}
	a := &API{store: store, opts: o, log: o.Logger}
	a.mux = a.newMux()
	a.notFound = a.handle(route{path: "/", serve: (*API).unknownRoute})
	return a
}

// ServeHTTP serves one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// ServeMux would redirect a path with "//" or "..", and many clients turn a redirected PUT
	// into a GET.
	if escaped := r.URL.EscapedPath(); path.Clean(escaped) != escaped {
		a.notFound.ServeHTTP(w, r)
		return
	}
	a.mux.ServeHTTP(w, r)
}
