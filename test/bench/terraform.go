package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// terraformCommand measures the processor time of Terraform and the provider for many jobs. The
// node is a real one over SQLite in this process; its time does not count.
type terraformCommand struct {
	Jobs         int    `default:"1000" help:"Jobs of the configuration, 1 to 100000. The bars are for 1,000 and grow with the number."`
	Provider     string `default:"bin/terraform-provider-carillon" placeholder:"FILE" help:"The provider."`
	PeerProvider string `placeholder:"FILE" help:"Another build of the provider, which is measured in turn with it."`
	Terraform    string `default:"terraform" env:"CARILLON_TERRAFORM" placeholder:"FILE" help:"The terraform or tofu that runs them."`
	JSON         bool   `name:"json" help:"Print one JSON object a line."`
}

// terraformSteps are the measured steps, in order. A bar is in processor seconds for 1,000 jobs, and most in times of
// what Terraform needs for as many terraform_data with the same values, which do nothing with them.
var terraformSteps = []struct {
	name      string
	bar, most float64 // 0 without one
	args      []string
}{
	{"create", 60, 0, []string{"apply", "-auto-approve"}},
	// Exit code 0 means that the plan is empty.
	{"empty plan", 20, 2, []string{"plan", "-detailed-exitcode"}},
	{"empty plan -refresh=false", 0, 0, []string{"plan", "-detailed-exitcode", "-refresh=false"}},
}

// Validate checks numbers and files, and reports all problems.
func (c *terraformCommand) Validate() error {
	var problems []error
	if c.Jobs < 1 || c.Jobs > 100_000 {
		problems = append(problems, fmt.Errorf("--jobs: %d is not between 1 and 100000", c.Jobs))
	}
	for _, file := range []string{c.Provider, c.PeerProvider} {
		if _, err := os.Stat(file); file != "" && err != nil {
			problems = append(problems, fmt.Errorf("provider: %w; \"make build\" makes bin/terraform-provider-carillon", err))
		}
	}
	return errors.Join(problems...)
}

// Run measures each step, and fails if one exceeds its bar.
func (c *terraformCommand) Run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "carillon-bench-terraform-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	report := tableReport(out)
	if c.JSON {
		report = jsonReport(out)
	}
	var estates []*estate
	defer func() {
		for _, e := range estates {
			err = errors.Join(err, e.close())
		}
	}()
	for i, file := range []string{c.Provider, c.PeerProvider} {
		if file == "" {
			continue
		}
		e, err := newEstate(ctx, filepath.Join(dir, []string{"own", "peer"}[i]), c.Terraform, file, c.Jobs)
		if err != nil {
			return err
		}
		estates = append(estates, e)
	}
	idle, err := newWorkspace(filepath.Join(dir, "idle"), c.Terraform, map[string]any{
		"resource": map[string]any{"terraform_data": map[string]any{"j": map[string]any{
			"for_each": "${local.reports}", "input": sameValues(),
		}}},
		"locals": map[string]any{"reports": titles(c.Jobs)},
	})
	if err != nil {
		return err
	}
	var missed []error
	for _, step := range terraformSteps {
		r := Result{Bench: "terraform " + step.name, Database: "sqlite", Unit: "CPU s", Jobs: some(c.Jobs)}
		seconds := make([]float64, len(estates))
		for i, e := range slices.Backward(estates) { // the peer first, because the first run warms the machine
			if seconds[i], err = e.terraform(ctx, step.args...); err != nil {
				return fmt.Errorf("%s with %s: %w", step.name, e.provider, err)
			}
		}
		ceiling, err := idle.terraform(ctx, step.args...)
		if err != nil {
			return err
		}
		r.Value, r.Ceiling, r.Ratio = seconds[0], some(ceiling), some(seconds[0]/ceiling)
		if len(seconds) > 1 {
			r.PeerValue, r.PeerRatio = some(seconds[1]), some(seconds[0]/seconds[1])
		}
		if step.bar > 0 {
			r.Bar = some(step.bar * float64(c.Jobs) / 1000)
		}
		if err := report(r); err != nil {
			return err
		}
		if r.Bar != nil && r.Value > *r.Bar {
			missed = append(missed, fmt.Errorf("terraform %s: %.1f seconds of processor time are above the bar of %.1f", step.name, r.Value, *r.Bar))
		}
		if step.most > 0 && *r.Ratio > step.most {
			missed = append(missed, fmt.Errorf("terraform %s takes %.1f times the processor time of as many terraform_data; the most is %g",
				step.name, *r.Ratio, step.most))
		}
	}
	return errors.Join(missed...)
}

