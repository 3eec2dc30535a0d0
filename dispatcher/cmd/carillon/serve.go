package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
)

// databaseFlag says where definitions and ledger are kept.
type databaseFlag struct {
	Database string `env:"CARILLON_DATABASE,DATABASE_URL" required:"" placeholder:"URL" help:"postgres://user@host/name, or sqlite:PATH for a single node."`
}

// check refuses what is no database, without showing its password.
func (f databaseFlag) check() error {
	if file, ok := strings.CutPrefix(f.Database, "sqlite:"); ok && file != "" || isPostgres(f.Database) {
		return nil
	}
	return fmt.Errorf("--database (CARILLON_DATABASE): %s is not postgres://user@host/name or sqlite:PATH", maskPassword(f.Database))
}

func isPostgres(database string) bool {
	scheme, rest, _ := strings.Cut(database, "://")
	return (scheme == "postgres" || scheme == "postgresql") && rest != ""
}

// maskPassword quotes a database without its passwords: that before the host, and those in
// the parameters of a URL or of the key=value form. Of what is none of these nothing is
// shown, for nobody can tell where in it a password stands.
func maskPassword(database string) string {
	const withheld = "the value (not shown: it may hold a password)"
	if path, ok := strings.CutPrefix(database, "sqlite:"); ok && !strings.ContainsAny(path, "@?") {
		return dispatcher.Echo(database)
	}
	u, err := url.Parse(database)
	if err != nil || u.Host == "" || strings.Contains(u.Path+u.Fragment, "@") {
		return maskPairs(database, withheld)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return withheld
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), masked)
	}
	for key := range query {
		if isPassword(key) {
			query.Set(key, masked)
		}
	}
	if u.RawQuery != "" {
		u.RawQuery = query.Encode()
	}
	return dispatcher.Echo(strings.ReplaceAll(u.String(), url.QueryEscape(masked), masked))
}

const masked = "***"

func isPassword(key string) bool { return strings.Contains(strings.ToLower(key), "pass") }

// maskPairs is maskPassword of the form "host=db password=x"; otherwise is for what is not of it.
// A quoted value may hold blanks, so with a quote nothing is shown either.
func maskPairs(database, otherwise string) string {
	fields := strings.Fields(database)
	for i, field := range fields {
		key, value, paired := strings.Cut(field, "=")
		if !paired || strings.ContainsAny(value, `'"\@`) || strings.ContainsFunc(key, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
			return otherwise
		}
		if isPassword(key) {
			fields[i] = key + "=" + masked
		}
	}
	if len(fields) == 0 {
		return dispatcher.Echo("")
	}
	return dispatcher.Echo(strings.Join(fields, " "))
}

