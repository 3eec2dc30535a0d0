package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

func TestTerraformBenchMeasuresEachStep(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	client := os.Getenv("CARILLON_TERRAFORM")
	if client == "" {
		client = "terraform"
	}
	if _, err := exec.LookPath(client); err != nil {
		need.Missing(t, "terraform is not on PATH, and CARILLON_TERRAFORM names none")
	}
	provider := filepath.Join(t.TempDir(), "terraform-provider-carillon")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", provider, "../../provider/cmd/terraform-provider-carillon")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the provider: %v: %s", err, out)
	}
	// The bars for so few jobs are below the cost of a start of Terraform, so the exit code reports missed bars.
	out, errs, _ := benchCommand(t, "terraform", "--jobs", "2", "--provider", provider, "--peer-provider", provider,
		"--terraform", client, "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(terraformSteps) {
		t.Fatalf("%d results, want %d:\n%s%s", len(lines), len(terraformSteps), out, errs)
	}
	for i, line := range lines {
		var r struct {
			Bench, Unit string
			Value       float64
			PeerValue   float64 `json:"peer_value"`
			Jobs        int
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Bench != "terraform "+terraformSteps[i].name || r.Unit != "CPU s" || r.Value <= 0 || r.PeerValue <= 0 || r.Jobs != 2 {
			t.Errorf("got %s", line)
		}
	}
}

func TestTerraformBenchNamesAllInvalidArguments(t *testing.T) {
	t.Parallel()
	_, errs, code := benchCommand(t, "terraform", "--jobs", "0", "--provider", filepath.Join(t.TempDir(), "missing"))
	if !strings.Contains(errs, "--jobs: 0 is not between 1 and 100000") || !strings.Contains(errs, `"make build" makes`) || code != exitUsage {
		t.Errorf("exit %d:\n%s", code, errs)
	}
}