// workspace is a directory with a configuration of Terraform.
type workspace struct{ dir, client string }

func newWorkspace(dir, client string, configuration map[string]any) (workspace, error) {
	text, err := json.MarshalIndent(configuration, "", "  ")
	if err != nil {
		return workspace{}, err
	}
	return workspace{dir, client}, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "main.tf.json"), text, 0o600))
}

// estate is a configuration of many jobs that one build of the provider manages on its own node.
type estate struct {
	*apiNode
	workspace
	provider string
}

// newEstate starts the node and writes the configuration into a new directory.
func newEstate(ctx context.Context, dir, client, provider string, jobs int) (*estate, error) {
	provider, err := filepath.Abs(provider)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	n, err := startAPI(ctx, dir)
	if err != nil {
		return nil, err
	}
	w, err := newWorkspace(dir, client, map[string]any{
		"terraform": map[string]any{
			"required_providers": map[string]any{"carillon": map[string]any{"source": "carillon-dev/carillon"}},
		},
		"provider": map[string]any{"carillon": map[string]any{"endpoint": n.url, "token": n.token}},
		"resource": map[string]any{
			"carillon_app": map[string]any{"a": map[string]any{"name": "bench"}},
			"carillon_job": map[string]any{"j": manyJobs()},
		},
		"locals": map[string]any{"reports": titles(jobs)},
	})
	// A separate directory, because Terraform takes any terraform-provider-carillon_* for the provider.
	plugins := filepath.Join(dir, "plugins")
	err = errors.Join(err, os.Mkdir(plugins, 0o700),
		os.Symlink(provider, filepath.Join(plugins, "terraform-provider-carillon")),
		os.WriteFile(filepath.Join(dir, "terraform.rc"), fmt.Appendf(nil,
			"provider_installation {\n  dev_overrides {\n    \"carillon-dev/carillon\" = %q\n  }\n  direct {}\n}\n", plugins), 0o600))
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return &estate{n, w, provider}, nil
}

// manyJobs is a job as in a real installation: a webhook with a secret, headers and retries, at its own time.
func manyJobs() map[string]any {
	return map[string]any{
		"for_each": "${local.reports}",
		"app":      "${carillon_app.a.name}", "name": "${each.key}", "description": "The report ${each.value}",
		"payload": "${jsonencode({ report = each.value })}",
		"retry":   map[string]any{"max_attempts": 5},
		"target": map[string]any{"webhook": map[string]any{
			"url": "https://reports.example.com/${each.key}", "headers": map[string]any{"X-Report": "${each.value}"},
			"auth": map[string]any{"bearer": map[string]any{"token": map[string]any{"reference": "env:SECRET_BENCH_TOKEN"}}},
		}},
		"trigger": map[string]any{"name": "nightly", "expression": "H 2 * * *", "timezone": "UTC"},
	}
}

// sameValues are the values of manyJobs for a resource without a schema.
func sameValues() map[string]any {
	values := manyJobs()
	delete(values, "for_each")
	values["app"] = "bench"
	return values
}

// titles are the titles of the reports, by job. They are a map because Terraform evaluates for_each again for
// each instance and then sorts a set: with toset(...), Terraform itself takes several times as long.
func titles(jobs int) map[string]string {
	all := make(map[string]string, jobs)
	for i := range jobs {
		all[fmt.Sprintf("job-%d", i)] = fmt.Sprintf("number %d", i)
	}
	return all
}

func (w workspace) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, w.client, args...)
	command.Dir = w.dir
	command.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+filepath.Join(w.dir, "terraform.rc"), "CHECKPOINT_DISABLE=1",
		"TF_IN_AUTOMATION=1")
	return command
}

// terraform runs a command and returns the processor seconds of it and of the providers that it
// started. The kernel adds these because Terraform waits for them.
func (w workspace) terraform(ctx context.Context, args ...string) (float64, error) {
	command := w.command(ctx, append(args, "-input=false", "-no-color")...)
	if out, err := command.CombinedOutput(); err != nil {
		const most = 4000
		return 0, fmt.Errorf("terraform %s: %w\n%s", args[0], err, out[max(0, len(out)-most):])
	}
	return (command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds(), nil
}