// serveCommand is a dispatcher node.
type serveCommand struct {
	databaseFlag
	NotifyDatabase string `env:"CARILLON_NOTIFY_DATABASE" placeholder:"URL" help:"Where notifications are heard, if --database leads to a pooler in transaction mode: postgres://user@host/name of the server itself. Without it a node learns of changes with its next poll."`

	Migrate  bool     `env:"CARILLON_MIGRATE" default:"true" negatable:"" help:"Bring the schema up to date at the start."`
	Listen   string   `env:"CARILLON_LISTEN" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address of the HTTP API."`
	TLSCert  string   `env:"CARILLON_TLS_CERT" placeholder:"FILE" help:"Certificate of the HTTP API; with --tls-key."`
	TLSKey   string   `env:"CARILLON_TLS_KEY" placeholder:"FILE" help:"Private key of the certificate."`
	NodeName string   `env:"CARILLON_NODE_NAME" placeholder:"NAME" help:"Label of this node; default the host's name."`
	Apps     []string `env:"CARILLON_APPS" placeholder:"APP,..." help:"Apps that this node serves; default all."`
	keysFlag
	egressFlags
	SecretDir string `env:"CARILLON_SECRET_DIR" default:"/run/secrets" placeholder:"DIR" help:"Directory of the files that jobs may refer to as secrets, as file:PATH. Anyone who may declare jobs may use all of them."`

	Labels map[string]string `env:"CARILLON_NODE_LABELS" mapsep:"," placeholder:"NAME=VALUE,..." help:"What this node is or has, which jobs may require by node_labels, such as zone=a,disk=ssd."`

	PollWindow      dispatcher.Duration `env:"CARILLON_POLL_WINDOW" default:"5s" help:"Look-ahead and rhythm of the poll, 100ms to 60s."`
	HandlerInterval dispatcher.Duration `env:"CARILLON_HANDLER_INTERVAL" default:"15s" help:"Rhythm of the misfire and cluster handler, 100ms to 5m."`
	Heartbeat       dispatcher.Duration `env:"CARILLON_HEARTBEAT" default:"5s" help:"Rhythm of the node's heartbeat, 100ms to 60s."`
	DeadAfter       dispatcher.Duration `env:"CARILLON_DEAD_AFTER" default:"60s" help:"How long a heartbeat may stay out, at least two handler intervals and three heartbeats."`
	ClaimLead       dispatcher.Duration `env:"CARILLON_CLAIM_LEAD" default:"50ms" help:"How far ahead of its instant a fire is claimed, 1ms to 1s."`
	ShareGrace      dispatcher.Duration `env:"CARILLON_SHARE_GRACE" default:"1s" help:"How long a fire is left to the node that is preferred for it, 100ms to 60s."`
	DrainTimeout    dispatcher.Duration `env:"CARILLON_DRAIN_TIMEOUT" default:"25s" help:"How long a shutdown waits for runs in flight, 0s to 24h."`
	Workers         int                 `env:"CARILLON_WORKERS" default:"512" help:"How many attempts are made at once, 1 to 10000. Those that take longer than 500ms, and jobs that often do, move to a share of twice as many."`
	MinWorkers      int                 `env:"CARILLON_MIN_WORKERS" placeholder:"N" help:"Workers that there always are; default 16."`
	AppWorkers      int                 `env:"CARILLON_APP_WORKERS" placeholder:"N" help:"How many attempts are made at once for one app; default three quarters of --workers."`
	HostWorkers     int                 `env:"CARILLON_HOST_WORKERS" placeholder:"N" help:"How many attempts are made at once to one host; default half of --workers."`
	BreakerFailures int                 `env:"CARILLON_BREAKER_FAILURES" default:"20" help:"How many failures of a host in a row make this node leave it alone, for five seconds at first and two minutes at most, 0 to 10000; 0: never."`
	HostRate        int                 `env:"CARILLON_HOST_RATE" default:"0" help:"How many requests per second this node makes to one host, 0 to 100000; 0: no limit. Runs beyond it are defers."`
	Queue           int                 `env:"CARILLON_QUEUE" default:"2048" help:"How many claimed runs may wait for a worker, 1 to 100000."`

	LogLevel  string `env:"CARILLON_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"One of debug, info, warn, error."`
	LogFormat string `env:"CARILLON_LOG_FORMAT" default:"json" enum:"json,text" help:"One of json, text."`
}

// Validate checks the values that no flag's type can check, all of them at once.
func (s *serveCommand) Validate() error {
	problems := []error{s.check(), s.checkNotify()}
	between := func(flag string, value dispatcher.Duration, low, high time.Duration) {
		if value.Std() < low || value.Std() > high {
			problems = append(problems, fmt.Errorf("--%s: %s is not between %s and %s", flag, value, low, high))
		}
	}
	between("poll-window", s.PollWindow, 100*time.Millisecond, time.Minute)
	between("handler-interval", s.HandlerInterval, 100*time.Millisecond, 5*time.Minute)
	between("heartbeat", s.Heartbeat, 100*time.Millisecond, time.Minute)
	between("claim-lead", s.ClaimLead, time.Millisecond, time.Second)
	between("share-grace", s.ShareGrace, 100*time.Millisecond, time.Minute)
	between("drain-timeout", s.DrainTimeout, 0, 24*time.Hour)
	if s.DeadAfter < 2*s.HandlerInterval || s.DeadAfter < 3*s.Heartbeat {
		problems = append(problems, fmt.Errorf("--dead-after: %s is less than two handler intervals (%s) or three heartbeats (%s): a slow round would pass for a death",
			s.DeadAfter, 2*s.HandlerInterval, 3*s.Heartbeat))
	}
	if s.Workers < 1 || s.Workers > 10_000 {
		problems = append(problems, fmt.Errorf("--workers: %d is not between 1 and 10000", s.Workers))
	}
	for flag, n := range map[string]int{"min-workers": s.MinWorkers, "app-workers": s.AppWorkers, "host-workers": s.HostWorkers} {
		if n < 0 || n > s.Workers {
			problems = append(problems, fmt.Errorf("--%s: %d is not between 1 and --workers, which is %d", flag, n, s.Workers))
		}
	}
	if s.BreakerFailures < 0 || s.BreakerFailures > 10_000 {
		problems = append(problems, fmt.Errorf("--breaker-failures: %d is not between 0 and 10000", s.BreakerFailures))
	}
	if s.HostRate < 0 || s.HostRate > 100_000 {
		problems = append(problems, fmt.Errorf("--host-rate: %d is not between 0 and 100000", s.HostRate))
	}
	if s.Queue < 1 || s.Queue > 100_000 {
		problems = append(problems, fmt.Errorf("--queue: %d is not between 1 and 100000", s.Queue))
	}
	var names dispatcher.Problems
	for _, app := range s.Apps {
		dispatcher.CheckName(&names, "--apps", app)
	}
	if _, err := s.keys(); err != nil {
		problems = append(problems, err)
	}
	names.AddError("--labels", dispatcher.Labels(s.Labels).Validate())
	if _, err := s.certificate(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(append(problems, names.Err())...)
}

// checkNotify refuses what is no URL of PostgreSQL, and one that nothing would use.
func (s *serveCommand) checkNotify() error {
	const flag = "--notify-database (CARILLON_NOTIFY_DATABASE): "
	if s.NotifyDatabase == "" {
		return nil
	}
	if !isPostgres(s.Database) {
		return errors.New(flag + "only PostgreSQL is reached through a pooler; leave it out")
	}
	if _, err := pgconn.ParseConfig(s.NotifyDatabase); err != nil || !isPostgres(s.NotifyDatabase) {
		return fmt.Errorf(flag+"%s cannot be read; write it as postgres://user:password@host:5432/name", maskPassword(s.NotifyDatabase))
	}
	return nil
}

// certificate loads the API's certificate; nil without one.
func (s *serveCommand) certificate() (*tls.Certificate, error) {
	switch {
	case s.TLSCert == "" && s.TLSKey == "":
		return nil, nil
	case s.TLSCert == "" || s.TLSKey == "":
		return nil, errors.New("--tls-cert and --tls-key go together; one of them is missing")
	}
	certificate, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", s.TLSCert, s.TLSKey, err)
	}
	return &certificate, nil
}

