package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// InvalidError is an invalid setting: a flag, a variable or the object that they name.
type InvalidError struct{ error }

func (e *InvalidError) Unwrap() error { return e.error }

// Program describes the program of a node.
type Program struct {
	Version   string
	Variables Variables // of the flags of all commands
}

// Flags configure a node.
type Flags struct {
	DatabaseFlag
	notifyFlag
	Migrate bool `env:"CARILLON_MIGRATE" default:"true" negatable:"" help:"Update the database schema at the start."`
	doorFlags
	secretFlags
	callbackFlag
	intervalFlags
	poolFlags
	hostFlags
	protectionFlag
	logFlags
	emfFlag
}

// doorFlags configure who may use the API and the console.
type doorFlags struct {
	listenFlags
	consoleFlags
	oidcFlags
	limitFlags
	memberFlags
	auditFlag
}

// secretFlags configure secrets, and the addresses that attempts may reach.
type secretFlags struct {
	KeysFlag
	egressFlags
	secretDirFlag
	managerFlags
	vaultFlags
}

// Check validates the values that the types of flags cannot, and returns all problems.
func (s *Flags) Check() error {
	_, certificate := s.files()
	_, console := s.consoleURL()
	return errors.Join(
		s.DatabaseFlag.Check(), s.notifyFlag.check(s.DatabaseFlag), s.intervalFlags.check(), s.poolFlags.check(),
		between("breaker-failures", s.BreakerFailures, 0, 10_000), between("host-rate", s.HostRate, 0, 100_000),
		s.limitFlags.check(), console, s.checkTraceURL(),
		s.KeysFlag.check(), checkListen(s.Listen), certificate,
		s.oidcFlags.check(s.consoleFlags), s.memberFlags.check(), s.protectionFlag.check(), s.emfFlag.check(),
		between("audit-retention", s.AuditRetention.Std(), access.MinAuditRetention, input.MaxRetention),
		s.secretDirFlag.check(s.ownFiles()), s.managerFlags.check(), s.vaultFlags.check(), s.callbackFlag.check(),
	)
}

// Serve runs the node until ctx ends, then drains. It writes its log to out.
func (s *Flags) Serve(ctx context.Context, p Program, out io.Writer) error {
	// A slow or broken reader of the log must neither delay nor end the node.
	signal.Ignore(syscall.SIGPIPE)
	sink := newLogSink()
	log := NewLogger(sink, s.LogLevel, s.LogFormat)
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer sink.flush(time.Second)
	go sink.run(writing, out, NewLogger(out, s.LogLevel, s.LogFormat))
	p.Variables.WarnUnknown(ctx, log)
	warnExposedFiles(ctx, log, s.Database, s.SecretKeysFile)
	s.warnOfEnvironment(ctx, log, os.LookupEnv)
	limitMemory(ctx, log)
	files, err := s.files()
	if err != nil {
		return &InvalidError{err}
	}
	issuer, err := s.issuer(log)
	if err != nil {
		return &InvalidError{err}
	}
	login, err := s.consoleLogin(log)
	if err != nil {
		return &InvalidError{err}
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return err
	}
	managers, err := s.managers()
	if err != nil {
		return &InvalidError{err}
	}
	options := s.options(p.Version)
	options.Logger = log
	options.Reach = target.Reach{EgressLoopback: s.EgressLoopback, AWSRegion: identity.Region(ctx), VaultAddress: s.VaultAddress}
	for _, network := range s.EgressPrivate {
		options.Reach.EgressPrivate = append(options.Reach.EgressPrivate, network.String())
	}
	consoleURL, _ := s.consoleURL() // Check has validated it
	return Run(ctx, Options{
		Console: s.Console, consoleURL: consoleURL, traceURL: s.TraceURL, login: login,
		Database: s.DatabaseFlag, notify: s.NotifyDatabase, Keys: keys, auditRetention: s.AuditRetention.Std(), Migrate: s.Migrate,
		Listen: s.Listen, tls: files, clientCertificates: s.ClientCA != "" && s.ClientAuth != "optional", issuer: issuer, limits: s.limitFlags,
		Log: log, Engine: options,
		signals: s.signals(ctx, sink, log), ecsAgent: s.agent(),
		Target: invoke.Options{
			Version: p.Version, SecretDir: s.SecretDir, Egress: s.egress(), Managers: managers, Logger: log,
			CallbackURL: strings.TrimRight(s.CallbackURL, "/"), NameServers: s.NameServers, Console: consoleURL,
		},
	})
}

