package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/program"
)

// machineSettings is the path of a machine's settings.
const machineSettings = "/etc/carillon/carillon.env"

func envFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "carillon.env")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return "CARILLON_ENV_FILE=" + path
}

// Flags override the environment, which overrides the file. Only the right database has the token.
func TestEnvFileYieldsToEnvironmentAndFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	with := func(name string) string { return "sqlite:" + filepath.Join(dir, name) }
	newToken(t, with("right"))
	file := envFile(t, "CARILLON_DATABASE="+with("right"))
	wrongFile := envFile(t, "CARILLON_DATABASE="+with("wrong"))
	for name, tt := range map[string]struct{ env, args []string }{
		"the file alone":                    {[]string{file}, nil},
		"a variable":                        {[]string{wrongFile, "CARILLON_DATABASE=" + with("right")}, nil},
		"another variable of the same flag": {[]string{wrongFile, "DATABASE_URL=" + with("right")}, nil},
		"a flag":                            {[]string{wrongFile}, []string{"--database", with("right")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, code := carillon(t, tt.env, append([]string{"token", "create", "--name=e2e"}, tt.args...)...)
			if code != exitConflict || !strings.Contains(errs, "exists") {
				t.Errorf("exit %d, %q, %s, want the token of the right database to be in the way", code, out, errs)
			}
		})
	}
}

func TestMistakeInEnvFileEndsEveryCommandButVersion(t *testing.T) {
	t.Parallel()
	file := envFile(t, "CARILLON_LISTEN")
	for _, command := range []string{"serve --check --database=sqlite:x", "secret key", "schedule next @daily"} {
		if _, errs, code := carillon(t, []string{file}, strings.Fields(command)...); code != exitUsage ||
			!strings.Contains(errs, "carillon.env:1: ") {
			t.Errorf("%s: exit %d, %q, want %d and the line", command, code, errs, exitUsage)
		}
	}
	if out, errs, code := carillon(t, []string{file}, "version"); code != 0 {
		t.Errorf("version: exit %d, %s%s", code, out, errs)
	}
}

func TestUnknownVariableOfEnvFileIsLogged(t *testing.T) {
	t.Parallel()
	_, errs, code := carillon(t, []string{envFile(t, "CARILLON_WORKRES=7")}, "serve", "--check", "--database=sqlite:x")
	if code != 0 || !strings.Contains(errs, "CARILLON_WORKRES") || strings.Contains(errs, `"variable":"CARILLON_ENV_FILE"`) {
		t.Errorf("exit %d, %s, want a warning about CARILLON_WORKRES only", code, errs)
	}
}

// The default file belongs to root. Other users' commands work without it, and name it if a setting is missing.
func TestUnreadableDefaultEnvFileIsNamedWhenAFlagIsMissing(t *testing.T) {
	t.Parallel()
	need.Root(t, "give this process another root directory")
	root := t.TempDir()
	binary := must[[]byte](t)(os.ReadFile(filepath.Join(binaries, "carillon")))
	etc := filepath.Join(root, filepath.Dir(machineSettings))
	for _, err := range []error{
		os.MkdirAll(etc, 0o755), //nolint:gosec // as a package creates it
		os.WriteFile(filepath.Join(etc, "carillon.env"), []byte("CARILLON_DATABASE=sqlite:/x"), 0o600),
		program.Write(filepath.Join(root, "carillon"), binary),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "/carillon", "serve", "--check")
	command.Env = []string{"PATH=/"}
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	command.Dir = "/"
	out, err := command.CombinedOutput()
	text := string(out)
	if err == nil || !strings.Contains(text, "--database (CARILLON_DATABASE)") || !strings.Contains(text, machineSettings+" were not read") {
		t.Errorf("got %v, %s, want an error that names --database and %s", err, text, machineSettings)
	}
	command = exec.CommandContext(t.Context(), "/carillon", "serve", "--check")
	command.Env, command.Dir = []string{"PATH=/"}, "/"
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("as root: %v, %s, want a valid configuration from %s", err, out, machineSettings)
	}
}
