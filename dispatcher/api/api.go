package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Options tunes an API. The zero value works.
type Options struct {
	// Server is the response of /version, apart from the time zone data.
	Server dispatcher.ServerVersion
	// Ready returns an error if the engine is not ready; nil: only the database is checked. The error is logged, and only
	// an *input.Problem is sent.
	Ready func(ctx context.Context) error
	// Metrics are served by /metrics; may be nil.
	Metrics prometheus.Gatherer
	// Region is the AWS region of the node, or empty.
	Region string
	// Callbacks means that the node has the URL for callbacks of targets.
	Callbacks bool
	// Identities, ClientCertificates and Limits are those of gate.Options.
	Identities         gate.Identities
	ClientCertificates bool
	Limits             gate.Limits
	// Executors asks executors of XXL-JOB; nil: groups of that kind are not served.
	Executors Executors
	// Requests shows the requests of runs; nil: they are not shown.
	Requests Requests
	// Warnings returns the warnings in the response of /readyz of a ready node; may be nil.
	Warnings func() []string
	// Database returns an error if the database does not respond, for /readyz; nil: the API asks its store.
	Database func(ctx context.Context) error
	// Fleet is the node's view of endpoint groups; nil: it sends no requests to endpoints.
	Fleet Fleet
	// Registerer is where the metrics of the API are registered; nil: nowhere.
	Registerer prometheus.Registerer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Executors asks executors of groups of kind xxl_job. The calls name the group with the values of its secrets.
type Executors interface {
	gate.AccessTokens
	// ExecutorLog reads the log of an attempt from a line on, counted from 1. It sets neither Run nor Attempt.
	ExecutorLog(ctx context.Context, call target.ExecutorCall, from int) (target.ExecutorLog, error)
	// StopExecutor asks an executor to stop its runs of a job.
	StopExecutor(ctx context.Context, call target.ExecutorCall) error
}

// Requests shows the requests of runs.
type Requests interface {
	// Show returns the request that an attempt of a call at now would send, with secrets masked; it reads no secret and
	// sends nothing. endpoint is the member of a group for the request; nil: it is unknown.
	Show(call target.Call, endpoint *target.Endpoint, now time.Time) target.ShownRequest
}

// API serves the HTTP API. It is an http.Handler.
type API struct {
	store Store
	opts  Options
	log   *slog.Logger
	// gate admits requests, and mux finds their handlers.
	gate *gate.Gate
	mux  *http.ServeMux
	// transfers serves over connections of any speed.
	transfers http.Handler
	// database is the latest check of the database for /readyz.
	database databaseCheck
	// registrations counts the endpoints that registered and left, for the log.
	registrations *registrations
	// strays are callbacks of executors without a waiting run.
	strays *strays
	// callbacks counts callbacks by their kind.
	callbacks *prometheus.CounterVec
	// lines bounds log lines about events that do not end a request.
	lines *limit.Lines
	// forecasts are the latest counts of upcoming fires.
	forecasts *forecasts
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
	if o.Warnings == nil {
		o.Warnings = func() []string { return nil }
	}
	if o.Database == nil {
		o.Database = func(ctx context.Context) error {
			_, err := store.Installation(ctx)
			return err
		}
	}
	a := &API{store: store, opts: o, log: o.Logger, gate: gate.New(store, o.ofGate()), registrations: newRegistrations(o.Logger),
		strays: newStrays(), callbacks: newCallbacks(o.Registerer), lines: limit.NewLines(10, time.Minute),
		forecasts: newForecasts(store, o.Logger)}
	a.mux = a.newMux()
	a.transfers = limit.Transfers(http.HandlerFunc(a.serve))
	a.notFound = a.handle(route{Route: gate.Route{Path: "/"}, serve: (*API).unknownRoute})
	return a
}

func (o Options) ofGate() gate.Options {
	return gate.Options{Identities: o.Identities, AccessTokens: o.Executors, ClientCertificates: o.ClientCertificates, Limits: o.Limits,
		Registerer: o.Registerer, Logger: o.Logger}
}

// Run writes refused changes into the audit log, records the use of tokens and logs how many endpoints came and left.
// After the end of ctx it writes the rest, for some seconds at most. It also counts the upcoming fires on request.
// Without it, the API serves everything else in the same way.
func (a *API) Run(ctx context.Context) {
	var writers sync.WaitGroup
	writers.Go(func() { a.gate.Run(ctx) })
	writers.Go(func() { a.registrations.run(ctx) })
	writers.Go(func() { a.forecasts.run(ctx) })
	writers.Wait()
}

// ServeHTTP serves one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.transfers.ServeHTTP(w, r) }

// serve finds the route of a request.
func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	// ServeMux would redirect a path with "//" or "..", and many clients turn a redirected PUT
	// into a GET.
	if escaped := r.URL.EscapedPath(); path.Clean(escaped) != escaped {
		a.notFound.ServeHTTP(w, r)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// Starting serves while there is no store yet. The process is alive but not ready, and every other route returns 503.
func Starting(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{opts: o, log: o.Logger, gate: gate.Starting(o.ofGate())}
	mux := http.NewServeMux()
	waiting := a.handle(route{Route: gate.Route{Path: "/"}, serve: func(*API, *request) (response, error) {
		return response{}, input.Refuse(input.CodeUnavailable, "the node is waiting for its database; try again in a moment")
	}})
	mux.Handle("/", waiting)
	for _, rt := range routes() {
		if slices.Contains([]string{"/livez", "/version", "/openapi.json"}, rt.Path) {
			mux.Handle(rt.Method+" "+rt.Path, a.handle(rt))
		}
	}
	a.mux, a.notFound = mux, waiting
	a.transfers = limit.Transfers(http.HandlerFunc(a.serve))
	return a
}

// Store is the part of a store that the API uses. The interfaces of package dispatcher document the methods.
type Store interface {
	gate.Store
	access.Definitions
	dispatcher.AppPauses
	dispatcher.Groups
	alert.Alerts
	access.Exports
	dispatcher.Ledger
	repeat.DeadLetters
	run.Callbacks
	repeat.Backfills
	repeat.BulkActions
	SetCarriedState(ctx context.Context, app, job string, state json.RawMessage, change input.Change) (run.CarriedState, error)
	ObjectiveStatus(ctx context.Context, app, job string) (dispatcher.ObjectiveStatus, error)
	ObjectiveStatuses(ctx context.Context, apps []string, page input.Page) ([]dispatcher.ObjectiveStatus, error)
	access.AuditLog
	view.Overview
	view.Timelines
	Statistics(ctx context.Context, query view.StatisticsQuery) (view.Statistics, error)
	JobStatistics(ctx context.Context, app, job string, from, to time.Time) (view.JobStatistics, error)
	verify.Reader

	// Of access.Credentials:
	PutToken(ctx context.Context, token access.APIToken, change input.Change) (access.APIToken, bool, error)
	RotateToken(ctx context.Context, name string, rotation access.TokenRotation, change input.Change) (
		access.APIToken, error)
	Tokens(ctx context.Context, page input.Page) ([]access.APIToken, error)
	DeleteToken(ctx context.Context, name string, change input.Change) error

	// Of dispatcher.Fleet:
	Installation(ctx context.Context) (string, error)
	// Refused returns how an error says that the database refuses writes, and what to do; nil for other errors.
	Refused(err error) error
	Clock(ctx context.Context) (time.Time, error)
	Nodes(ctx context.Context) ([]dispatcher.Node, error)
	SetNodeState(ctx context.Context, id run.NodeID, state dispatcher.NodeState, change input.Change) (
		dispatcher.Node, error)

	// Of dispatcher.Dispatch:
	AppCalendars(ctx context.Context, app string) (revision int64, all []dispatcher.Calendar, err error)

	// Of dispatcher.Zones:
	ZoneSetting(ctx context.Context) (dispatcher.ZoneSetting, error)
	SetZones(ctx context.Context, release string, archive []byte, change input.Change) (dispatcher.ZoneSetting, error)

	// Of dispatcher.Rollbacks:
	Rollback(ctx context.Context) (*dispatcher.Rollback, error)
	RollbackEffect(ctx context.Context, now time.Time) (dispatcher.RollbackEffect, error)
	ResolveRollback(ctx context.Context, choice dispatcher.RollbackChoice, change input.Change) (
		dispatcher.Rollback, error)
}
