package provider_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// TestMain removes the shared directory.
func TestMain(m *testing.M) {
	need.NoSettings()
	m.Run()
	_ = os.RemoveAll(scratch())
}

var scratch = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "carillon-provider-")
	if err != nil {
		panic(err)
	}
	return dir
})

// errNoTerraform is the error of terraform on a machine without it.
var errNoTerraform = errors.New("neither terraform nor tofu is on PATH, and CARILLON_TERRAFORM names none")

// terraform finds the client for acceptance tests, and configures plugin-testing to use it. The
// tests need no network.
var terraform = sync.OnceValues(func() (string, error) {
	client := ""
	for _, name := range []string{os.Getenv("CARILLON_TERRAFORM"), "terraform", "tofu"} {
		if found, err := exec.LookPath(name); err == nil {
			client = found
			break
		}
	}
	if client == "" {
		return "", errNoTerraform
	}
	client, err := filepath.Abs(client)
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{
		"TF_ACC_TERRAFORM_PATH":     client,
		"TF_ACC_PROVIDER_NAMESPACE": "carillon-dev",
		"TF_CLI_CONFIG_FILE":        os.DevNull,
		"CHECKPOINT_DISABLE":        "1",
	} {
		if err := os.Setenv(name, value); err != nil {
			return "", err
		}
	}
	version, err := exec.CommandContext(context.Background(), client, "version").Output()
	if err == nil && strings.Contains(string(version), "OpenTofu") {
		err = os.Setenv("TF_ACC_PROVIDER_HOST", "registry.opentofu.org")
	}
	if err != nil {
		return "", fmt.Errorf("run %s: %w", client, err)
	}
	return client, nil
})

// needTerraform skips the test without terraform. With CI=true the test fails.
func needTerraform(t *testing.T) string {
	t.Helper()
	client, err := terraform()
	if errors.Is(err, errNoTerraform) {
		need.Missing(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// providerBinary builds the provider once and returns its directory.
var providerBinary = sync.OnceValues(func() (string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", scratch(), "./cmd/terraform-provider-carillon").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the provider: %w: %s", err, out)
	}
	return scratch(), nil
})
