package api

import (
	"context"
	"log/slog"
	"net/http"
	"path"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Options tunes an API. The zero value works.
type Options struct {
	// Version is what /version answers.
	Version string
	// Ready tells whether the engine does its work; nil means that the database alone decides.
	// Its error is logged, never sent.
	Ready func(ctx context.Context) error
	// Metrics is what /metrics shows; nil: nothing.
	Metrics prometheus.Gatherer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// API serves the HTTP API. It is an http.Handler.
type API struct {
	store dispatcher.Store
	opts  Options
	log   *slog.Logger
	mux   *http.ServeMux
	// lost responses what no route may see.
	lost http.Handler
}

// New returns the API over store.
func New(store dispatcher.Store, o Options) *API {
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
	a.lost = a.handle(route{path: "/", serve: (*API).unknownRoute})
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// ServeMux would redirect "//" and ".." to another path, and a redirected PUT turns into
	// a GET in many clients.
	if escaped := r.URL.EscapedPath(); path.Clean(escaped) != escaped {
		a.lost.ServeHTTP(w, r)
		return
	}
	a.mux.ServeHTTP(w, r)
}
