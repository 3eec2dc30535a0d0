package terraform_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/program"
)

// The packages of the runs have the checksums of these contents; apt-get is a stub.
var packages = map[string]string{
	"carillon_1.0.0_arm64.deb": "1", "carillon_1.0.0_amd64.deb": "1", "carillon_0.1.0_arm64.deb": "1",
	"amazon-cloudwatch-agent.deb": "2", "amazon-ssm-agent.deb": "3",
}

// secretsManager holds the secrets of the runs: JSON and text, with all that needs quotes.
var secretsManager = map[string]string{
	"crm-AbCdEf":      `{"token": "a \"b\" $c \\ d` + "`e`" + `", "user": "crm"}`,
	"pem-AbCdEf":      "-----BEGIN KEY-----\nhunter2+/=\n-----END KEY-----\n",
	"keys-AbCdEf":     "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=,ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=",
	"vault-AbCdEf":    `{"token": "hunter4"}`,
	"rds!db-1-AbCdEf": `{"username": "carillon", "password": "hunter3"}`,
}

// stubs are the programs of a Debian machine on EC2 that a test cannot have. Each notes its call. systemctl
// starts the real node, with the environment that systemd would give it.
const stubs = `
==> aws
case "$1 $2" in
"secretsmanager get-secret-value")
	while [ "$1" != --secret-id ]; do shift; done
	cat "/opt/secrets/${2##*:}" || { echo "AccessDeniedException" >&2; exit 254; } ;;
"s3 cp") cp "/opt/downloads/${4##*/}" "$5" ;;
esac
==> curl
while [ "$1" != -o ]; do shift; done
cp "/opt/downloads/${3##*/}" "$2" || exit 22
==> apt-get
for file; do :; done
case $file in */carillon_*)
	[ ! -x /usr/sbin/policy-rc.d ] || echo "nothing is started" >>/var/log/calls
	cp /opt/carillon /usr/local/bin/carillon ;;
esac
==> systemctl
case "$*" in "restart --no-block carillon.service")
	mkdir -p /var/lib/carillon /var/log/carillon
	(
		set -a
		. /etc/carillon/secrets.env
		env >/var/log/environment
		exec carillon serve
	) >>/var/log/carillon/carillon.log 2>&1 & ;;
esac
==> sleep
exec /usr/bin/sleep 0.1
==> usermod
==> mkfs.ext4
==> mountpoint
==> blkid
exit "$(cat /opt/blkid)"
`

// host is a machine in which the first boot of a state runs, as root of a sandbox without network.
type host struct{ root string }

// newHost writes what cloud-init would write.
func newHost(t *testing.T, m *machine) host {
	t.Helper()
	binaries, err := bench.binaries()
	if err != nil {
		t.Fatal(err)
	}
	h := host{root: t.TempDir()}
	for _, f := range m.Files {
		h.write(t, f.Path, f.Content)
		if f.Permissions == "0755" {
			if err := os.Chmod(h.path(f.Path), 0o755); err != nil { //nolint:gosec // a script
				t.Fatal(err)
			}
		}
	}
	for section := range strings.SplitSeq(strings.TrimPrefix(stubs, "\n==> "), "\n==> ") {
		name, body, _ := strings.Cut(section, "\n")
		text := "#!/bin/bash\necho \"" + name + " $*\" >>/var/log/calls\n" + body + "\n"
		h.write(t, "/usr/local/bin/"+name, text)
		if err := os.Chmod(h.path("/usr/local/bin/"+name), 0o755); err != nil { //nolint:gosec // a script
			t.Fatal(err)
		}
	}
	for name, content := range packages {
		h.write(t, "/opt/downloads/"+name, content)
	}
	for name, value := range secretsManager {
		h.write(t, "/opt/secrets/"+name, `{"SecretString": `+quoted(value)+`}`)
	}
	agent := "/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl"
	h.write(t, agent, "#!/bin/sh\necho \"log agent $*\" >>/var/log/calls\n")
	if err := os.Chmod(h.path(agent), 0o755); err != nil { //nolint:gosec // a script
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(binaries, "carillon"), h.path("/opt/carillon")); err != nil {
		t.Fatal(err)
	}
	h.write(t, "/opt/blkid", "2\n")
	h.write(t, "/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
	h.write(t, "/etc/group", "root:x:0:\nadm:x:4:\n")
	h.write(t, "/etc/fstab", "")
	h.write(t, "/usr/sbin/.keep", "")
	h.write(t, "/var/log/calls", "")
	h.write(t, "/var/lib/cloud/data/instance-id", "i-0123456789abcdef0\n")
	return h
}

func (h host) path(path string) string { return filepath.Join(h.root, path) }

func (h host) write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(path)), 0o755); err != nil { //nolint:gosec // a folder of a machine
		t.Fatal(err)
	}
	err := program.Write(h.path(path), []byte(content)) // some are
	if err := errors.Join(err, os.Chmod(h.path(path), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func (h host) read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(h.path(path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// set replaces the line of a variable.
func (h host) set(t *testing.T, file, name, value string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + name + `=.*$`)
	if !line.MatchString(h.read(t, file)) {
		t.Fatalf("%s has no %s", file, name)
	}
	h.write(t, file, line.ReplaceAllLiteralString(h.read(t, file), name+"="+value))
}

// boot runs the commands of cloud-init's last step and returns what they print.
func (h host) boot(ctx context.Context, m *machine) (string, error) {
	inside := []string{
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin",
		"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
		"--tmpfs", "/tmp", "--tmpfs", "/run",
		"--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-ipc", "--die-with-parent", "--cap-add", "CAP_MKNOD",
		"--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/sbin:/usr/bin", "--setenv", "HOME", "/root",
	}
	for _, dir := range []string{"/usr/local", "/usr/sbin", "/etc", "/opt", "/var"} {
		inside = append(inside, "--bind", h.path(dir), dir)
	}
	// The volume of the example is attached.
	script := "mkdir -p /dev/disk/by-id && mknod /dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0 b 7 250\n"
	for _, command := range m.Commands {
		script += strings.Join(command, " ") + "\n"
	}
	//nolint:gosec // the sandbox of this test
	out, err := exec.CommandContext(ctx, "bwrap", append(inside, "bash", "-euc", script)...).CombinedOutput()
	return string(out), err
}

func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

// machineOfRun returns what a run of a folder's tests tells its machines.
func machineOfRun(t *testing.T, dir, name string) *machine {
	t.Helper()
	needsSandbox(t)
	s := anyClient(t).state(t, dir, name)
	m, err := machineOf(s)
	if text, ok := s.outputs["cloud_config"].(string); ok && m == nil {
		m, err = parseMachine(text)
	}
	if err != nil || m == nil {
		t.Fatalf("%s, run %s: user data: %v", dir, name, err)
	}
	return m
}

// anyClient returns terraform, or tofu: what they render is compared by the policies.
func anyClient(t *testing.T) client {
	t.Helper()
	for _, name := range []string{"terraform", "tofu"} {
		if c, err := bench.clients[name](); !errors.Is(err, errMissing) {
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	need.Missing(t, "neither terraform nor tofu is installed; tools/opentofu.sh builds tofu")
	return client{}
}

// needsSandbox skips a test where it cannot run; under CI=true that is a failure.
func needsSandbox(t *testing.T) {
	t.Helper()
	need.Program(t, "bwrap", "bubblewrap")
	need.Program(t, "jq", "jq")
	need.Root(t, "give a sandbox the directories of a machine")
}
