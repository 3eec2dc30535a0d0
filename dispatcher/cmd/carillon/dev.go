package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// devCommand runs everything on one machine: a node over SQLite, a receiver, and the quickstart example,
// applied by a real terraform.
type devCommand struct {
	Dir       string `default:".carillon" placeholder:"DIR" help:"Directory of database, token and Terraform state."`
	Terraform string `env:"CARILLON_TERRAFORM" placeholder:"FILE" help:"The terraform or tofu binary. Required without --prepare."`
	Provider  string `required:"" placeholder:"FILE" help:"The terraform-provider-carillon binary."`
	Prepare   string `placeholder:"COMMAND" help:"Shell command that builds --provider while the node starts. A path that it prints is --terraform."`
	Example   string `default:"examples/quickstart" placeholder:"DIR" help:"The configuration to apply."`
	Listen    string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address of the HTTP API. If it is in use, a free port is taken."`
	Receiver  string `default:"127.0.0.1:8089" placeholder:"HOST:PORT" help:"Address of the receiver. If it is in use, a free port is taken."`
}

// screen prints lines from many goroutines one at a time.
type screen struct {
	mu sync.Mutex
	c  console
}

func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.c.out, format+"\n", args...)
}

// Validate requires a terraform.
func (d *devCommand) Validate() error {
	if d.Terraform == "" && d.Prepare == "" {
		return errors.New("--terraform (CARILLON_TERRAFORM): set the path of terraform or tofu")
	}
	return nil
}

// Run serves, applies and shows until ctx ends.
func (d *devCommand) Run(ctx context.Context, c console) error {
	out, began := &screen{c: c}, time.Now()
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return err
	}
	logFile, err := os.OpenFile(filepath.Join(d.Dir, "carillon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	log := node.NewLogger(logFile, "info", "text")

	receiver, err := d.listenReceiver(ctx, out)
	if err != nil {
		return err
	}
	hooks := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() { _ = hooks.Serve(receiver) }() // ends with Close below
	defer hooks.Close()

	api, err := listenNear(ctx, out, "API", d.Listen)
	if err != nil {
		return err
	}
	address := api.Addr().String()
	if err := api.Close(); err != nil {
		return err
	}
	keys, err := d.keys(ctx)
	if err != nil {
		return err
	}
	database := "sqlite:" + filepath.Join(d.Dir, "carillon.db")
	out.say("data in %s, log in %s", d.Dir, logFile.Name())
	err = node.Run(ctx, node.Options{
		Database: node.DatabaseFlag{Database: database}, Keys: keys, Migrate: true, Listen: address, Log: log, Console: true,
		Engine: engine.Options{
			Name: "dev", Version: version, Logger: log, Drain: 5 * time.Second, Closing: node.ShortestClosing, OnOutcome: out.fire,
		},
		Target: invoke.Options{Version: version, SecretDir: filepath.Join(d.Dir, "secrets"), Egress: web.Egress{Loopback: true},
			Managers: secret.Managers{Keep: secret.DefaultKeep}, Logger: log},
		Ready: func(ctx context.Context, s *store.Store, address string) {
			apply := terraformRun{devCommand: d, out: out, endpoint: "http://" + address, receiver: "http://" + receiver.Addr().String()}
			err := apply.showConsole(ctx, s)
			if err == nil {
				err = apply.prepare(ctx, s)
			}
			if err == nil {
				err = apply.run(ctx, s)
			}
			switch {
			case err == nil:
				out.watchMisfires(ctx, s, began)
			case ctx.Err() == nil:
				out.say("terraform: %v", err)
			}
		},
	})
	out.say("stopped; fires missed until the next start are handled then")
	return err
}

// listenReceiver listens on the address of the previous start, if possible: missed fires that run
// before the example is applied again still use that address.
func (d *devCommand) listenReceiver(ctx context.Context, out *screen) (net.Listener, error) {
	file, address := filepath.Join(d.Dir, "receiver"), d.Receiver
	if before, err := os.ReadFile(file); err == nil {
		address = string(before)
	}
	listener, err := listenNear(ctx, out, "receiver", address)
	if err != nil {
		return nil, err
	}
	return listener, os.WriteFile(file, []byte(listener.Addr().String()), 0o600)
}

// listenNear listens on address, or on a free port of the same host if that port is taken.
func listenNear(ctx context.Context, out *screen, what, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		out.say("%s on http://%s", what, listener.Addr())
		return listener, nil
	}
	host, _, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		return nil, &usageError{fmt.Errorf("address of the %s: %w", what, splitErr)}
	}
	listener, freeErr := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if freeErr != nil {
		return nil, errors.Join(err, freeErr)
	}
	out.say("%s on http://%s (%s is in use)", what, listener.Addr(), address)
	return listener, nil
}

func (s *screen) fire(call target.Call, o run.Outcome) {
	s.say("%s", fireLine(run.Run{
		App: call.App, Job: call.Job, Trigger: call.Trigger, Kind: call.Key.Kind, ScheduledAt: call.Key.ScheduledAt,
		State: o.State, FirstStartedAt: &o.StartedAt, HTTPStatus: o.HTTPStatus, Class: o.Class, Error: o.Error,
	}))
}

// watchMisfires prints each misfire decision since began once.
func (s *screen) watchMisfires(ctx context.Context, store *store.Store, began time.Time) {
	shown := map[string]bool{}
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		apps, err := store.Apps(ctx, input.Page{Limit: 100})
		if err != nil {
			continue // the store logs the error
		}
		for _, app := range apps {
			misfires, err := store.Misfires(ctx, dispatcher.RunQuery{App: app.Name, Page: input.Page{Limit: 100}})
			if err != nil {
				continue
			}
			for _, m := range misfires {
				if m.DecidedAt.After(began) && !shown[m.Cursor()] {
					shown[m.Cursor()] = true
					s.say("%s", misfireLine(m))
				}
			}
		}
	}
}

