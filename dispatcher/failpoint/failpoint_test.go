package failpoint_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program without the tag must not contain the functions of failpoints.
func TestProgramWithoutTheTagHasNoFailpoints(t *testing.T) {
	t.Parallel()
	for tags, want := range map[string]bool{"": false, "chaos": true} {
		program := filepath.Join(t.TempDir(), "carillon")
		build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-w", "-tags", tags, "-o", program,
			"github.com/carillon-dev/carillon/dispatcher/cmd/carillon")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v: %s", err, out)
		}
		symbols, err := exec.Command("go", "tool", "nm", program).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(symbols), "dispatcher/failpoint.Hit"); got != want {
			t.Errorf("with tags %q the program has failpoints: %v, want %v", tags, got, want)
		}
	}
}
