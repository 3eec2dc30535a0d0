package release_test

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/test/need"
)

// packageDirectories returns the directories with packages, by Go's names of the architectures.
func packageDirectories(t *testing.T) map[string]string {
	t.Helper()
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	return map[string]string{runtime.GOARCH: directory(t, built.snapshot), other: directory(t, built.packagesOther)}
}

// only returns the only file in a directory that matches a pattern.
func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	paths := must[[]string](t)(filepath.Glob(filepath.Join(dir, pattern)))
	if len(paths) != 1 {
		t.Fatalf("%d files are named %s, want 1", len(paths), pattern)
	}
	return paths[0]
}

// printed runs a program of this machine and returns its output.
func printed(t *testing.T, name string, args ...string) string {
	t.Helper()
	var problem bytes.Buffer
	command := exec.CommandContext(t.Context(), name, args...)
	command.Stderr = &problem
	command.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // lintian leaves files there
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", command.Args, err, out, problem.String())
	}
	return string(out)
}

// The contents of both packages: mode, owner and path.
const inBoth = `drwxr-xr-x root/root /etc/carillon
-rw-r----- root/root /etc/carillon/carillon.env
drwx------ root/root /etc/carillon/credentials
-rwxr-xr-x root/root /usr/bin/carillon
-rw-r--r-- root/root /usr/lib/systemd/system/carillon-lifecycle.service
-rw-r--r-- root/root /usr/lib/systemd/system/carillon.service
drwxr-xr-x root/root /usr/share/doc/carillon
-rw-r--r-- root/root /usr/share/doc/carillon/NOTICE
-rw-r--r-- root/root /usr/share/doc/carillon/README
-rw-r--r-- root/root /usr/share/doc/carillon/THIRD_PARTY_LICENSES
`

func TestPackagesHaveNoUnexpectedFiles(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	needPrograms(t, "dpkg-deb", "rpm")
	// Directories of Debian itself, which each package with a file in them lists, too.
	ofDebian := regexp.MustCompile(`(?m)^.* /(etc|usr(/(bin|lib(/systemd(/system)?)?|share(/(doc|lintian(/overrides)?|man(/man1)?))?))?)?\n`)
	columns := regexp.MustCompile(`(?m)^(\S+) (\S+) +\d+ \S+ \S+ \.(/.*?)/?$`)
	for arch, dir := range packageDirectories(t) {
		deb := only(t, dir, "carillon_"+version+"_"+arch+".deb")
		got := ofDebian.ReplaceAllString(columns.ReplaceAllString(printed(t, "dpkg-deb", "--contents", deb), "$1 $2 $3"), "")
		want := inBoth + `-rw-r--r-- root/root /usr/share/doc/carillon/changelog.gz
-rw-r--r-- root/root /usr/share/doc/carillon/copyright
-rw-r--r-- root/root /usr/share/lintian/overrides/carillon
-rw-r--r-- root/root /usr/share/man/man1/carillon.1.gz
`
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", deb, diff)
		}
		if got := printed(t, "dpkg-deb", "--info", deb, "conffiles"); got != "/etc/carillon/carillon.env\n" {
			t.Errorf("%s: its settings are %q", deb, got)
		}
		if got := printed(t, "dpkg-deb", "--field", deb, "Version", "Architecture"); got != "Version: "+version+"\nArchitecture: "+arch+"\n" {
			t.Errorf("%s says of itself: %s", deb, got)
		}

		rpm := only(t, dir, "carillon-"+version+"-1."+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]+".rpm")
		got = printed(t, "rpm", "-qp", "--queryformat", `[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]`, rpm)
		want = inBoth + `drwxr-xr-x root/root /usr/share/licenses/carillon
-rw-r--r-- root/root /usr/share/licenses/carillon/LICENSE
-rw-r--r-- root/root /usr/share/man/man1/carillon.1.gz
`
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", rpm, diff)
		}
		got = printed(t, "rpm", "-qp", "--queryformat", `[%{FILENAMES} %{FILEFLAGS:fflags}\n]`, rpm)
		if !strings.Contains(got, "/carillon.env cn\n") { // a configuration file that is not replaced
			t.Errorf("%s: an upgrade would replace its settings: %s", rpm, got)
		}
	}
}

