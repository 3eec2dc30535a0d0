package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dev runs `carillon dev` until enough of its output has come, interrupts it, and returns
// what it printed.
func dev(t *testing.T, dir string, enough func(output string) bool) string {
	t.Helper()
	var out lockedBuffer
	command := exec.Command(filepath.Join(binaries, "carillon"), "dev", "--dir", dir, "--terraform", terraformBinary(t),
		"--provider", filepath.Join(binaries, "terraform-provider-carillon"), "--example", filepath.Join("..", "..", "..", "examples", "quickstart"),
		"--listen", "127.0.0.1:0", "--receiver", "127.0.0.1:0")
	command.Stdout, command.Stderr = &out, &out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	t.Cleanup(func() { _ = command.Process.Kill() })
	until(t, "the expected lines of carillon dev", func() bool { return enough(out.String()) })
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-exited:
		if err != nil {
			t.Errorf("carillon dev ended with %v after an interrupt, want exit code 0\n%s", err, out.String())
		}
	case <-time.After(60 * time.Second):
		t.Fatalf("carillon dev did not end after an interrupt\n%s", out.String())
	}
	return out.String()
}

func TestDevShowsFiresAndGoesOnWithItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fires := func(output string) int { return strings.Count(output, "quickstart/heartbeat/often") }
	first := dev(t, dir, func(output string) bool { return fires(output) >= 3 })
	for _, want := range []string{"Apply complete! Resources: 4 added", "scheduled ", " ms late  204", "stopped"} {
		if !strings.Contains(first, want) {
			t.Errorf("output of the first run lacks %q:\n%s", want, first)
		}
	}
	second := dev(t, dir, func(output string) bool { return fires(output) >= 3 && strings.Contains(output, "terraform:") })
	if !strings.Contains(second, "No changes") {
		t.Errorf("the second run changed the jobs instead of going on with them:\n%s", second)
	}
	if strings.Contains(second, "refused") {
		t.Errorf("the second run rang the first one's receiver:\n%s", second)
	}
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil || strings.Contains(first+second, strings.TrimSpace(string(token))) {
		t.Errorf("the token is shown, or not kept (%v)", err)
	}
}
