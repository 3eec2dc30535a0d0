// Package node is the dispatcher node: the flags that configure it, its start over a database, the
// API and the console, its signals to the machine, and its end; and the commands that examine,
// probe and stop it from outside. It knows no command line: package main calls it.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/oidc"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/platform"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Options are the parts of a node process.
type Options struct {
	Database DatabaseFlag
	notify   string // database for notifications; empty for the main one
	Keys     *seal.Keys
	// auditRetention is how long nodes keep the audit log; 0 means the default.
	auditRetention time.Duration
	Migrate        bool
	Listen         string
	tls            tlsFiles
	// clientCertificates requires client certificates from callers of the API.
	clientCertificates bool
	issuer             *oidc.Issuer // of JSON Web Tokens; nil to accept none
	limits             limitFlags   // of the API; zero fields mean defaults
	files              fileShares   // see withinFiles
	// Console serves the web console. People reach it at consoleURL; nil if that is not known.
	Console    bool
	consoleURL *url.URL
	traceURL   string      // of a trace, with a place for its id; empty if it is not known
	login      *oidc.Login // of people at the console; nil for API tokens only
	Engine     engine.Options
	Target     invoke.Options
	Log        *slog.Logger
	signals    machineSignals // to the machine that it runs on
	ecsAgent   string         // of the task to protect, or empty
	// Ready, if set, is called with the address of the API once it responds.
	Ready func(ctx context.Context, s *store.Store, address string)
}

// openStore opens the database, and migrates it if a flag says so. Its errors name the flag.
func openStore(ctx context.Context, o Options, metrics prometheus.Registerer) (*store.Store, error) {
	login := o.Database.login()
	if o.Migrate {
		if err := store.MigrateAs(ctx, o.Database.Database, login, o.Database.without()...); err != nil {
			return nil, o.Database.wrap(err)
		}
	}
	s, err := store.Open(ctx, o.Database.Database, store.Options{
		Options: db.Options{Notify: o.notify, Login: login, Metrics: metrics, Requests: true,
			Without: o.Database.without(), ClockMargin: o.Engine.ClockMargin},
		Keys: o.Keys, AuditRetention: o.auditRetention, Logger: o.Log,
	})
	if errors.Is(err, dispatcher.ErrKeyMissing) {
		return nil, &InvalidError{fmt.Errorf("--secret-keys-file (CARILLON_SECRET_KEYS_FILE) or --secret-keys (CARILLON_SECRET_KEYS): %w; "+
			"without it, the node cannot send the secrets of its jobs", err)}
	}
	if err != nil {
		return nil, o.Database.wrap(err)
	}
	has := s.Capabilities()
	o.Log.InfoContext(ctx, "database opened", "has", has.String(), "lacks", db.AllCapabilities().Without(has).String())
	return s, nil
}

// Run runs engine and API over one database until ctx ends, then drains. The API responds until the
// engine has finished, so that operators can observe the drain.
func Run(ctx context.Context, o Options) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return listenError(o.Listen, err)
	}
	defer listener.Close()
	registry := prometheus.NewRegistry()
	o.withinFiles(ctx, limit.Files())
	server, listener := newServer(ctx, listener, o, registry)
	secure, err := serveTLS(o.tls, listener.Addr(), o.Log)
	if err != nil {
		return &InvalidError{err}
	}
	listener, o.Engine.CertificateEnd = secure.listener(listener), secure.expires
	secure.register(registry)
	registerZones(registry)
	for _, warning := range zonesWarnings(time.Now(), hostZoneinfo) {
		o.Log.WarnContext(ctx, "time zone data may be too old", "zones", schedule.ZonesVersion(), "warning", warning)
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if o.Target.Egress.Loopback {
		o.Log.WarnContext(ctx, "--egress-loopback is set: anyone who may declare jobs can call every service on this machine")
	}
	var handler switchable
	starting, err := o.withConsole(api.Starting(api.Options{Logger: o.Log, Server: o.serverVersion()}), consoleNode{started: time.Now()})
	if err != nil {
		return &InvalidError{err}
	}
	handler.set(starting)
	server.Handler = limit.Transfers(&handler)
	var database *store.Store // the API uses it until it is shut down
	defer func() {
		if database != nil {
			_ = database.Close() // no longer in use
		}
	}()
	signals := startSignals(ctx, &o, registry)
	defer signals.end()
	// The API may use the rest of the engine's time to stop.
	requests, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	context.AfterFunc(ctx, func() { time.AfterFunc(max(0, o.Engine.Drain)+o.Engine.Closing+processEnd/4, cutOff) })
	group, running := errgroup.WithContext(context.WithoutCancel(ctx))
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(running, stop) // either part's failure ends the other
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve API: %w", err)
		}
		return nil
	})
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		secure.run(stopping)
		return nil
	})
	o.runIssuers(stopping, group)
	group.Go(func() error {
		defer endServing()
		defer closeServer(requests, server)
		return dispatch(stopping, o, listener.Addr(), registry, func(s *store.Store, node *engine.Engine, invoker *invoke.Invoker) {
			database = s
			signals.node.Store(node)
			requests := s.ForRequests()
			served := api.New(requests, o.api(ctx, s, groupView{invoker, node}, secure, registry))
			shown := consoleNode{api: served, sessions: requests, reached: node.Reached, stopping: stopping.Done()}
			if withConsole, err := o.withConsole(served, shown); err == nil { // it already worked for the start
				handler.set(withConsole)
			}
			group.Go(func() error {
				served.Run(serving)
				return nil
			})
			o.Log.InfoContext(ctx, "node started", "address", listener.Addr().String(), "version", o.Engine.Version,
				"zones", schedule.ZonesVersion())
			if o.Ready != nil {
				group.Go(func() error {
					o.Ready(stopping, s, listener.Addr().String())
					return nil
				})
			}
		})
	})
	return group.Wait()
}

