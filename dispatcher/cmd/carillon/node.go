package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// nodeOptions is what one process needs to be a node.
type nodeOptions struct {
	database    string
	keys        *seal.Keys
	migrate     bool
	listen      string
	certificate *tls.Certificate // nil: plain HTTP
	engine      engine.Options
	target      target.Options
	log         *slog.Logger
	// ready is called once the API answers, with its address; nil: nobody.
	ready func(ctx context.Context, s dispatcher.Store, address string)
}

// openStore opens the database, migrated if so wanted. A fault here is one of the flag.
func openStore(ctx context.Context, o nodeOptions, metrics prometheus.Registerer) (dispatcher.Store, error) {
	if o.migrate {
		if err := store.Migrate(ctx, o.database); err != nil {
			return nil, databaseError(o.database, err)
		}
	}
	s, err := store.Open(ctx, o.database, store.Options{Metrics: metrics, Keys: o.keys})
	if errors.Is(err, dispatcher.ErrKeyMissing) {
		return nil, &usageError{fmt.Errorf("--secret-keys-file (CARILLON_SECRET_KEYS_FILE) or --secret-keys (CARILLON_SECRET_KEYS): %w; "+
			"without it, the node could not send what its jobs say", err)}
	}
	if err != nil {
		return nil, databaseError(o.database, err)
	}
	return s, nil
}

func databaseError(database string, err error) error {
	return &usageError{fmt.Errorf("--database (CARILLON_DATABASE) %s: %w", maskPassword(database), err)}
}

// serveNode runs engine and API over one database until ctx ends, then drains: the API
// answers until the engine has finished, so that its end can be watched.
func serveNode(ctx context.Context, o nodeOptions) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return &usageError{fmt.Errorf("--listen (CARILLON_LISTEN) %s: %w", dispatcher.Echo(o.listen), err)}
	}
	defer listener.Close()
	if o.certificate != nil {
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*o.certificate}, MinVersion: tls.VersionTLS12})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s, err := openStore(ctx, o, registry)
	if err != nil {
		return err
	}
	defer s.Close()
	o.target.Egress.Own = ownAddresses(ctx, listener.Addr(), o.database)
	if o.target.Egress.Loopback {
		o.log.WarnContext(ctx, "targets on the node itself are called, as --egress-loopback says: whoever may declare jobs reaches all that listens here")
	}
	invoker := target.New(o.target)
	defer invoker.Close()
	o.engine.Metrics = registry
	node := engine.New(s, invoker, o.engine)

	server := &http.Server{
		Handler: api.New(s, api.Options{Logger: o.log, Version: o.engine.Version, Metrics: registry, Ready: func(context.Context) error {
			if ctx.Err() != nil {
				return errors.New("the node is shutting down")
			}
			return node.Ready()
		}}),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(o.log.Handler(), slog.LevelDebug),
	}
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
	group.Go(func() error {
		defer closeServer(running, server)
		return node.Run(stopping)
	})
	o.log.InfoContext(ctx, "node started", "address", listener.Addr().String(), "version", o.engine.Version)
	if o.ready != nil {
		group.Go(func() error {
			o.ready(stopping, s, listener.Addr().String())
			return nil
		})
	}
	return group.Wait()
}

// closeServer lets requests finish for a few seconds.
func closeServer(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = server.Shutdown(ctx) // what is still open is cut off by the process's end
}