// The flags of serve form groups. Each has a check that returns all its problems at once.

// notifyFlag is the connection for notifications.
type notifyFlag struct {
	NotifyDatabase string `env:"CARILLON_NOTIFY_DATABASE" placeholder:"URL" help:"Server that notifications come from, postgres://user@host/name, if --database leads to a pooler in transaction mode. Without it, a node learns of changes with its next poll."`
}

// check refuses any value but a PostgreSQL URL, and a value without effect.
func (f notifyFlag) check(database DatabaseFlag) error {
	const name = "--notify-database (CARILLON_NOTIFY_DATABASE)"
	const flag = name + ": "
	if f.NotifyDatabase == "" {
		return nil
	}
	if !isPostgres(database.Database) {
		return errors.New(flag + "only PostgreSQL is reached through a pooler; leave it out")
	}
	if _, err := pgconn.ParseConfig(f.NotifyDatabase); err != nil || !isPostgres(f.NotifyDatabase) {
		return fmt.Errorf(flag+"%s cannot be read; write it as postgres://user:password@host:5432/name", maskPassword(f.NotifyDatabase))
	}
	// Connections for notifications use the same login.
	return database.LoginFlags.checkURL(name, f.NotifyDatabase)
}

// listenFlags are the address and the certificates of the API.
type listenFlags struct {
	Listen  string `env:"CARILLON_LISTEN" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address of the HTTP API."`
	TLSCert string `env:"CARILLON_TLS_CERT" placeholder:"FILE" help:"Certificate of the HTTP API. Needs --tls-key."`
	TLSKey  string `env:"CARILLON_TLS_KEY" placeholder:"FILE" help:"Private key of the certificate. Changed files are read without a restart."`
	// With ClientCA, the default of ClientAuth is require.
	ClientCA   string `env:"CARILLON_CLIENT_CA" placeholder:"FILE" help:"Authorities of client certificates, which are needed in addition to a token. Probes pass without one. Needs --tls-cert."`
	ClientAuth string `env:"CARILLON_CLIENT_AUTH" enum:",require,optional" default:"" placeholder:"require|optional" help:"require: refuse callers without a client certificate. optional: check those that are sent. Default: require. Needs --client-ca."`
}

// files returns the TLS files after it has read them successfully.
func (f listenFlags) files() (tlsFiles, error) {
	switch {
	case f.ClientAuth != "" && f.ClientCA == "":
		return tlsFiles{}, errors.New("--client-auth needs --client-ca, the authorities of client certificates")
	case f.ClientCA != "" && f.TLSCert == "":
		return tlsFiles{}, errors.New("--client-ca needs --tls-cert and --tls-key: client certificates are part of TLS")
	case f.TLSCert == "" && f.TLSKey == "":
		return tlsFiles{}, nil
	case f.TLSCert == "" || f.TLSKey == "":
		return tlsFiles{}, errors.New("--tls-cert and --tls-key go together; one of them is missing")
	}
	files := tlsFiles{cert: f.TLSCert, key: f.TLSKey, clientCA: f.ClientCA}
	_, _, err := files.load()
	return files, err
}

// auditFlag sets how long nodes keep the audit log.
type auditFlag struct {
	AuditRetention input.Duration `env:"CARILLON_AUDIT_RETENTION" default:"9600h" help:"How long the audit log is kept, 24h to 87600h. Give all nodes the same."`
}

