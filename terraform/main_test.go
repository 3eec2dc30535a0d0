// Package terraform_test checks the modules and examples with the real terraform and OpenTofu: form,
// types, their own tests, and policies on what those tests create. The AWS provider is a stand-in that
// knows the schema and calls nothing, or the registry's; see harness_test.go.
package terraform_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// bench is what all tests share: clients, provider binaries and copies of the modules.
var bench *workbench

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "carillon-terraform-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	need.NoSettings()
	bench = newWorkbench(dir)
	return m.Run()
}

// build compiles packages of this repository into dir.
func build(dir string, packages ...string) error {
	command := exec.CommandContext(context.Background(), "go",
		append([]string{"build", "-buildvcs=false", "-o", dir + string(filepath.Separator)}, packages...)...)
	command.Dir = ".."
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", packages, err, out)
	}
	return nil
}
