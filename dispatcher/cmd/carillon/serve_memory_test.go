package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// memoryGroup makes a control group with a memory limit, and returns the file by which a process
// joins it.
func memoryGroup(t *testing.T, limit int64) (join string) {
	t.Helper()
	text := string(must[[]byte](t)(os.ReadFile("/proc/self/cgroup")))
	parent, file := "", ""
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) == 3 && fields[1] == "memory":
			parent, file = filepath.Join("/sys/fs/cgroup/memory", fields[2]), "memory.limit_in_bytes"
		case len(fields) == 3 && fields[1] == "" && parent == "":
			parent, file = filepath.Join("/sys/fs/cgroup", fields[2]), "memory.max"
		}
	}
	dir := filepath.Join(parent, fmt.Sprintf("carillon-test-%d-%s", os.Getpid(), filepath.Base(t.Name())))
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		t.Cleanup(func() {
			until(t, "the control group to be empty", func() bool { return os.Remove(dir) == nil })
		})
		err = os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o600)
	}
	if err != nil {
		t.Skipf("SKIPPED: no control group with a memory limit can be made here: %v", err) // also with CI=true
	}
	return filepath.Join(dir, "cgroup.procs")
}

// A node in a container uses at most nine tenths of its memory, unless GOMEMLIMIT is set.
func TestMemoryLimitFollowsTheContainer(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	const limit = 256 << 20
	for name, tt := range map[string]struct {
		env  []string
		want string
	}{
		"by itself":       {nil, `"bytes":241591905,"container_bytes":268435456,"source":"/sys/fs/cgroup/`},
		"with GOMEMLIMIT": {[]string{"GOMEMLIMIT=100MiB"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			join := memoryGroup(t, limit)
			database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
			n := &process{t: t, logs: &lockedBuffer{}, exited: make(chan error, 1)}
			n.command = exec.Command("sh", "-c", `echo $$ >"$0" && exec "$@"`, join, filepath.Join(binaries, "carillon"), "serve",
				"--database", database, "--listen=127.0.0.1:0")
			n.command.Stderr, n.command.Env = n.logs, append(os.Environ(), tt.env...)
			if err := n.command.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { n.exited <- n.command.Wait() }()
			t.Cleanup(func() { _ = n.command.Process.Kill() })
			until(t, "the node to start", func() bool { return strings.Contains(n.logs.String(), "node started") })
			n.terminate()
			log := n.logs.String()
			if set := strings.Contains(log, "memory limit set"); set != (tt.want != "") || !strings.Contains(log, tt.want) {
				t.Errorf("log says nothing of %q:\n%s", tt.want, log)
			}
		})
	}
}
