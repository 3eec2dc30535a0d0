package engine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Invoker makes one attempt: at most one request on the wire.
type Invoker interface {
	Invoke(ctx context.Context, call target.Call) run.Outcome
}

// Tracer records attempts as spans.
type Tracer interface {
	// Begin begins the span of an attempt at now, by the database's clock. It returns whether the trace of the run is recorded,
	// and what ends the span; nil: it is not. Neither may wait for anything.
	Begin(ctx context.Context, call target.Call, now time.Time) (run.Sampling, func(run.Outcome))
}

// Protector keeps the machine of a node running while an attempt is in flight that a drain could cut off.
type Protector interface {
	// Hold asks for protection until release is called. It must not wait for anything.
	Hold() (release func())
}

// Options tunes an Engine. The zero value works.
type Options struct {
	// Name is the node's label and Version the program's. Both are only shown.
	Name, Version string
	// Apps are those that the node serves; empty: all.
	Apps []string
	// Labels are what the node offers to jobs that require some.
	Labels input.Labels
	// APIAddresses are the addresses, HOST:PORT, on which the node serves its API. Other nodes learn them.
	APIAddresses []string
	// OnAPIs is called with the addresses of the other nodes' APIs, at each heartbeat that finds others than the one
	// before; nil: nothing.
	OnAPIs func(addresses []string)
	// Window is the interval of the poll and how far it looks ahead; default 5s.
	Window time.Duration
	// Handler is the interval of the cluster and misfire handler; default 15s.
	Handler time.Duration
	// Heartbeat is the interval of the node's heartbeat; default 5s.
	Heartbeat time.Duration
	// DeadAfter is the time without a heartbeat until a node counts as dead; default 60s.
	DeadAfter time.Duration
	// ClockMargin is how far the clocks of the database's servers differ at most; 0: it has one clock. Fires are
	// that much later, leases end that much earlier, and nodes count as dead that much later.
	ClockMargin time.Duration
	// Lead is how far ahead of its due time a fire is claimed; default 50ms.
	Lead time.Duration
	// Grace is how long a fire is left to the node that is preferred for it; default 1s.
	Grace time.Duration
	// PurgeInterval is the interval of the purge of history, give or take a tenth; default 10m.
	PurgeInterval time.Duration
	// Drain is how long a shutdown waits for attempts in flight; default 25s, less than 0: not at all.
	Drain time.Duration
	// Closing is how long a shutdown then takes at most to store outcomes and to leave the fleet; default 4s.
	Closing time.Duration
	// Pool is how many runs the node executes and holds.
	Pool pool.Options
	// BreakerFailures is the number of failures in a row that open a host's circuit, so that the
	// node leaves the host alone for a while; default 20, less than 0: never.
	BreakerFailures int
	// HostRate is how many requests per second the node makes to one host; 0: no limit.
	HostRate int
	// Batch is how many fires one statement claims or records at most; default 500.
	Batch int
	// Protection is held during attempts whose timeout is longer than Drain; nil: nothing protects them.
	Protection Protector
	// Tracer records the attempts; nil: nothing does.
	Tracer Tracer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Metrics is where the engine registers its metrics; nil: nobody reads them.
	Metrics prometheus.Registerer
	// OnStarted is called once, when the node has registered and begins to dispatch; nil: nothing.
	OnStarted func(run.NodeID)
	// CertificateEnd returns when the first certificate of the API's chain ends, zero: it serves no TLS; nil: it does not.
	CertificateEnd func() time.Time
	// Members returns the endpoints that the names of DNS in a group stand for: those that an app with some bounds may call, and
	// those that are refused. It may wait for name servers; nil: there are none.
	Members func(ctx context.Context, group target.EndpointGroup, egress target.EgressBounds) (members, refused []target.Endpoint)
	// OnOutcome is called at the end of every attempt, from the attempt's goroutine; nil: nothing.
	OnOutcome func(target.Call, run.Outcome)
}

func (o Options) withDefaults() Options {
	o.Window = cmp.Or(o.Window, 5*time.Second)
	o.Handler = cmp.Or(o.Handler, 15*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 5*time.Second)
	o.DeadAfter = cmp.Or(o.DeadAfter, 60*time.Second)
	o.Lead = cmp.Or(o.Lead, 50*time.Millisecond)
	o.Grace = cmp.Or(o.Grace, time.Second)
	o.PurgeInterval = cmp.Or(o.PurgeInterval, 10*time.Minute)
	o.Drain = cmp.Or(o.Drain, 25*time.Second)
	o.Closing = cmp.Or(o.Closing, 4*time.Second)
	o.BreakerFailures = cmp.Or(o.BreakerFailures, 20)
	o.Batch = cmp.Or(o.Batch, 500)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}
