package main

import (
	"os"
	"strings"
	"testing"
)

func TestSizeNamesAllInvalidArguments(t *testing.T) {
	t.Parallel()
	_, errs, code := benchCommand(t, "size", "--database", "postgres://db/x", "--task", "0.25:512,2", "--task", "0:128", "--seconds", "0")
	for _, want := range []string{`"2" is not CPUS:MIB`, `"0:128" is not CPUS:MIB`, "--seconds, --herd: 0 is not positive"} {
		if !strings.Contains(errs, want) {
			t.Errorf("standard error lacks %q:\n%s", want, errs)
		}
	}
	if code != exitUsage {
		t.Errorf("exit %d, want %d", code, exitUsage)
	}
}

func TestTasksAreReadAndPrinted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"0.25:512": "0.25 vCPU, 512 MiB", "1:2048": "1 vCPU, 2,048 MiB"} {
		if got, err := parseLimit(text); err != nil || got.String() != want {
			t.Errorf("%s: got %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestNumbersHaveSeparators(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 100_000: "100,000", 1_002_003: "1,002,003"} {
		if got := readable(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestUsageOfAProcessIsRead(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("SKIPPED: there is no /proc") // also with CI=true
	}
	if got := peakMiB(os.Getpid()); got < 1 || got > 10_000 {
		t.Errorf("this process had %f MiB", got)
	}
	for n := 0; cpuOf(os.Getpid()) == 0 && n < 1_000_000_000; n++ { // it uses some
	}
	if got := cpuOf(os.Getpid()); got <= 0 || got > 1000 {
		t.Errorf("this process used %f s", got)
	}
}

// Not parallel, because the cgroup has the name of this process.
func TestCommandRunsInItsCgroup(t *testing.T) {
	group, err := newCgroup(limit{cpus: 0.5, mib: 128})
	if err != nil {
		t.Skipf("SKIPPED: this machine lets nobody limit a process: %v", err) // also with CI=true: a container may not
	}
	defer func() {
		if err := group.remove(); err != nil {
			t.Errorf("remove: %v", err)
		}
	}()
	out, err := group.command("cat", "/proc/self/cgroup").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := strings.Count(string(out), "/carillon-size-"); got != len(group.dirs) {
		t.Errorf("the process is in %d of %d groups:\n%s", got, len(group.dirs), out)
	}
}
