// Package need says what a test needs: a program, in which case it is skipped on a machine that lacks it and fails with
// CI=true, because CI has everything; or the time of "make check", in which case "make test" leaves it out.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// CI reports whether a missing need is a failure.
func CI() bool { return os.Getenv("CI") == "true" }

// Missing ends a test that lacks something; what says what it lacks and where it comes from.
func Missing(t testing.TB, what string) {
	t.Helper()
	if CI() {
		t.Fatalf("%s; with CI=true that is a failure", what)
	}
	t.Skipf("SKIPPED: %s", what)
}

// Step says that a test belongs to a step of "make check", by the name of the step in tools/check/steps.go. "make test",
// which runs with -short, leaves it out; a plain "go test" does not. It stands in the test itself, with the name as a
// literal, because the step finds its tests by reading them.
func Step(t testing.TB, step string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("SKIPPED: in make check, step %s", step) // also with CI=true
	}
}

// Program returns the path of a program that a package of Debian installs.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name+" is not installed; on Debian: apt-get install -y "+debian)
	}
	return path
}

// Root ends a test that only root can run; why says what only root can do.
func Root(t testing.TB, why string) {
	t.Helper()
	if os.Getuid() != 0 {
		Missing(t, "only root can "+why)
	}
}