func TestPackagesHoldAProgramForTheirProcessor(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	needPrograms(t, "dpkg-deb")
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for arch, dir := range packageDirectories(t) {
		root := t.TempDir()
		printed(t, "dpkg-deb", "--extract", only(t, dir, "*_"+arch+".deb"), root)
		program := must[*elf.File](t)(elf.Open(filepath.Join(root, "usr", "bin", "carillon")))
		if program.Machine != machines[arch] {
			t.Errorf("%s: the program is for %s", arch, program.Machine)
		}
		_ = program.Close()
	}
}

func TestSecondBuildOfPackagesHasTheSameBytes(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	again := directory(t, built.packagesAgain)
	for _, pattern := range []string{"*.deb", "*.rpm"} {
		path := only(t, directory(t, built.snapshot), pattern)
		first := must[[]byte](t)(os.ReadFile(path))
		second := must[[]byte](t)(os.ReadFile(filepath.Join(again, filepath.Base(path))))
		if !bytes.Equal(first, second) {
			t.Errorf("%s differs when it is built again", filepath.Base(path))
		}
	}
}

func TestPackagesPassTheirLinters(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	needPrograms(t, "lintian", "rpmlint")
	dir := directory(t, built.snapshot)
	printed(t, "lintian", "--allow-root", "--fail-on", "error,warning", only(t, dir, "*.deb"))

	// Debian's version of rpmlint knows neither SPDX's names of licences nor statically linked
	// programs, and it expects manual pages compressed by bzip2.
	expected := regexp.MustCompile(`(?m)^\S+ [EW]: (only-non-binary-in-usr-lib|no-binary|no-manual-page-for-binary carillon|` +
		`manpage-not-compressed bz2 \S+|invalid-license Apache-2\.0|` +
		`no-signature|` + // the registry of packages signs, if one is used
		`non-standard-dir-perm /etc/carillon/credentials 700|non-readable /etc/carillon/carillon\.env 640)\s*$`)
	out, _ := exec.CommandContext(t.Context(), "rpmlint", only(t, dir, "*.rpm")).CombinedOutput()
	if !strings.Contains(string(out), "1 packages and 0 specfiles checked") {
		t.Fatalf("rpmlint: %s", out)
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.HasPrefix(line, "carillon.") && !expected.MatchString(line) {
			t.Error(line)
		}
	}
}

func TestUnitsAreValidAndConfined(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	needPrograms(t, "dpkg-deb", "systemd-analyze")
	root := t.TempDir()
	printed(t, "dpkg-deb", "--extract", only(t, directory(t, built.snapshot), "*.deb"), root)
	// The agent runs as root, because systemd would not let another user stop a unit.
	for unit, threshold := range map[string]string{"carillon.service": "15", "carillon-lifecycle.service": "16"} {
		path := filepath.Join(root, "usr", "lib", "systemd", "system", unit)
		text := string(must[[]byte](t)(os.ReadFile(path)))
		// systemd-analyze looks for the program on this machine.
		text = strings.ReplaceAll(text, "=/usr/bin/carillon ", "="+filepath.Join(root, "usr", "bin", "carillon")+" ")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // systemd expects world-readable units
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", path).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
		printed(t, "systemd-analyze", "security", "--offline=true", "--threshold="+threshold, path)
	}
}

// The timeouts in the settings and in the unit must match, although they are in two files.
func TestUnitTimeoutMatchesTheSettings(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	packaging := filepath.Join("..", "..", "tools", "release", "packaging")
	unit := string(must[[]byte](t)(os.ReadFile(filepath.Join(packaging, "carillon.service"))))
	settings := string(must[[]byte](t)(os.ReadFile(filepath.Join(packaging, "carillon.env"))))
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(unit)
	if stop == nil || !strings.Contains(settings, "\nCARILLON_STOP_TIMEOUT="+stop[1]+"s\n") {
		t.Errorf("the unit says %v, which carillon.env does not repeat", stop)
	}
}
