package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	apigate "github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/limit"
)

// limitFlags are the limits of the HTTP API of one node.
type limitFlags struct {
	APIConnections        int      `name:"api-connections" env:"CARILLON_API_CONNECTIONS" default:"512" help:"Connections to the API at once, 8 to 100000; at most a quarter of the files that the process may open."`
	APIAddressConnections int      `name:"api-address-connections" env:"CARILLON_API_ADDRESS_CONNECTIONS" default:"64" help:"Connections of one address, 4 to 100000; at most half of --api-connections."`
	APIAddressRequests    int      `name:"api-address-requests" env:"CARILLON_API_ADDRESS_REQUESTS" default:"30000" help:"Requests of one address in a minute, 60 to 10000000."`
	APITokenRequests      int      `name:"api-token-requests" env:"CARILLON_API_TOKEN_REQUESTS" default:"60000" help:"Requests in a minute with one token that is bound to no app, 60 to 10000000."`
	TrustedProxies        []string `env:"CARILLON_TRUSTED_PROXIES" placeholder:"CIDR,..." help:"Networks of load balancers in front of the API. Requests from there count for the address in X-Forwarded-For."`
}

func (f limitFlags) check() error {
	_, proxies := f.proxies()
	return errors.Join(between("api-connections", f.APIConnections, 8, 100_000),
		between("api-address-connections", f.APIAddressConnections, 4, 100_000),
		between("api-address-requests", f.APIAddressRequests, 60, 10_000_000),
		between("api-token-requests", f.APITokenRequests, 60, 10_000_000), proxies)
}

func (f limitFlags) proxies() (limit.Proxies, error) {
	var proxies limit.Proxies
	var problems []error
	for _, text := range f.TrustedProxies {
		network, err := netip.ParsePrefix(text)
		if err != nil || network != network.Masked() {
			problems = append(problems, fmt.Errorf("--trusted-proxies (CARILLON_TRUSTED_PROXIES): %q is not a network such as 10.0.0.0/8", text))
			continue
		}
		proxies = append(proxies, network)
	}
	return proxies, errors.Join(problems...)
}

func (f limitFlags) limits(shares fileShares) apigate.Limits {
	proxies, _ := f.proxies() // Check has validated it
	most := int64(128 << 20)
	if memory := debug.SetMemoryLimit(-1); memory != math.MaxInt64 {
		most = max(16<<20, min(most, memory/4))
	}
	return apigate.Limits{
		AddressRequests: f.APIAddressRequests, TokenRequests: f.APITokenRequests, Memory: most, Proxies: proxies,
		Connections: shares.api, AddressConnections: shares.address,
	}
}

// ownFiles is how many files a node needs in addition to those of the API and its attempts: for
// connections to the database, the log, time zones, secrets and the runtime.
const ownFiles = 64

// fileShares divides the files that a process may open, so that no client of the API and no slow
// target takes the files of others.
type fileShares struct {
	api, address int // connections to the API, in total and from one address
	targets      int // connections to targets, with idle ones; 0 means unlimited
	workers      int // attempts in flight: at most three quarters of targets, because idle connections are kept
	warning      string
}

// shares divides the files of a process, 0 if the limit is unknown, for a node with so many
// workers. It sets a warning if the node gets fewer workers.
func (f limitFlags) shares(files, workers int) fileShares {
	s := fileShares{api: cmp.Or(f.APIConnections, 512), workers: workers}
	if files > 0 {
		s.api = max(8, min(s.api, files/4))
		s.targets = max(16, files-s.api-ownFiles)
		s.workers = min(workers, s.targets*3/4)
	}
	if s.workers < workers {
		s.warning = fmt.Sprintf("this process may open %d files, so it has %d workers instead of %d, besides %d connections to the API; "+
			"raise the limit of open files (ulimit -n, LimitNOFILE) to %d, or lower --workers", files, s.workers, workers, s.api,
			f.filesFor(workers))
	}
	s.address = max(4, min(cmp.Or(f.APIAddressConnections, 64), s.api/2))
	return s
}

