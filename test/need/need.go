// Package need declares the needs of a test. Without a program, a test is skipped or, with CI=true, fails,
// because CI has all programs. A test that needs the time of "make check" is left out of "make test".
package need

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// CI reports whether a missing need is a failure.
func CI() bool { return os.Getenv("CI") == "true" }

// Missing ends a test that lacks something. what names the thing and its source.
func Missing(t testing.TB, what string) {
	t.Helper()
	if CI() {
		t.Fatalf("%s; with CI=true that is a failure", what)
	}
	t.Skipf("SKIPPED: %s", what)
}

// NoSettings removes the settings of Carillon's programs from the environment, so that tests do not depend on those of this machine.
// TestMain calls it. It leaves what tests themselves read.
func NoSettings() {
	read := []string{"CARILLON_TERRAFORM", "CARILLON_TOFU", "CARILLON_POSTGRES", "CARILLON_AWS_PROVIDER_STUB"}
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "CARILLON_") && !slices.Contains(read, name) {
			_ = os.Unsetenv(name) // fails for names that no variable has
		}
	}
}

// Step assigns a test to a step of "make check", by the name of the step in tools/check/steps.go.
// "make test", which runs with -short, leaves the test out; a plain "go test" does not. Call it in
// the test itself, with a literal, because the step finds its tests by reading the source.
func Step(t testing.TB, step string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("SKIPPED: in make check, step %s", step) // also with CI=true
	}
}

// Program returns the path of a program from a Debian package.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name+" is not installed; on Debian: apt-get install -y "+debian)
	}
	return path
}

// Root ends a test unless it runs as root; why names the reason.
func Root(t testing.TB, why string) {
	t.Helper()
	if os.Getuid() != 0 {
		Missing(t, "only root can "+why)
	}
}