// memberFlags are the node's name and its place among the nodes.
type memberFlags struct {
	NodeName string            `env:"CARILLON_NODE_NAME" placeholder:"NAME" help:"Name of this node. Default: the host name."`
	Apps     []string          `env:"CARILLON_APPS" placeholder:"APP,..." help:"Apps that this node serves. Default: all."`
	Labels   map[string]string `env:"CARILLON_NODE_LABELS" mapsep:"," placeholder:"NAME=VALUE,..." help:"Labels of this node, such as zone=a,disk=ssd. Jobs require them with node_labels."`
}

func (f memberFlags) check() error {
	var problems input.Problems
	for _, app := range f.Apps {
		input.CheckName(&problems, "--apps", app)
	}
	problems.AddError("--labels", input.Labels(f.Labels).Validate())
	return errors.Join(problems.Err(), checkNodeName(f.NodeName))
}

func (f memberFlags) name() string {
	if f.NodeName != "" {
		return f.NodeName
	}
	host, err := os.Hostname()
	if err != nil {
		return "unnamed"
	}
	return host
}

// intervalFlags set the intervals and timeouts of a node.
type intervalFlags struct {
	PollWindow          input.Duration `env:"CARILLON_POLL_WINDOW" default:"5s" help:"Interval and look-ahead of the poll, 100ms to 60s."`
	HandlerInterval     input.Duration `env:"CARILLON_HANDLER_INTERVAL" default:"15s" help:"Interval of the handler of misfires and dead nodes, 100ms to 5m."`
	Heartbeat           input.Duration `env:"CARILLON_HEARTBEAT" default:"5s" help:"Interval of the heartbeat, 100ms to 60s."`
	DeadAfter           input.Duration `env:"CARILLON_DEAD_AFTER" default:"60s" help:"Time without a heartbeat until a node counts as dead. At least two handler intervals and three heartbeats."`
	DatabaseClockMargin input.Duration `env:"CARILLON_DATABASE_CLOCK_MARGIN" default:"0s" help:"How far the clocks of the database's servers differ at most, if it has several that take writes, 0s to a quarter of --dead-after. Fires are that much later."`
	ClaimLead           input.Duration `env:"CARILLON_CLAIM_LEAD" default:"50ms" help:"How long before its scheduled time a fire is claimed, 1ms to 1s."`
	ShareGrace          input.Duration `env:"CARILLON_SHARE_GRACE" default:"1s" help:"How long a due fire is left to its preferred node, 100ms to 60s."`
	DrainTimeout        input.Duration `env:"CARILLON_DRAIN_TIMEOUT" default:"25s" help:"How long a shutdown waits for runs in flight, 0s to 24h."`
	StopTimeout         input.Duration `env:"CARILLON_STOP_TIMEOUT" default:"0s" help:"When the platform kills a process after SIGTERM. --drain-timeout must be at least 5s shorter. 0s: not known."`
}

// Between the end of its drain and its own end a node takes at most stopMargin, or mostStopMargin
// if --stop-timeout leaves that much. processEnd is the part of it for the API and the process,
// after the engine.
const (
	stopMargin     = 5 * time.Second
	mostStopMargin = 10 * time.Second
	processEnd     = 1500 * time.Millisecond
	// ShortestClosing is the shortest time that this leaves for the engine.
	ShortestClosing = stopMargin - processEnd
)

// margin returns the longest time of a node between the end of its drain and its own end.
func (f intervalFlags) margin() time.Duration {
	return min(max(f.StopTimeout.Std()-f.DrainTimeout.Std(), stopMargin), mostStopMargin)
}

