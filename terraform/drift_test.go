package terraform_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// checkConfiguration runs the real binary with --check, and with exactly the environment and command that a
// module gives it. A variable that the binary does not know is an error too.
func checkConfiguration(ctx context.Context, command []string, environment map[string]string) error {
	bin, err := bench.binaries()
	if err != nil {
		return err
	}
	run := exec.CommandContext(ctx, filepath.Join(bin, "carillon"), append(slices.Clone(command), "--check")...)
	run.Env = []string{"CARILLON_ENV_FILE="} // settings of this machine are none of the node's
	for name, value := range environment {
		run.Env = append(run.Env, name+"="+value)
	}
	out, err := run.CombinedOutput()
	if err != nil {
		return fmt.Errorf("carillon %v --check: %w\n%s", command, err, out)
	}
	if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); len(lines) != 1 || lines[0] != "configuration is valid" {
		return fmt.Errorf("carillon %v --check says more than that the configuration is valid:\n%s", command, out)
	}
	return nil
}

// secretValue stands for a value of Secrets Manager, of the form that the node wants.
func secretValue(name string) string {
	if name == "CARILLON_SECRET_KEYS" {
		return "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	}
	return "hunter2"
}

// environment returns the variables of a container as ECS sets them, with its own.
func (c container) environment() map[string]string {
	all := map[string]string{"ECS_AGENT_URI": "http://169.254.170.2/api/1234", "AWS_EXECUTION_ENV": "AWS_ECS_FARGATE"}
	for _, v := range c.Environment {
		all[v.Name] = v.Value
	}
	for _, s := range c.Secrets {
		all[s.Name] = secretValue(s.Name)
	}
	return all
}

// emittedMetrics reads from the sources of the node which metrics it writes for CloudWatch: literals with a name and a unit.
func emittedMetrics(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "dispatcher", "cmd", "carillon", "node", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			fields := map[string]ast.Expr{}
			for _, element := range literal.Elts {
				if field, ok := element.(*ast.KeyValueExpr); ok {
					key, _ := field.Key.(*ast.Ident)
					if key != nil {
						fields[key.Name] = field.Value
					}
				}
			}
			value, _ := fields["Name"].(*ast.BasicLit)
			if fields["Unit"] != nil && value != nil && value.Kind == token.STRING {
				if name, err := strconv.Unquote(value.Value); err == nil {
					names = append(names, name)
				}
			}
			return true
		})
	}
	if !slices.Contains(names, "Nodes") || !slices.Contains(names, "Lateness") {
		t.Fatalf("the metrics for CloudWatch are not found in the sources of the node; found %v", names)
	}
	return names
}

// It runs with every change, because a change that moves those sources need not run the step of the alarms.
func TestMetricsForCloudWatchAreFoundInTheSources(t *testing.T) {
	t.Parallel()
	emittedMetrics(t)
}

// watchedMetrics returns the metrics of Carillon that alarms and scaling policies look at.
func (s state) watchedMetrics() map[string]string {
	watched := map[string]string{}
	for _, r := range s.all("aws_cloudwatch_metric_alarm") {
		if r.text("namespace") == "Carillon" {
			watched[r.Address] = r.text("metric_name")
		}
	}
	add := func(r resource, metric any) {
		if block, ok := metric.(map[string]any); ok {
			name, _ := block["metric_name"].(string)
			watched[r.Address] = name
		}
	}
	for _, kind := range []string{"aws_appautoscaling_policy", "aws_autoscaling_policy"} {
		for _, r := range s.all(kind) {
			for _, block := range []string{"target_tracking_scaling_policy_configuration", "target_tracking_configuration"} {
				if list, _ := r.first(block)["customized_metric_specification"].([]any); len(list) > 0 {
					add(r, list[0])
				}
			}
		}
	}
	return watched
}

func TestAlarmsWatchMetricsThatNodesEmit(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	emitted := emittedMetrics(t)
	eachClient(t, func(t *testing.T, c client) {
		watched := map[string]string{}
		for _, dir := range folders(t) {
			for _, r := range c.runs(t, dir) {
				for address, metric := range r.state.watchedMetrics() {
					watched[dir+" "+address] = metric
				}
			}
		}
		if len(watched) < 5 {
			t.Errorf("found only %v", watched)
		}
		for address, metric := range watched {
			if !slices.Contains(emitted, metric) {
				t.Errorf("%s watches %s, which no node emits; they emit %v", address, metric, emitted)
			}
		}
	})
}

// The check itself must be able to fail.
func TestCheckOfConfigurationRefusesDrift(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	good := map[string]string{"CARILLON_DATABASE": "postgres://carillon@db.internal:5432/carillon"}
	if err := checkConfiguration(t.Context(), []string{"serve"}, good); err != nil {
		t.Fatal(err)
	}
	for name, variable := range map[string][2]string{
		"a variable that nobody reads": {"CARILLON_DRAIN_TIME", "110s"},
		"a value that is refused":      {"CARILLON_WORKERS", "many"},
		"a drain beyond the stop":      {"CARILLON_STOP_TIMEOUT", "20s"},
	} {
		bad := map[string]string{"CARILLON_DATABASE": good["CARILLON_DATABASE"], variable[0]: variable[1]}
		if err := checkConfiguration(t.Context(), []string{"serve"}, bad); err == nil {
			t.Errorf("%s is accepted", name)
		} else if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkConfiguration(t.Context(), []string{"server"}, good); err == nil {
		t.Error("a command that does not exist is accepted")
	}
}
