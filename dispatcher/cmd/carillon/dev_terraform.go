package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// terraformRun applies the example with the provider of --provider.
type terraformRun struct {
	*devCommand
	out                *screen
	endpoint, receiver string
}

// run applies the example. Of the output it shows only the changes, or the failure.
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

// token returns the token of earlier starts, or a new one that is kept for the next.
func (t terraformRun) token(ctx context.Context, s *store.Store) (string, error) {
	file := filepath.Join(t.Dir, "token")
	if kept, err := os.ReadFile(file); err == nil {
		return strings.TrimSpace(string(kept)), nil
	}
	// Without the file, an earlier token of that name is useless.
	if err := s.DeleteToken(ctx, "dev", byCommandLine()); err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
		return "", err
	}
	issued, err := createToken(ctx, s, access.APIToken{Name: "dev", Scopes: access.Scopes()})
	if err != nil {
		return "", err
	}
	return issued.Secret, os.WriteFile(file, []byte(issued.Secret+"\n"), 0o600)
}

// showConsole says where the console is, and with what to sign in. The token itself is not printed: terminals are recorded.
func (t terraformRun) showConsole(ctx context.Context, s *store.Store) error {
	if _, err := t.token(ctx, s); err != nil {
		return err
	}
	t.out.say("console on %s/console/ (sign in with the token in %s)", t.endpoint, filepath.Join(t.Dir, "token"))
	return nil
}

// cliConfig writes the configuration with which terraform runs the provider from its directory.
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

// The job that fires until the example can be applied.
const (
	helloApp = "dev"
	helloJob = "hello"
)

// prepare runs the command of --prepare, if there is one. Meanwhile a built-in job calls the receiver, so that
// the first fire does not wait for the build of the provider.
func (t terraformRun) prepare(ctx context.Context, s *store.Store) (err error) {
	if t.Prepare == "" {
		return nil
	}
	token, err := t.token(ctx, s)
	if err != nil {
		return err
	}
	api, err := (&apiFlags{Endpoint: t.endpoint, Token: token}).client(ctx)
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
	_, err := api.PutApp(ctx, access.App{Name: helloApp, Enabled: true}, client.Condition{Absent: true})
	if err != nil && !errors.Is(err, dispatcher.ErrPrecondition) { // an earlier carillon dev may have left it
		return err
	}
	job := dispatcher.Job{App: helloApp, Name: helloJob, Enabled: true, Target: target.Target{Webhook: &target.Webhook{}}}
	job.Target.Webhook.SetDefaults()
	job.Target.Webhook.URL = receiver + "/hello"
	often := dispatcher.Trigger{Schedule: dispatcher.Schedule{Expression: "rate(2s)"}}
	often.SetDefaults()
	job.Triggers = map[string]dispatcher.Trigger{"often": often}
	_, err = api.PutJob(ctx, job, client.Condition{Absent: true})
	if errors.Is(err, dispatcher.ErrPrecondition) {
		_, err = api.PutJob(ctx, job, client.Condition{Existing: true})
	}
	return err
}
