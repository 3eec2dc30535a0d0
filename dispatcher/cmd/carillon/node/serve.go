package node

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

// InvalidError is an invalid setting: a flag, a variable or what they name.
type InvalidError struct{ error }

func (e *InvalidError) Unwrap() error { return e.error }

// Program is what a node says of the program that it is part of.
type Program struct {
	Version   string
	Variables Variables // that flags of any command read
}

// Flags configure a node.
type Flags struct {
	DatabaseFlag
	notifyFlag
	Migrate bool `env:"CARILLON_MIGRATE" default:"true" negatable:"" help:"Update the database schema at the start."`
	listenFlags
	consoleFlags
	oidcFlags
	limitFlags
	memberFlags
	auditFlag
	KeysFlag
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
func (s *Flags) Validate() error {
	_, certificate := s.files()
	return errors.Join(
		s.DatabaseFlag.Validate(), s.notifyFlag.check(s.DatabaseFlag), s.intervalFlags.check(), s.poolFlags.check(), s.hostFlags.check(),
		s.limitFlags.check(), s.consoleFlags.check(),
		s.KeysFlag.check(), checkListen(s.Listen), certificate,
		s.oidcFlags.check(s.consoleFlags), s.memberFlags.check(), s.protectionFlag.check(), s.emfFlag.check(),
		s.auditFlag.check(), s.secretDirFlag.check(s.ownFiles()), s.managerFlags.check(), s.vaultFlags.check(), s.callbackFlag.check(),
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
	consoleURL, _ := s.consoleURL() // Validate has tried
	return Run(ctx, Options{
		Console: s.Console, consoleURL: consoleURL, login: login,
		Database: s.DatabaseFlag, notify: s.NotifyDatabase, Keys: keys, auditRetention: s.AuditRetention.Std(), Migrate: s.Migrate,
		Listen: s.Listen, tls: files, clientCertificates: s.needsClientCertificate(), issuer: issuer, limits: s.limitFlags,
		Log: log, Engine: options,
		signals: s.signals(ctx, sink, log), ecsAgent: s.agent(),
		Target: invoke.Options{
			Version: p.Version, SecretDir: s.SecretDir, Egress: s.egress(), Managers: managers, Logger: log, CallbackURL: s.callbackURL(),
			NameServers: s.NameServers,
		},
	})
}
