package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
)

// serveCommand is a dispatcher node.
type serveCommand struct {
	serveFlags
	checkFlag
}

// serveFlags configure a node.
type serveFlags struct {
	databaseFlag
	notifyFlag
	Migrate bool `env:"CARILLON_MIGRATE" default:"true" negatable:"" help:"Update the database schema at the start."`
	listenFlags
	consoleFlags
	oidcFlags
	limitFlags
	memberFlags
	auditFlag
	keysFlag
	egressFlags
	secretDirFlag
	managerFlags
	vaultFlags
	callbackFlag
	intervalFlags
	poolFlags
	hostFlags
	protectionFlag
	logFlags
	emfFlag
}

// Validate checks the values that no flag's type can check, all of them at once.
func (s *serveCommand) Validate() error {
	_, certificate := s.files()
	return errors.Join(
		s.databaseFlag.Validate(), s.notifyFlag.check(s.databaseFlag), s.intervalFlags.check(), s.poolFlags.check(), s.hostFlags.check(),
		s.limitFlags.check(), s.consoleFlags.check(),
		s.keysFlag.check(), checkListen(s.Listen), certificate,
		s.oidcFlags.check(s.consoleFlags), s.memberFlags.check(), s.protectionFlag.check(), s.emfFlag.check(),
		s.auditFlag.check(), s.secretDirFlag.check(s.ownFiles()), s.managerFlags.check(), s.vaultFlags.check(), s.callbackFlag.check(),
	)
}

// Run serves until ctx ends, then drains.
func (s *serveCommand) Run(ctx context.Context, c console) error {
	if s.Check {
		return s.report(ctx, c)
	}
	// A slow or broken reader of the log must neither delay nor end the node.
	signal.Ignore(syscall.SIGPIPE)
	sink := newLogSink()
	log := newLogger(sink, s.LogLevel, s.LogFormat)
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer sink.flush(time.Second)
	go sink.run(writing, c.err, newLogger(c.err, s.LogLevel, s.LogFormat))
	warnUnknownVariables(ctx, log, os.Environ())
	warnExposedFiles(ctx, log, s.Database, s.SecretKeysFile)
	s.warnOfEnvironment(ctx, log, os.LookupEnv)
	limitMemory(ctx, log)
	files, err := s.files()
	if err != nil {
		return &usageError{err}
	}
	issuer, err := s.issuer(log)
	if err != nil {
		return &usageError{err}
	}
	login, err := s.consoleLogin(log)
	if err != nil {
		return &usageError{err}
	}
	keys, err := s.keys(ctx)
	if err != nil {
		return err
	}
	managers, err := s.managers()
	if err != nil {
		return &usageError{err}
	}
	options := s.options()
	options.Logger = log
	consoleURL, _ := s.consoleURL() // Validate has tried
	return serveNode(ctx, nodeOptions{
		console: s.Console, consoleURL: consoleURL, login: login,
		database: s.databaseFlag, notify: s.NotifyDatabase, keys: keys, auditRetention: s.AuditRetention.Std(), migrate: s.Migrate,
		listen: s.Listen, tls: files, clientCertificates: s.needsClientCertificate(), issuer: issuer, limits: s.limitFlags,
		log: log, engine: options,
		signals: s.signals(ctx, sink, log), ecsAgent: s.agent(),
		target: invoke.Options{
			Version: version, SecretDir: s.SecretDir, Egress: s.egress(), Managers: managers, Logger: log, CallbackURL: s.callbackURL(),
			NameServers: s.NameServers,
		},
	})
}

// warnUnknownVariables logs each CARILLON_ variable that no flag reads. A misspelt variable would otherwise
// silently leave a default in force.
func warnUnknownVariables(ctx context.Context, log *slog.Logger, environment []string) {
	known := knownVariables()
	for _, name := range unknownVariables(known, environment) {
		log.WarnContext(ctx, "unknown environment variable", "variable", name, "known", strings.Join(nearest(name, known), ", "))
	}
}

// knownVariables lists the variables that flags read.
func knownVariables() []string {
	known := append(slices.Concat(variableGroups(reflect.TypeFor[cli]())...), envFileVariable)
	slices.Sort(known)
	return slices.Compact(known) // many commands share a flag
}

// unknownVariables lists the CARILLON_ variables that no flag reads.
func unknownVariables(known, environment []string) (names []string) {
	for _, pair := range environment {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "CARILLON_") && !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	return names
}

// variableGroups lists the environment variables in a command's struct tags: for each flag those that set it.
func variableGroups(command reflect.Type) [][]string {
	var names [][]string
	for i := range command.NumField() {
		field := command.Field(i)
		if env := field.Tag.Get("env"); env != "" {
			names = append(names, strings.Split(env, ","))
		}
		if field.Type.Kind() == reflect.Struct {
			names = append(names, variableGroups(field.Type)...)
		}
	}
	return names
}

// nearest returns the known names that share the longest prefix with name.
func nearest(name string, known []string) []string {
	var best []string
	length := len("CARILLON_")
	for _, k := range known {
		n := 0
		for n < min(len(name), len(k)) && name[n] == k[n] {
			n++
		}
		switch {
		case n > length:
			best, length = []string{k}, n
		case n == length && n > len("CARILLON_"):
			best = append(best, k)
		}
	}
	if best == nil {
		return known
	}
	return best
}
