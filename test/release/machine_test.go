package release_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// needPrograms skips the test if a program is missing. With CI=true the test fails.
func needPrograms(t *testing.T, programs ...string) {
	t.Helper()
	missing := slices.DeleteFunc(programs, func(program string) bool {
		_, err := exec.LookPath(program)
		return err == nil
	})
	if len(missing) > 0 {
		need.Missing(t, "not installed: "+strings.Join(missing, ", ")+"; .ci/run installs what tests need")
	}
}

// debianFlags are the arguments of mmdebstrap for a bare Debian 12 with systemd and the packages that the
// page and the tests need. Packages come from the mirror of this machine, or else from Debian's own.
func debianFlags(root string) []string {
	flags := []string{
		"--quiet", "--variant=apt", "--include=systemd-sysv,ca-certificates,curl,sudo,rpm,postgresql",
		`--customize-hook=chroot "$1" systemctl disable --quiet postgresql`, "bookworm", root,
	}
	for _, sources := range []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"} {
		if text, err := os.ReadFile(sources); err == nil && bytes.Contains(text, []byte("bookworm")) {
			return append(flags, sources)
		}
	}
	return flags
}

// machine is a Debian with its own systemd. It has no network except loopback, and its files are
// discarded when it stops.
type machine struct {
	leader string // its process 1, by its id on this machine
}

// nspawn returns the flags of a machine with a directory as /release.
func nspawn(t *testing.T, files string, more ...string) []string {
	t.Helper()
	needPrograms(t, "mmdebstrap", "systemd-nspawn")
	need.Root(t, "start a machine")
	return append([]string{
		"--quiet", "--directory=" + directory(t, built.debian), "--volatile=overlay", "--private-network", "--register=no",
		"--keep-unit", "--link-journal=no", "--hostname=localhost", "--bind-ro=" + files + ":/release",
	}, more...)
}

// boot starts a machine.
func boot(t *testing.T, files string, more ...string) machine {
	t.Helper()
	name := "carillon-" + filepath.Base(t.TempDir()) + fmt.Sprint(os.Getpid()) + strings.ToLower(strings.Trim(t.Name()[4:], "/"))
	command := exec.Command("systemd-nspawn",
		append(nspawn(t, files, more...), "--boot", "--machine="+name[:min(len(name), 60)])...)
	var console lockedBuffer
	command.Stdout, command.Stderr = &console, &console
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var m machine
	t.Cleanup(func() {
		if m.leader != "" {
			_ = exec.Command("kill", "-KILL", m.leader).Run()
		} else {
			_ = command.Process.Kill()
		}
		_ = command.Wait()
		if t.Failed() && m.leader == "" {
			t.Logf("systemd-nspawn: %s", console.String())
		}
	})
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", command.Process.Pid)
	until(t, "the machine to boot", func() bool {
		text, _ := os.ReadFile(children)
		leader := strings.Fields(string(text))
		if len(leader) != 1 {
			return false
		}
		m.leader = leader[0]
		state, _ := m.try(t, "systemctl is-system-running")
		return state == "running\n" || state == "degraded\n"
	})
	return m
}

// try runs a script in the machine as root, as after a login.
func (m machine) try(t *testing.T, script string) (output string, err error) {
	t.Helper()
	out, err := m.command(t, "bash", "-euo", "pipefail", "-c", "cd\n"+script).CombinedOutput()
	return string(out), err
}

// command returns a command of the machine.
func (m machine) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "nsenter", append([]string{
		"--target", m.leader, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--", "/usr/bin/env", "--ignore-environment",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
	}, args...)...)
}

// run runs a script that must succeed, and returns its output.
func (m machine) run(t *testing.T, script string) string {
	t.Helper()
	out, err := m.try(t, script)
	if err != nil {
		log, _ := m.try(t, "journalctl --no-pager --lines 30 --unit 'carillon*'")
		t.Fatalf("%s\n%v\n%s\n%s", script, err, out, log)
	}
	return out
}

// want runs a script and requires this output.
func (m machine) want(t *testing.T, script, want string) {
	t.Helper()
	if got := strings.TrimSpace(m.run(t, script)); got != want {
		t.Errorf("%s\ngot %q, want %q", script, got, want)
	}
}

// shell is one shell in a machine; it keeps its variables between scripts.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

// shell starts a login shell of root.
func (m machine) shell(t *testing.T) shell {
	t.Helper()
	command := m.command(t, "bash", "--noprofile", "--norc")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Cancel = in.Close // ends the shell; a signal would end only nsenter
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = command.Wait()
	})
	s := shell{in, bufio.NewReader(out)}
	s.run(t, "set -eo pipefail; cd")
	return s
}

// run runs commands that must succeed, without input, and returns their output.
func (s shell) run(t *testing.T, script string) string {
	t.Helper()
	const end = "the end of the script"
	fmt.Fprintf(s.in, "{\n%s\n} </dev/null\necho\necho %s\n", script, end)
	var out strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s\nfailed:\n%s%s", script, out.String(), line)
		}
		if line == end+"\n" {
			return strings.TrimSuffix(out.String(), "\n")
		}
		out.WriteString(line)
	}
}