// pause waits, or returns early when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// keys returns the key for stored secrets, which the first start creates.
func (d *devCommand) keys(ctx context.Context) (*seal.Keys, error) {
	name := filepath.Join(d.Dir, "secret.key")
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(name, []byte(newKey()+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	return node.KeysFlag{SecretKeysFile: name}.Keys(ctx)
}

// terraformRun applies the example with the provider of --provider.
type terraformRun struct {
	*devCommand
	out                *screen
	endpoint, receiver string
}

// run applies the example. It prints only the changes in the output, or the failure.
func (t terraformRun) run(ctx context.Context, s *store.Store) error {
	token, err := t.token(ctx, s)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(t.Dir)
	if err != nil {
		return err
	}
	config, err := t.cliConfig(dir)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, t.Terraform, "-chdir="+t.Example, "apply", "-auto-approve", "-no-color", "-compact-warnings",
		"-state="+filepath.Join(dir, "terraform.tfstate"), "-var=receiver_url="+t.receiver)
	command.Env = append(os.Environ(),
		"TF_CLI_CONFIG_FILE="+config, "TF_DATA_DIR="+filepath.Join(dir, "terraform"), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0",
		"CARILLON_ENDPOINT="+t.endpoint, "CARILLON_TOKEN="+token)
	t.out.say("applying %s with %s", t.Example, t.Terraform)
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apply %s: %w\n%s", t.Example, err, output)
	}
	for line := range strings.SplitSeq(string(output), "\n") {
		if strings.Contains(line, " complete after ") || strings.HasPrefix(line, "Apply complete") || strings.HasPrefix(line, "No changes") {
			t.out.say("terraform: %s", line)
		}
	}
	return nil
}

// token returns the token of earlier starts, or creates one and keeps it for later starts.
func (t terraformRun) token(ctx context.Context, s *store.Store) (string, error) {
	file := filepath.Join(t.Dir, "token")
	if kept, err := os.ReadFile(file); err == nil {
		return strings.TrimSpace(string(kept)), nil
	}
	// Without the file, an existing token with that name is useless.
	if err := s.DeleteToken(ctx, "dev", byCommandLine()); err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
		return "", err
	}
	issued, err := createToken(ctx, s, access.APIToken{Name: "dev", TokenSpec: access.TokenSpec{Scopes: access.Scopes()}})
	if err != nil {
		return "", err
	}
	return issued.Secret, os.WriteFile(file, []byte(issued.Secret+"\n"), 0o600)
}

// showConsole prints the console's address and how to sign in, but not the token, because terminals are recorded.
func (t terraformRun) showConsole(ctx context.Context, s *store.Store) error {
	if _, err := t.token(ctx, s); err != nil {
		return err
	}
	t.out.say("console on %s/console/ (sign in with the token in %s)", t.endpoint, filepath.Join(t.Dir, "token"))
	return nil
}

// cliConfig writes a terraform configuration that uses the provider from its directory.
func (t terraformRun) cliConfig(dir string) (string, error) {
	provider, err := filepath.Abs(t.Provider)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "terraform.rc")
	text := fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"carillon-dev/carillon\" = %q\n  }\n  direct {}\n}\n",
		filepath.Dir(provider))
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// The built-in job, which fires until the example can be applied.
const (
	helloApp = "dev"
	helloJob = "hello"
)

// prepare runs the command of --prepare, if it is given. Meanwhile a built-in job calls the
// receiver, so that the first fire does not wait for the build of the provider.
func (t terraformRun) prepare(ctx context.Context, s *store.Store) (err error) {
	if t.Prepare == "" {
		return nil
	}
	token, err := t.token(ctx, s)
	if err != nil {
		return err
	}
	api, err := (&apiFlags{Endpoint: t.endpoint, Token: token}).ProvideClient(ctx)
	if err != nil {
		return err
	}
	if err := hello(ctx, api, t.receiver); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, api.DeleteJob(ctx, helloApp, helloJob, client.Condition{Existing: true}))
	}()
	t.out.say("preparing terraform and the provider; until then, the built-in job %s/%s fires every 2 s", helloApp, helloJob)
	command := exec.CommandContext(ctx, "sh", "-c", t.Prepare)
	command.Stderr = t.out.c.err
	printed, err := command.Output()
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if path := strings.TrimSpace(string(printed)); path != "" {
		t.Terraform = path
	}
	return nil
}

// hello declares the built-in job.
func hello(ctx context.Context, api *client.Client, receiver string) error {
	_, err := api.PutApp(ctx, access.App{Name: helloApp, AppSpec: access.AppSpec{Enabled: true}}, client.Condition{Absent: true})
	if err != nil && !errors.Is(err, dispatcher.ErrPrecondition) { // an earlier carillon dev may have created it
		return err
	}
	job := dispatcher.Job{App: helloApp, Name: helloJob,
		JobSpec: dispatcher.JobSpec{Enabled: true, Target: target.Target{Webhook: &target.Webhook{}}}}
	job.Target.Webhook.SetDefaults()
	job.Target.Webhook.URL = receiver + "/hello"
	often := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "rate(2s)"}}}
	often.SetDefaults()
	job.Triggers = map[string]dispatcher.Trigger{"often": often}
	_, err = api.PutJob(ctx, job, client.Condition{Absent: true})
	if errors.Is(err, dispatcher.ErrPrecondition) {
		_, err = api.PutJob(ctx, job, client.Condition{Existing: true})
	}
	return err
}
