package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// node is a dispatcher node in this process.
type node struct {
	store    *store.Store
	invoker  *invoke.Invoker // nil if calls do nothing
	secrets  string          // its directory of secrets
	registry *prometheus.Registry
	fires    atomic.Int64
	stop     func() error

	mu        sync.Mutex
	latencies latencies // of calls that do nothing
	counting  bool
}

// nodeOptions configure a node.
type nodeOptions struct {
	database  string
	sends     bool          // calls are real requests
	apps      []string      // apps that it serves; empty for all
	latency   bool          // record how late calls begin
	window    time.Duration // of its poll; 0 for the default
	noBreaker bool          // calls to a host continue however many fail
	purge     time.Duration // interval of its clean-up; 0 for the default
	shares    *node         // another node of this process, to share its store; nil for a new store
}

// startNode runs a node until stop is called.
func startNode(ctx context.Context, o nodeOptions) (*node, error) {
	n := &node{registry: prometheus.NewRegistry(), counting: o.latency}
	var err error
	if o.shares != nil {
		n.store = o.shares.store
	} else if n.store, err = store.Open(ctx, o.database, store.Options{Options: db.Options{Metrics: n.registry}}); err != nil {
		return nil, err
	}
	options := engine.Options{
		Name: "bench", Version: "bench", Apps: o.apps, Window: o.window, PurgeInterval: o.purge, Metrics: n.registry, Drain: time.Second,
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		OnOutcome: func(target.Call, run.Outcome) { n.fires.Add(1) },
	}
	if o.noBreaker {
		options.BreakerFailures = -1
	}
	var invoker engine.Invoker = n
	if o.sends {
		if n.secrets, err = os.MkdirTemp("", "carillon-bench-secrets-"); err == nil {
			err = writeSecret(n.secrets)
		}
		if err != nil {
			return nil, errors.Join(err, n.close(o))
		}
		n.invoker = invoke.New(invoke.Options{Version: "bench", ConnsPerHost: 512, SecretDir: n.secrets, Egress: web.Egress{Loopback: true}})
		invoker = n.invoker
	}
	life, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	e := engine.New(n.store, invoker, options)
	go func() {
		defer close(ended)
		e.Run(life)
	}()
	n.stop = sync.OnceValue(func() error {
		end()
		<-ended
		if n.invoker != nil {
			n.invoker.Close()
			_ = os.RemoveAll(n.secrets)
		}
		return n.close(o)
	})
	return n, nil
}

// close closes the store, unless another node owns it.
func (n *node) close(o nodeOptions) error {
	if o.shares != nil {
		return nil
	}
	return n.store.Close()
}

// Invoke does nothing, like a target that takes no time.
func (n *node) Invoke(_ context.Context, call target.Call) run.Outcome {
	now := time.Now()
	if n.counting && call.Key.Kind != run.KindBackfill { // its scheduled times are long past
		n.mu.Lock()
		n.latencies = append(n.latencies, now.Sub(call.Key.ScheduledAt))
		n.mu.Unlock()
	}
	return run.Outcome{State: run.Succeeded, StartedAt: now, EndedAt: now}
}

// takeLatencies returns the latencies since the last call.
func (n *node) takeLatencies() latencies {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.latencies
	n.latencies = nil
	slices.Sort(taken)
	return taken
}

// await waits until the node has made that many calls.
func (n *node) await(ctx context.Context, fires int64) error {
	for n.fires.Load() < fires {
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// totals are the counters of a node.
type totals struct {
	statements, won, lost, polls, polling float64
}

// totals reads the node's own metrics.
func (n *node) totals() (t totals, err error) {
	families, err := n.registry.Gather()
	if err != nil {
		return t, err
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch family.GetName() {
			case "carillon_database_statements_total":
				t.statements = m.GetCounter().GetValue()
			case "carillon_claims_total":
				if m.GetLabel()[0].GetValue() == "won" {
					t.won = m.GetCounter().GetValue()
				} else {
					t.lost = m.GetCounter().GetValue()
				}
			case "carillon_poll_seconds":
				t.polls, t.polling = float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
			}
		}
	}
	return t, nil
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
