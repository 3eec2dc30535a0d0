package terraform_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/need"
)

// fleetContainer returns the container of the nodes in a run.
func (c client) fleetContainer(t *testing.T, dir, run string) container {
	t.Helper()
	found, err := containers(c.state(t, dir, run).one(t, taskDefinition))
	if err != nil || len(found) != 1 {
		t.Fatalf("the task has containers %v, %v, want one", found, err)
	}
	return found[0]
}

// The module and the binary come from one commit, and each must accept what the other says.
func TestECSTasksAreConfigurationsOfTheBinary(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	eachClient(t, func(t *testing.T, c client) {
		checked := 0
		for _, dir := range []string{ecsDir, "examples/ecs-rds"} {
			for name, r := range c.runs(t, dir) {
				if len(r.state.all(taskDefinition)) == 0 {
					continue // it is refused
				}
				fleet := c.fleetContainer(t, dir, name)
				if err := checkConfiguration(t.Context(), fleet.Command, fleet.environment()); err != nil {
					t.Errorf("%s: run %q: %v", dir, name, err)
				}
				checked++
			}
		}
		if checked < 4 {
			t.Errorf("%d tasks were checked, want 4 or more", checked)
		}
	})
}

// The health check of the task is run against a node with the environment of the task, but for its database
// and its address.
func TestECSHealthCheckFindsANode(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	bin, err := bench.binaries()
	if err != nil {
		t.Fatal(err)
	}
	eachClient(t, func(t *testing.T, c client) {
		fleet := c.fleetContainer(t, ecsDir, "least")
		var err error
		environment := fleet.environment()
		delete(environment, "CARILLON_DATABASE_AUTH")
		environment["CARILLON_DATABASE"] = "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
		if environment["CARILLON_LISTEN"], err = freeport.Address(t.Context()); err != nil {
			t.Fatal(err)
		}
		environment["CARILLON_ENV_FILE"] = ""
		variables := []string{}
		for name, value := range environment {
			variables = append(variables, name+"="+value)
		}
		check := func(ctx context.Context) error {
			command := fleet.HealthCheck.Command
			if len(command) < 2 || command[0] != "CMD" || command[1] != "/carillon" {
				t.Fatalf("the health check is %v, want CMD /carillon ...", command)
			}
			probe := exec.CommandContext(ctx, filepath.Join(bin, "carillon"), command[2:]...)
			probe.Env = variables
			return probe.Run()
		}
		if err := check(t.Context()); err == nil {
			t.Error("the health check succeeds without a node")
		}
		node := exec.CommandContext(t.Context(), filepath.Join(bin, "carillon"), fleet.Command...)
		node.Env = variables
		log := &strings.Builder{}
		node.Stdout, node.Stderr = log, log
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = node.Process.Signal(os.Interrupt)
			_ = node.Wait()
			if t.Failed() {
				t.Log(log)
			}
		}()
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for check(within) != nil {
			if within.Err() != nil {
				t.Fatal("the health check never succeeds")
			}
		}
	})
}