// runIssuers refreshes the keys of the token issuer and of the login issuer until ctx ends.
func (o *Options) runIssuers(ctx context.Context, group *errgroup.Group) {
	if o.issuer != nil {
		group.Go(func() error {
			o.issuer.Run(ctx)
			return nil
		})
	}
	if o.Console && o.login != nil {
		group.Go(func() error {
			o.login.Run(ctx)
			return nil
		})
	}
}

// serverVersion is what the API says about this server.
func (o *Options) serverVersion() dispatcher.ServerVersion {
	version := dispatcher.ServerVersion{Version: o.Engine.Version}
	if o.consoleURL != nil {
		version.ConsoleURL = o.consoleURL.String()
	}
	return version
}

// api returns the options of the API. The API has its own connections to the database, but probes
// use those of the engine: they show the state of the node and not the load of the API.
func (o *Options) api(ctx context.Context, s *store.Store, node groupView, secure *servedTLS,
	registry *prometheus.Registry) api.Options {
	options := api.Options{
		Logger: o.Log, Server: o.serverVersion(), Region: identity.Region(ctx), Metrics: registry, Registerer: registry,
		Callbacks: o.Target.CallbackURL != "", ClientCertificates: o.clientCertificates, Limits: o.limits.limits(o.files),
		Executors: node.Invoker, Requests: node.Invoker, Fleet: node,
		Database: func(ctx context.Context) error {
			_, err := s.Installation(ctx)
			return err
		},
		Ready: func(context.Context) error {
			if ctx.Err() != nil {
				return input.Refuse(input.CodeUnavailable, "the node is shutting down")
			}
			return cmp.Or(db.RefusesWrites(node.engine.StoreFailure()), node.engine.Ready())
		},
		Warnings: func() []string {
			now := time.Now()
			warnings := append(secure.warnings(now), zonesWarnings(now, hostZoneinfo)...)
			if o.issuer != nil {
				if warning := o.issuer.Warning(now); warning != "" {
					warnings = append(warnings, warning)
				}
			}
			return warnings
		},
	}
	if o.issuer != nil {
		options.Identities = o.issuer
	}
	return options
}

// groupView is the node's view of endpoint groups.
type groupView struct {
	*invoke.Invoker
	engine *engine.Engine
}

// GroupStatus returns the status of a group as the node sees it.
func (g groupView) GroupStatus(
	ctx context.Context, group target.GroupVersion, egress target.EgressBounds,
) target.GroupStatus {
	status := g.Invoker.GroupStatus(ctx, group, egress)
	if id := g.engine.Node(); id != 0 {
		status.Node = id.String()
	}
	return status
}

