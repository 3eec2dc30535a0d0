package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/postgres"
	"github.com/carillon-dev/carillon/test/program"
)

// Names of declared objects.
const (
	appName      = "payroll"
	hostileName  = "hostile"
	functionName = "payroll-function"
	functionARN  = "arn:aws:lambda:eu-west-1:111111111111:function:" + functionName
)

// nodeCount is the number of nodes, which serve both apps. Each may open nodeFiles files: few, as in a small container.
const (
	nodeCount = 2
	nodeFiles = 512
)

// world has everything of a run.
type world struct {
	options
	log       io.Writer
	server    *postgres.Server
	dir, url  string
	receivers *receivers
	nodes     []*node
	spawn     program.Spawner
	// Tokens of the operator and of both apps.
	operator, owner, intruder string
	// dawdler is the hostile owner's token for slow connections. With intruder, they would block its other requests.
	dawdler string
}

// node is a process of carillon serve.
type node struct {
	name, listen string
	command      *exec.Cmd
	log          *os.File
	exited       chan struct{} // closed when the process has ended
}

func newWorld(ctx context.Context, o options, log io.Writer) (w *world, err error) {
	bin, ok := postgres.Find()
	if !ok {
		return nil, errors.New("no PostgreSQL on this machine; install it: apt-get install -y postgresql")
	}
	dir, err := os.MkdirTemp("", "carillon-tenants-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user runs the server
		return nil, err
	}
	w = &world{options: o, log: log, dir: dir, spawn: program.NewSpawner(),
		server: postgres.New(bin, dir, "listen_addresses=", "max_connections=100", "shared_buffers=128MB", "fsync=off")}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := w.server.Init(ctx); err != nil {
		return nil, err
	}
	if err := w.server.Start(ctx, dir); err != nil {
		return nil, err
	}
	if err := w.server.Execute(ctx, "postgres", "CREATE DATABASE tenants"); err != nil {
		return nil, err
	}
	w.url = w.server.URL("tenants")
	if w.receivers, err = newReceivers(); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{w.makeTokens, w.writeSecrets, w.startNodes, w.declare} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// makeTokens creates the tokens in the database, like an operator's first one.
func (w *world) makeTokens(ctx context.Context) error {
	if err := store.Migrate(ctx, w.url); err != nil {
		return err
	}
	s, err := store.Open(ctx, w.url, store.Options{Options: db.Options{AlongsideNode: true}})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, token := range []struct {
		secret *string
		name   string
		scopes []access.Scope
		apps   []string
	}{
		{&w.operator, "operator", access.Scopes(), nil},
		{&w.owner, "owner", []access.Scope{access.ScopeRead, access.ScopeRun, access.ScopeWrite}, []string{appName}},
		{&w.intruder, "intruder", []access.Scope{access.ScopeRead, access.ScopeRun, access.ScopeWrite, access.ScopeExport,
			access.ScopeImport}, []string{hostileName, importedName, chainedName}},
		{&w.dawdler, "dawdler", []access.Scope{access.ScopeRead, access.ScopeRun, access.ScopeExport},
			[]string{slowName}},
	} {
		secret, hash := access.NewToken()
		*token.secret = secret
		if err := s.CreateToken(ctx, access.APIToken{
			ID: token.name, Name: token.name, Hash: hash, TokenSpec: access.TokenSpec{Scopes: token.scopes, Apps: token.apps},
		}); err != nil {
			return err
		}
	}
	return nil
}

// writeSecrets writes the secret files of the nodes.
func (w *world) writeSecrets(context.Context) error {
	for app, text := range map[string]string{appName: fileMark, hostileName: "its own"} {
		dir := filepath.Join(w.dir, "secrets", app)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "key"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// startNodes builds the program and starts the nodes.
func (w *world) startNodes(ctx context.Context) error {
	binary := filepath.Join(w.dir, "carillon")
	if err := program.Build(ctx, "", binary, "./dispatcher/cmd/carillon"); err != nil {
		return err
	}
	logs := w.dir
	if w.logs != "" {
		logs = w.logs
	}
	for i := range nodeCount {
		n := &node{name: "node-" + strconv.Itoa(i), exited: make(chan struct{})}
		var err error
		if n.listen, err = freeport.Address(ctx); err != nil {
			return err
		}
		if n.log, err = os.Create(filepath.Join(logs, n.name+".log")); err != nil { //nolint:gosec // a flag names the directory
			return err
		}
		// The shell sets the hard limit; the program raises its own soft limit to it.
		script := fmt.Sprintf(`ulimit -n %d && exec "$0" serve`, nodeFiles)
		n.command = exec.Command("sh", "-c", script, binary) //nolint:noctx,gosec // close ends it
		n.command.Env = append(os.Environ(),
			"CARILLON_ENV_FILE=", "CARILLON_DATABASE="+w.url, "CARILLON_LISTEN="+n.listen, "CARILLON_NODE_NAME="+n.name,
			"CARILLON_EGRESS_LOOPBACK=true", "CARILLON_CALLBACK_URL=http://"+n.listen,
			"CARILLON_SECRET_DIR="+filepath.Join(w.dir, "secrets"), "CARILLON_SECRET_KEYS="+secretKey,
			"SECRET_PAYROLL_KEY="+envMark, "SECRET_HOSTILE_KEY=its own",
			"AWS_REGION=eu-west-1", "AWS_ACCESS_KEY_ID=AKIA"+"IOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY=secret-"+nodeMark,
			"AWS_SESSION_TOKEN=token-"+nodeMark, "AWS_EC2_METADATA_DISABLED=true",
			"AWS_ENDPOINT_URL_LAMBDA="+w.receivers.aws, "AWS_ENDPOINT_URL_STS="+w.receivers.aws)
		n.command.Stdout, n.command.Stderr = n.log, n.log
		if err := w.spawn.Start(n.command); err != nil {
			return err
		}
		go func() {
			_ = n.command.Wait() // its state has the outcome
			close(n.exited)
		}()
		w.nodes = append(w.nodes, n)
	}
	for _, n := range w.nodes {
		if err := n.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// secretKey encrypts the stored secrets of a run, which are deleted with it.
const secretKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func (n *node) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if status, _, err := call(ctx, "GET", "http://"+n.listen+"/readyz", "", ""); err == nil && status == 200 {
			return nil
		}
		select {
		case <-n.exited:
			return fmt.Errorf("node %s ended at its start; see %s", n.name, n.log.Name())
		case <-ctx.Done():
			return fmt.Errorf("node %s is not ready: %w", n.name, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// alive reports whether the process runs.
func (n *node) alive() bool {
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// close ends everything.
func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) //nolint:forbidigo // that of the run may be over
	defer cancel()
	for _, n := range w.nodes {
		_ = n.command.Process.Kill() // it may have ended
		<-n.exited
		_ = n.log.Close()
	}
	if w.receivers != nil {
		w.receivers.close()
	}
	var problems []error
	if w.server.Started() {
		problems = append(problems, w.server.Stop(ctx, syscall.SIGQUIT), w.server.Close())
	}
	return errors.Join(append(problems, os.RemoveAll(w.dir))...)
}