func (f intervalFlags) check() error {
	problems := []error{
		between("poll-window", f.PollWindow.Std(), 100*time.Millisecond, time.Minute),
		between("handler-interval", f.HandlerInterval.Std(), 100*time.Millisecond, 5*time.Minute),
		between("heartbeat", f.Heartbeat.Std(), 100*time.Millisecond, time.Minute),
		between("claim-lead", f.ClaimLead.Std(), time.Millisecond, time.Second),
		between("share-grace", f.ShareGrace.Std(), 100*time.Millisecond, time.Minute),
		between("drain-timeout", f.DrainTimeout.Std(), 0, 24*time.Hour),
	}
	if f.DeadAfter < 2*f.HandlerInterval || f.DeadAfter < 3*f.Heartbeat {
		problems = append(problems, fmt.Errorf(
			"--dead-after: %s is less than two handler intervals (%s) or three heartbeats (%s): a slow round would count as a death",
			f.DeadAfter, 2*f.HandlerInterval, 3*f.Heartbeat))
	}
	if margin := f.DatabaseClockMargin; margin < 0 || margin > f.DeadAfter/4 {
		problems = append(problems, fmt.Errorf("--database-clock-margin: %s is not between 0s and a quarter of --dead-after (%s), "+
			"by which a lease would end too early; set a longer --dead-after", margin, f.DeadAfter/4))
	}
	if stop := f.StopTimeout.Std(); stop < 0 || stop > 25*time.Hour {
		problems = append(problems, fmt.Errorf("--stop-timeout: %s is not between 0s and 25h", f.StopTimeout))
	} else if stop > 0 && f.DrainTimeout.Std() > stop-stopMargin {
		problems = append(problems, fmt.Errorf("--drain-timeout: %s is more than --stop-timeout (%s) less %s: the platform would kill the node "+
			"in its drain; set %s at most, or a longer --stop-timeout", f.DrainTimeout, f.StopTimeout, stopMargin, max(0, stop-stopMargin)))
	}
	return errors.Join(problems...)
}

// poolFlags bound the attempts in flight.
type poolFlags struct {
	Workers     int `env:"CARILLON_WORKERS" default:"1024" help:"Attempts at once, 1 to 10000; fewer if the process may open few files."`
	MinWorkers  int `env:"CARILLON_MIN_WORKERS" placeholder:"N" help:"Workers that never stop. Default: 16."`
	AppWorkers  int `env:"CARILLON_APP_WORKERS" placeholder:"N" help:"Attempts at once for one app while the others make none. Default: three quarters of --workers."`
	HostWorkers int `env:"CARILLON_HOST_WORKERS" placeholder:"N" help:"The same for one host of an app. Default: half of --workers."`
	Queue       int `env:"CARILLON_QUEUE" default:"2048" help:"Claimed runs that may wait for a worker, 1 to 100000."`
}

func (f poolFlags) check() error {
	problems := []error{between("workers", f.Workers, 1, 10_000), between("queue", f.Queue, 1, 100_000)}
	for flag, n := range map[string]int{"min-workers": f.MinWorkers, "app-workers": f.AppWorkers, "host-workers": f.HostWorkers} {
		if n < 0 || n > f.Workers {
			problems = append(problems, fmt.Errorf("--%s: %d is not between 1 and --workers, which is %d", flag, n, f.Workers))
		}
	}
	return errors.Join(problems...)
}

// hostFlags protect one host from this node.
type hostFlags struct {
	BreakerFailures int `env:"CARILLON_BREAKER_FAILURES" default:"20" help:"Failures of a host in a row after which this node pauses its calls, for five seconds at first and up to two minutes, 0 to 10000. 0: never."`
	HostRate        int `env:"CARILLON_HOST_RATE" default:"0" help:"Requests per second to one host, 0 to 100000. Further runs are deferred. 0: no limit."`
}

// between returns a problem if a flag is out of bounds.
func between[N int | time.Duration](flag string, n, least, most N) error {
	if n < least || n > most {
		return fmt.Errorf("--%s: %v is not between %v and %v", flag, n, least, most)
	}
	return nil
}