// dispatch runs the engine over the database until ctx ends. It waits while the database is
// unreachable, and calls opened after it is open and before the engine starts.
func dispatch(ctx context.Context, o Options, listen net.Addr, registry *prometheus.Registry,
	opened func(*store.Store, *engine.Engine, *invoke.Invoker)) error {
	var s *store.Store
	err := backoff.Pauses{First: 100 * time.Millisecond, Most: 5 * time.Second}.Repeat(ctx, func() (err error) {
		s, err = openStore(ctx, o, registry)
		return err
	}, func(f backoff.Failure) bool {
		if !db.Unreachable(f.Err) {
			return false // a wrong flag
		}
		o.Log.WarnContext(ctx, "waiting for the database", "err", f.Err)
		return true
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the process was stopped during the wait
		}
		return err
	}
	// Only now does the database's name surely resolve.
	o.denyOwn(ctx, listen)
	o.Target.CallbackKey = s.CallbackKey
	o.Target.Metrics = registry
	invoker := invoke.New(o.Target)
	if err := invoker.ReadCallbackKey(ctx); err != nil {
		o.Log.WarnContext(ctx, "key of callbacks not read; the first attempt that needs it reads it", "err", err)
	}
	o.Engine.OnAPIs, o.Engine.Members = invoker.DenyAPIs, invoker.Members
	o.Engine.Metrics = registry
	endProtection := o.protect(ctx, registry)
	endTraces := o.startTraces(ctx, registry)
	node := engine.New(s, invoker, o.Engine)
	opened(s, node, invoker)
	node.Run(ctx)
	endProtection()
	endTraces()
	invoker.Close()
	return nil
}

// switchable is a handler that can be replaced while it serves.
type switchable struct{ current atomic.Pointer[http.Handler] }

func (s *switchable) set(h http.Handler) { s.current.Store(&h) }

// ServeHTTP calls the current handler.
func (s *switchable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.current.Load()).ServeHTTP(w, r)
}

// closeServer lets requests finish for a few seconds, at most until ctx ends.
func closeServer(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // ends requests that still wait, for example for a hanging database
	}
}

// EC2Agent is the agent for a termination lifecycle hook.
type EC2Agent struct {
	Hook  string `env:"CARILLON_LIFECYCLE_HOOK" required:"" placeholder:"NAME" help:"Name of the termination lifecycle hook."`
	Group string `env:"CARILLON_LIFECYCLE_GROUP" placeholder:"NAME" help:"Name of the autoscaling group. Default: from the instance's tags, if the launch template enables them in the metadata."`
	Unit  string `env:"CARILLON_LIFECYCLE_UNIT" default:"carillon.service" placeholder:"UNIT" help:"The node's unit of systemd, which is stopped."`
	logFlags
}

// Await waits until the instance is about to end, stops the unit and completes the lifecycle
// action. A signal stops it at any time. It logs to out.
func (l *EC2Agent) Await(ctx context.Context, out io.Writer) error {
	log := NewLogger(out, l.LogLevel, l.LogFormat)
	// One try for each request: the agent has its own retries, and logs each failure.
	aws, err := config.LoadDefaultConfig(ctx, config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }))
	if err != nil {
		return err
	}
	agent := platform.Lifecycle{
		Instance: platform.NewInstance(aws), Hook: l.Hook, Log: log,
		Stop: func(ctx context.Context) error { return platform.StopUnit(ctx, l.Unit) },
	}
	var region string
	err = backoff.Pauses{First: time.Second, Most: 30 * time.Second}.Repeat(ctx, func() (err error) {
		region, err = l.identify(ctx, &agent)
		return err
	}, func(f backoff.Failure) bool {
		if errors.Is(f.Err, errNoGroup) {
			return false
		}
		log.WarnContext(ctx, "the metadata of this instance cannot be read; trying again", "retry", f.Pause.String(), "err", f.Err)
		return true
	})
	switch {
	case errors.Is(err, errNoGroup):
		return &InvalidError{err}
	case err != nil:
		return nil //nolint:nilerr // ctx has ended
	}
	if aws.Region == "" {
		aws.Region = region
	}
	agent.AutoScaling = autoscaling.NewFromConfig(aws)
	log.InfoContext(ctx, "waiting for the end of this instance", "instance", agent.ID, "group", agent.Group, "hook", l.Hook, "unit", l.Unit)
	return agent.Run(ctx)
}

var errNoGroup = errors.New("--group (CARILLON_LIFECYCLE_GROUP): the instance's metadata does not name its autoscaling group; " +
	"give the name, or set instance_metadata_tags = \"enabled\" in the launch template")

// identify reads the identity of this instance, and its region.
func (l *EC2Agent) identify(ctx context.Context, agent *platform.Lifecycle) (region string, err error) {
	if region, err = agent.Instance.Region(ctx); err != nil {
		return "", err
	}
	if agent.ID, err = agent.Instance.ID(ctx); err != nil {
		return "", err
	}
	if agent.Group = l.Group; agent.Group != "" {
		return region, nil
	}
	agent.Group, err = agent.Instance.Group(ctx)
	if errors.Is(err, platform.ErrNoMetadata) {
		return "", errNoGroup
	}
	return region, err
}
