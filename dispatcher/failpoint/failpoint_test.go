package failpoint_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// symbols returns the functions of a program that is built with tags.
func symbols(t *testing.T, tags string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "carillon")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-w", "-tags", tags, "-o", program,
		"github.com/carillon-dev/carillon/dispatcher/cmd/carillon")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	all, err := exec.Command("go", "tool", "nm", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

const hit = "dispatcher/failpoint.Hit"

func TestProgramWithoutTheTagHasNoFailpoints(t *testing.T) {
	t.Parallel()
	all := symbols(t, "")
	if !strings.Contains(all, "dispatcher/store/feeds.") {
		t.Error("the program has no functions of the store, which calls failpoints")
	}
	if strings.Contains(all, hit) {
		t.Errorf("without the tag the program has %s", hit)
	}
}

func TestProgramWithTheTagHasFailpoints(t *testing.T) {
	t.Parallel()
	need.Step(t, "kills")
	if !strings.Contains(symbols(t, "chaos"), hit) {
		t.Errorf("with the tag the program has no %s", hit)
	}
}