// filesFor returns how many open files suffice for so many workers.
func (f limitFlags) filesFor(workers int) int {
	others, connections := workers*4/3+2+ownFiles, cmp.Or(f.APIConnections, 512)
	if files := others*4/3 + 2; files/4 <= connections {
		return files
	}
	return others + connections
}

// withinFiles keeps a node within the limit of open files.
func (o *Options) withinFiles(ctx context.Context, files int) {
	pool := &o.Engine.Pool
	o.files = o.limits.shares(files, cmp.Or(pool.Workers, 1024))
	pool.Workers, o.Target.Connections = o.files.workers, o.files.targets
	for _, part := range []*int{&pool.MinWorkers, &pool.AppWorkers, &pool.HostWorkers} {
		*part = min(*part, pool.Workers)
	}
	if o.files.warning != "" {
		o.Log.WarnContext(ctx, "few open files", "detail", o.files.warning)
	}
}

// Timeouts of a connection to the API. Package limit has shorter ones for bodies and responses.
// idleTime is longer than the usual minute of load balancers, because a connection that the node
// closes first costs a request. New connections replace idle ones anyway.
const (
	headerTime = 5 * time.Second
	bodyTime   = 30 * time.Second
	idleTime   = 75 * time.Second
)

// newServer returns a server of the API, and its listener: inner with the limits of the API.
func newServer(ctx context.Context, inner net.Listener, o Options, registry *prometheus.Registry) (*http.Server, net.Listener) {
	most, perAddress := o.files.api, o.files.address
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_api_connections_refused_total",
		Help: "Connections to the API that were refused, or closed to make room, by reason.",
	}, []string{"reason"})
	for _, reason := range []string{limit.ReasonNode, limit.ReasonAddress, limit.ReasonIdle, limit.ReasonWaiting} {
		refused.WithLabelValues(reason)
	}
	lines := limit.NewLines(6, time.Minute)
	proxies, _ := o.limits.proxies() // Check has validated it
	listener := limit.Listen(inner, limit.ListenerOptions{
		Most: most, PerAddress: perAddress, Shared: proxies,
		Refused: func(reason string, address netip.Addr) {
			refused.WithLabelValues(reason).Inc()
			if withheld, may := lines.May(reason, time.Now()); may {
				o.Log.WarnContext(ctx, "too many connections to the API", "reason", reason, "address", address.String(),
					"limit", most, "address_limit", perAddress, "lines_withheld", withheld)
			}
		},
	})
	registry.MustRegister(refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carillon_api_connections", Help: "Connections to the API.",
	}, func() float64 { return float64(listener.Count()) }))
	return &http.Server{
		ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: bodyTime, IdleTimeout: idleTime,
		MaxHeaderBytes: 32 << 10, ConnState: listener.State, ConnContext: listener.Context,
		ErrorLog: slog.NewLogLogger(serverLog{o.Log.Handler(), lines}, slog.LevelDebug),
	}, listener
}

// serverLog is a handler for reports of the API's server. It logs reports about the node, and drops
// those about a caller, such as an unfinished handshake.
type serverLog struct {
	slog.Handler
	lines *limit.Lines
}

// Enabled returns true: Handle decides by the text.
func (s serverLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle logs one report.
func (s serverLog) Handle(ctx context.Context, record slog.Record) error {
	level := slog.LevelDebug
	switch text := record.Message; {
	case strings.Contains(text, "panic"):
		level = slog.LevelError
	case strings.Contains(text, "Accept error"), strings.Contains(text, "too many open files"):
		level = slog.LevelWarn
		if _, may := s.lines.May("server", record.Time); !may {
			return nil
		}
	}
	if !s.Handler.Enabled(ctx, level) {
		return nil
	}
	report := slog.NewRecord(record.Time, level, "server of the API", 0)
	report.AddAttrs(slog.String("err", record.Message))
	return s.Handler.Handle(ctx, report)
}
