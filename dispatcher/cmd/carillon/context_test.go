package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// contexts runs commands with their own directory of contexts.
type contexts struct {
	t   *testing.T
	dir string
}

// run runs a command with some input and further variables.
func (c contexts) run(input, command string, env ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	run := exec.CommandContext(c.t.Context(), filepath.Join(binaries, "carillon"), strings.Fields(command)...)
	run.Env = append(append(os.Environ(), "XDG_CONFIG_HOME="+c.dir), env...)
	run.Stdin = strings.NewReader(input)
	var out, errs strings.Builder
	run.Stdout, run.Stderr = &out, &errs
	_ = run.Run() // the exit code shows failures
	return out.String(), errs.String(), run.ProcessState.ExitCode()
}

// ok requires success.
func (c contexts) ok(input, command string, env ...string) string {
	c.t.Helper()
	out, errs, code := c.run(input, command, env...)
	if code != 0 {
		c.t.Fatalf("carillon %s: exit %d: %s", command, code, errs)
	}
	return out
}

func TestContextsChooseTheInstallation(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database))
	c := contexts{t, t.TempDir()}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(n.token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.ok(n.token+"\n", "context set stored --token-from - --endpoint "+n.endpoint)
	c.ok("", "context set file --token-file "+file+" --endpoint "+n.endpoint)
	c.ok("", "context set gone --token-file "+file+".none --endpoint "+n.endpoint)
	c.ok("", "context set elsewhere --token-file "+file+" --endpoint http://127.0.0.1:1")
	for _, command := range []string{"context list", "context show stored", "context list -o json", "context show -o jsonl"} {
		if out := c.ok("", command); strings.Contains(out, n.token) || !strings.Contains(out, n.endpoint) {
			t.Errorf("%s prints %q, want the endpoint and no token", command, out)
		}
	}
	if out := c.ok("", "context list"); !strings.Contains(out, "*        stored") {
		t.Errorf("the first context is not the current one:\n%s", out)
	}
	for command, want := range map[string]int{
		"node list":                                                        0, // the current one
		"node list --context file":                                         0,
		"node list --context gone":                                         exitUsage, // the token cannot be read
		"node list --context none":                                         exitUsage,
		"node list --context elsewhere":                                    exitUnreachable,
		"node list --context stored --token carillon_wrong":                exitRefused,
		"node list --context stored --endpoint http://127.0.0.1":           exitUsage, // its token would be sent there
		"node list --endpoint " + n.endpoint:                               exitUsage, // nor does the current one's
		"node list --context elsewhere --token x --endpoint " + n.endpoint: exitRefused,
	} {
		if out, errs, code := c.run("", command); code != want {
			t.Errorf("carillon %s: exit %d, want %d: %s%s", command, code, want, out, errs)
		}
	}
	// A named context precedes variables, which precede the current context.
	variables := []string{"CARILLON_ENDPOINT=http://127.0.0.1:1", "CARILLON_TOKEN=wrong"}
	c.ok("", "node list --context stored", variables...)
	c.ok("", "node list", append(variables, "CARILLON_CONTEXT=stored")...)
	if _, errs, code := c.run("", "node list", variables...); code != exitUnreachable {
		t.Errorf("with variables: exit %d, want %d: %s", code, exitUnreachable, errs)
	}
	c.ok("", "context use elsewhere")
	if _, errs, code := c.run("", "node list"); code != exitUnreachable {
		t.Errorf("with another current context: exit %d, want %d: %s", code, exitUnreachable, errs)
	}
	c.ok("", "context delete elsewhere")
	if _, errs, code := c.run("", "node list"); code != exitUsage || !strings.Contains(errs, "carillon context set") {
		t.Errorf("without a current context: exit %d, %s", code, errs)
	}
}

// The command for the token may be any shell command; here it contains quotes.
func TestContextTakesItsTokenFromACommand(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database))
	c := contexts{t, t.TempDir()}
	set := exec.CommandContext(t.Context(), filepath.Join(binaries, "carillon"),
		"context", "set", "made", "--endpoint", n.endpoint, "--token-command", `printf '%s\n' "$SECRET"`)
	set.Env = append(os.Environ(), "XDG_CONFIG_HOME="+c.dir)
	if out, err := set.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.ok("", "node list", "SECRET="+n.token)
	if _, errs, code := c.run("", "node list", "SECRET="); code != exitUsage || !strings.Contains(errs, "a token is one line") {
		t.Errorf("without a token: exit %d, %s", code, errs)
	}
}

func TestContextFileThatOthersCanReadIsRefused(t *testing.T) {
	t.Parallel()
	c := contexts{t, t.TempDir()}
	c.ok("carillon_x", "context set a --token-from - --endpoint http://127.0.0.1:1")
	file := filepath.Join(c.dir, "carillon", "config")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file is %v, %v, want mode 0600", info, err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"node list", "context list", "context use a", "context delete a"} {
		_, errs, code := c.run("", command)
		if code != exitUsage || !strings.Contains(errs, "chmod 600") || strings.Contains(errs, "carillon_x") {
			t.Errorf("carillon %s: exit %d, want %d: %s", command, code, exitUsage, errs)
		}
	}
}

func TestBadContextsAreUsageErrors(t *testing.T) {
	t.Parallel()
	c := contexts{t, t.TempDir()}
	for command, words := range map[string]string{
		"context set a --endpoint http://127.0.0.1:1":                                      "--token-from",
		"context set a --endpoint http://127.0.0.1:1 --token-from - --token-file x":        "--token-from",
		"context set a/b --endpoint http://127.0.0.1:1 --token-file x":                     "a name is",
		"context set a --endpoint ftp://127.0.0.1 --token-file x":                          "--endpoint",
		"context set a --endpoint http://127.0.0.1:1 --token-from -":                       "a token is one line",
		"context set a --endpoint http://127.0.0.1:1 --token-from none":                    "--token-from",
		"context set a --endpoint http://127.0.0.1:1 --token-file x --client-cert nothing": "--client-key",
		"context use a":    "does not exist",
		"context show":     "does not exist",
		"context delete a": "does not exist",
	} {
		if _, errs, code := c.run("two words", command); code != exitUsage || !strings.Contains(errs, words) {
			t.Errorf("carillon %s: exit %d, want %d and %q: %s", command, code, exitUsage, words, errs)
		}
	}
	file := filepath.Join(c.dir, "carillon", "config")
	if _, err := os.Stat(file); err == nil {
		t.Error("a refused context has left a file")
	}
	for _, text := range []string{"{", `{"contexts": {"a": {"endpoint": "http://127.0.0.1:1", "tokn": "x"}}}`} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, errs, code := c.run("", "node list"); code != exitUsage || !strings.Contains(errs, file) {
			t.Errorf("with the file %s: exit %d, %s", text, code, errs)
		}
	}
}
