// Package need says what happens to a test on a machine that lacks what the test needs: it is skipped. With
// CI=true it fails, because CI has everything.
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
