package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
)

// invalidError is an invalid setting: a flag, a variable or what they name.
type invalidError struct{ error }

func (e *invalidError) Unwrap() error { return e.error }

// thisProgram is what a node says of the program that it is part of.
type thisProgram struct {
	version   string
	variables variables // that flags of any command read
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
func (s *serveFlags) Validate() error {
	_, certificate := s.files()
	return errors.Join(
		s.databaseFlag.Validate(), s.notifyFlag.check(s.databaseFlag), s.intervalFlags.check(), s.poolFlags.check(), s.hostFlags.check(),
		s.limitFlags.check(), s.consoleFlags.check(),
		s.keysFlag.check(), checkListen(s.Listen), certificate,
		s.oidcFlags.check(s.consoleFlags), s.memberFlags.check(), s.protectionFlag.check(), s.emfFlag.check(),
		s.auditFlag.check(), s.secretDirFlag.check(s.ownFiles()), s.managerFlags.check(), s.vaultFlags.check(), s.callbackFlag.check(),
	)
}

// serve runs the node until ctx ends, then drains. It writes its log to out.
func (s *serveFlags) serve(ctx context.Context, p thisProgram, out io.Writer) error {
	// A slow or broken reader of the log must neither delay nor end the node.
	signal.Ignore(syscall.SIGPIPE)
	sink := newLogSink()
	log := newLogger(sink, s.LogLevel, s.LogFormat)
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer sink.flush(time.Second)
	go sink.run(writing, out, newLogger(out, s.LogLevel, s.LogFormat))
	p.variables.warnUnknown(ctx, log)
	warnExposedFiles(ctx, log, s.Database, s.SecretKeysFile)
	s.warnOfEnvironment(ctx, log, os.LookupEnv)
	limitMemory(ctx, log)
	files, err := s.files()
	if err != nil {
		return &invalidError{err}
	}
	issuer, err := s.issuer(log)
	if err != nil {
		return &invalidError{err}
	}
	login, err := s.consoleLogin(log)
	if err != nil {
		return &invalidError{err}
	}
	keys, err := s.keys(ctx)
	if err != nil {
		return err
	}
	managers, err := s.managers()
	if err != nil {
		return &invalidError{err}
	}
	options := s.options(p.version)
	options.Logger = log
	consoleURL, _ := s.consoleURL() // Validate has tried
	return serveNode(ctx, nodeOptions{
		console: s.Console, consoleURL: consoleURL, login: login,
		database: s.databaseFlag, notify: s.NotifyDatabase, keys: keys, auditRetention: s.AuditRetention.Std(), migrate: s.Migrate,
		listen: s.Listen, tls: files, clientCertificates: s.needsClientCertificate(), issuer: issuer, limits: s.limitFlags,
		log: log, engine: options,
		signals: s.signals(ctx, sink, log), ecsAgent: s.agent(),
		target: invoke.Options{
			Version: p.version, SecretDir: s.SecretDir, Egress: s.egress(), Managers: managers, Logger: log, CallbackURL: s.callbackURL(),
			NameServers: s.NameServers,
		},
	})
}
