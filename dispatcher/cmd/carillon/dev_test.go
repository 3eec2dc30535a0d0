package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/test/need"
)

// dev runs `carillon dev` with further flags until enough accepts the output, interrupts it, and returns the output.
func dev(t *testing.T, dir string, enough func(output string) bool, flags ...string) string {
	t.Helper()
	var out lockedBuffer
	command := exec.Command(filepath.Join(binaries, "carillon"), append([]string{"dev", "--dir", dir,
		"--provider", filepath.Join(binaries, "terraform-provider-carillon"), "--example",
		filepath.Join("..", "..", "..", "examples", "quickstart"),
		"--listen", "127.0.0.1:0", "--receiver", "127.0.0.1:0"}, flags...)...)
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
	case <-time.After(patience):
		t.Fatalf("carillon dev did not end after an interrupt\n%s", out.String())
	}
	return out.String()
}

func TestDevShowsFiresAndGoesOnWithItsData(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	dir := t.TempDir()
	fires := func(output string) int { return strings.Count(output, "quickstart/heartbeat/often") }
	// The first start prepares terraform, which ends when the built-in job has fired.
	fired := filepath.Join(t.TempDir(), "fired")
	prepare := fmt.Sprintf("until [ -e %s ]; do sleep 0.1; done; echo %s", fired, terraformBinary(t))
	first := dev(t, dir, func(output string) bool {
		if strings.Contains(output, "dev/hello/often") {
			if err := os.WriteFile(fired, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		return fires(output) >= 3
	}, "--prepare", prepare)
	for _, want := range []string{"until then, the built-in job dev/hello fires", "Apply complete! Resources: 4 added",
		"scheduled ", " ms late  204", "stopped"} {
		if !strings.Contains(first, want) {
			t.Errorf("output of the first run lacks %q:\n%s", want, first)
		}
	}
	second := dev(t, dir, func(output string) bool {
		return fires(output) >= 3 &&
			strings.Contains(output, "terraform:")
	}, "--terraform", terraformBinary(t))
	if !strings.Contains(second, "No changes") {
		t.Errorf("the second run changed the jobs instead of going on with them:\n%s", second)
	}
	if strings.Contains(second, "dev/hello") {
		t.Errorf("the second run fired the built-in job of the first:\n%s", second)
	}
	if strings.Contains(second, "refused") {
		t.Errorf("the second run called the first one's receiver:\n%s", second)
	}
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil || strings.Contains(first+second, strings.TrimSpace(string(token))) {
		t.Errorf("the token is shown, or not kept (%v)", err)
	}
}