// options returns the engine's options, except logger and metrics.
func (s *Flags) options(version string) engine.Options {
	breaker, drain := s.BreakerFailures, s.DrainTimeout.Std()
	if breaker == 0 {
		breaker = -1 // disabled; for the engine, 0 means the default
	}
	if drain == 0 {
		drain = -1 // the same
	}
	return engine.Options{
		Name: s.name(), Version: version, Apps: s.Apps, Labels: s.Labels,
		Window: s.PollWindow.Std(), Handler: s.HandlerInterval.Std(), Heartbeat: s.Heartbeat.Std(),
		DeadAfter: s.DeadAfter.Std(), ClockMargin: s.DatabaseClockMargin.Std(), Lead: s.ClaimLead.Std(), Grace: s.ShareGrace.Std(),
		Drain: drain, Closing: s.margin() - processEnd,
		Pool: pool.Options{
			Workers: s.Workers, MinWorkers: s.MinWorkers, AppWorkers: s.AppWorkers, HostWorkers: s.HostWorkers, Queue: s.Queue,
		},
		BreakerFailures: breaker, HostRate: s.HostRate,
	}
}

// egressFlags restrict the addresses of targets.
type egressFlags struct {
	EgressLoopback bool             `env:"CARILLON_EGRESS_LOOPBACK" help:"Also call targets on this node itself."`
	EgressDeny     []netip.Prefix   `env:"CARILLON_EGRESS_DENY" placeholder:"CIDR,..." help:"Additional networks that are never called."`
	EgressPrivate  []netip.Prefix   `env:"CARILLON_EGRESS_PRIVATE" placeholder:"CIDR,..." help:"Private networks that apps may call, within 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 and fc00::/7, unless the bounds of an app list other networks. Default: none."`
	NameServers    []netip.AddrPort `env:"CARILLON_NAME_SERVERS" placeholder:"ADDRESS:PORT,..." help:"Name servers that know the members of endpoint groups from DNS. Default: those of /etc/resolv.conf."`
}

func (f egressFlags) egress() web.Egress {
	return web.Egress{Loopback: f.EgressLoopback, Deny: f.EgressDeny, Private: f.EgressPrivate}
}

// denyOwn denies the addresses of the node's API and database. It makes the other nodes deny those of the API, too.
func (o *Options) denyOwn(ctx context.Context, listening net.Addr) {
	apis := apiAddresses(listening)
	for _, address := range apis {
		o.Engine.APIAddresses = append(o.Engine.APIAddresses, address.String())
	}
	o.Target.Egress.Own = slices.Concat(
		apis, databaseAddresses(ctx, o.Database.Database), databaseAddresses(ctx, o.notify))
	if at, err := netip.ParseAddrPort(listening.String()); err == nil && at.Addr().IsUnspecified() {
		o.Target.Egress.OwnPorts = []uint16{at.Port()} // also at addresses that the machine gets later
	}
}

// databaseAddresses returns the addresses of a PostgreSQL database, and none for other databases.
func databaseAddresses(ctx context.Context, database string) (own []netip.AddrPort) {
	if !isPostgres(database) {
		return nil
	}
	config, err := pgconn.ParseConfig(database)
	if err != nil {
		return nil // never: the database is open
	}
	hosts := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port}}, config.Fallbacks...)
	for _, at := range hosts {
		if strings.HasPrefix(at.Host, "/") {
			continue // a socket
		}
		addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", at.Host)
		if err != nil {
			continue
		}
		for _, addr := range addresses {
			own = append(own, netip.AddrPortFrom(addr.Unmap(), at.Port))
		}
	}
	return own
}

// apiAddresses returns the addresses of a listener. If it listens on all addresses, they are those
// of all interfaces.
func apiAddresses(listening net.Addr) []netip.AddrPort {
	at, err := netip.ParseAddrPort(listening.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return []netip.AddrPort{at}
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var own []netip.AddrPort
	for _, one := range interfaces {
		// Link-local addresses are never called, and the machines of many nodes share them.
		if prefix, err := netip.ParsePrefix(one.String()); err == nil && !prefix.Addr().IsLinkLocalUnicast() {
			own = append(own, netip.AddrPortFrom(prefix.Addr(), at.Port()))
		}
	}
	return own
}