// Run serves until ctx ends, then drains.
func (s *serveCommand) Run(ctx context.Context, c console) error {
	// Anyone who reads the log may be slow, or gone: neither may hold up or end what it tells of.
	signal.Ignore(syscall.SIGPIPE)
	sink := newLogSink()
	log := newLogger(sink, s.LogLevel, s.LogFormat)
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer sink.flush(logPatience)
	go sink.run(writing, c.err, newLogger(c.err, s.LogLevel, s.LogFormat))
	warnUnknownVariables(ctx, log, os.Environ())
	certificate, err := s.certificate()
	if err != nil {
		return &usageError{err}
	}
	keys, err := s.keys()
	if err != nil {
		return &usageError{err}
	}
	if s.BreakerFailures == 0 {
		s.BreakerFailures = -1 // none, and not the default
	}
	return serveNode(ctx, nodeOptions{
		database: s.Database, notify: s.NotifyDatabase, keys: keys, migrate: s.Migrate, listen: s.Listen, certificate: certificate, log: log,
		target: invoke.Options{Version: version, SecretDir: s.SecretDir, Egress: s.egress()},
		engine: engine.Options{
			Name: nodeName(s.NodeName), Version: version, Apps: s.Apps, Labels: s.Labels,
			Window: s.PollWindow.Std(), Handler: s.HandlerInterval.Std(), Heartbeat: s.Heartbeat.Std(),
			DeadAfter: s.DeadAfter.Std(), Lead: s.ClaimLead.Std(), Grace: s.ShareGrace.Std(), Drain: s.DrainTimeout.Std(),
			Pool: pool.Options{
				Workers: s.Workers, MinWorkers: s.MinWorkers, AppWorkers: s.AppWorkers, HostWorkers: s.HostWorkers, Queue: s.Queue,
			},
			BreakerFailures: s.BreakerFailures, HostRate: s.HostRate,
			Logger: log,
		},
	})
}

// logPatience is how long the end of the process waits for the log to be written.
const logPatience = time.Second

func newLogger(out io.Writer, level, format string) *slog.Logger {
	var parsed slog.Level
	_ = parsed.UnmarshalText([]byte(level)) // an enum of the flag
	options := &slog.HandlerOptions{Level: parsed, ReplaceAttr: inUTC}
	if format == "text" {
		return slog.New(slog.NewTextHandler(out, options))
	}
	return slog.New(slog.NewJSONHandler(out, options))
}

// inUTC keeps the host's zone out of logs: the nodes of a fleet are read side by side.
func inUTC(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}

func nodeName(name string) string {
	if name != "" {
		return name
	}
	host, err := os.Hostname()
	if err != nil {
		return "unnamed"
	}
	return host
}
