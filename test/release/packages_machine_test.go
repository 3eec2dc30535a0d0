package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// packagesIn returns a directory with the packages of this version and of the next.
func packagesIn(t *testing.T) string {
	t.Helper()
	dir := openDirectory(t)
	for _, from := range []string{directory(t, built.snapshot), directory(t, built.newer)} {
		for _, pattern := range []string{"*.deb", "*.rpm"} {
			for _, path := range must[[]string](t)(filepath.Glob(filepath.Join(from, pattern))) {
				if err := os.Link(path, filepath.Join(dir, filepath.Base(path))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return dir
}

func deb(version string) string {
	return "/release/carillon_" + version + "_" + runtime.GOARCH + ".deb"
}

func rpm(version string) string {
	return "/release/carillon-" + version + "-1." + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".rpm"
}

const (
	isActive   = "systemctl is-active carillon || true"
	isEnabled  = "systemctl is-enabled carillon || true"
	ofAPI      = "curl -fsS http://127.0.0.1:8080/version" + onlyVersion
	oldVersion = `"version":"` + version + `"`
	newVersion = `"version":"` + nextVersion + `"`

	onlyVersion = ` | grep -o '"version":"[^"]*"'`
)

func TestDebIsInstalledUpgradedAndRemoved(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	m := boot(t, packagesIn(t))
	m.run(t, "apt-get install -y "+deb(version))
	m.want(t, isActive, "active") // ready, because systemd waits for the node's notification
	m.want(t, isEnabled, "enabled")
	m.want(t, "systemctl is-enabled carillon-lifecycle || true", "disabled")
	m.want(t, ofAPI, oldVersion)
	m.want(t, "carillon version | head -1", "carillon "+version)
	m.run(t, "carillon token create --name kept; carillon serve --check")
	m.run(t, "echo key > /etc/carillon/credentials/tls-key.old; echo SECRET_X=1 >> /etc/carillon/carillon.env")

	m.run(t, "apt-get install -y -o Dpkg::Options::=--force-confold "+deb(nextVersion))
	m.want(t, isActive, "active")
	m.want(t, ofAPI, newVersion)
	m.want(t, "tail -n 1 /etc/carillon/carillon.env", "SECRET_X=1")

	// A node that an operator has stopped stays stopped.
	m.run(t, "systemctl stop carillon; apt-get install -y --allow-downgrades -o Dpkg::Options::=--force-confold "+deb(version))
	m.want(t, isActive, "inactive")
	m.want(t, isEnabled, "enabled")

	m.run(t, "systemctl start carillon; apt-get remove -y carillon")
	m.want(t, isActive, "inactive")
	m.want(t, "ls -1 /var/lib/private/carillon/carillon.db /etc/carillon/carillon.env",
		"/etc/carillon/carillon.env\n/var/lib/private/carillon/carillon.db")

	m.run(t, "apt-get install -y "+deb(version))
	m.want(t, isActive, "active")
	m.want(t, "CARILLON_TOKEN=$(carillon token create --name again --scope admin) carillon token list | cut -d' ' -f1 | tail -n 1", "kept")

	out := m.run(t, "apt-get purge -y carillon")
	for _, kept := range []string{"/var/lib/private/carillon", "/etc/carillon/credentials"} {
		if !strings.Contains(out, kept+" was kept") {
			t.Errorf("purge does not say that %s was kept: %s", kept, out)
		}
	}
	m.want(t, "find /etc/carillon /etc/systemd/system -name '*carillon*'", "/etc/carillon")
	m.want(t, "ls -1 /etc/carillon/credentials/* /var/lib/private/carillon/carillon.db",
		"/etc/carillon/credentials/tls-key.old\n/var/lib/private/carillon/carillon.db")
}

// Without systemd, as in a container or in an image under construction, the package starts nothing and does not fail.
func TestDebInstallsWithoutSystemd(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	script := strings.Join([]string{
		"dpkg -i " + deb(version), "carillon version", "dpkg -i " + deb(nextVersion), "carillon version",
		"dpkg -r carillon", "dpkg -i " + deb(version), "dpkg -P carillon", "! test -e /etc/carillon",
		"! ls /etc/systemd/system/*/carillon* /etc/systemd/system/carillon* 2>/dev/null",
	}, "\n")
	args := nspawn(t, packagesIn(t), "--pipe", "--machine=carillon-plain-"+filepath.Base(t.TempDir()),
		"bash", "-euxo", "pipefail", "-c", script)
	out, err := exec.CommandContext(t.Context(), "systemd-nspawn", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, v := range []string{version, nextVersion} {
		if !strings.Contains(string(out), "\ncarillon "+v) {
			t.Errorf("carillon %s did not run:\n%s", v, out)
		}
	}
}

// The scripts of the .rpm run under a real systemd. It is Debian's, so rpm does not know of its package.
func TestRPMIsInstalledUpgradedAndRemoved(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	m := boot(t, packagesIn(t))
	// As on RHEL, where new units are disabled.
	m.run(t, "mkdir -p /etc/systemd/system-preset; echo 'disable *' > /etc/systemd/system-preset/00-rhel.preset")
	m.run(t, "rpm -K --nosignature "+rpm(version)+"; rpm -i --nodeps "+rpm(version))
	m.want(t, isEnabled, "disabled")
	m.want(t, isActive, "inactive")
	m.run(t, "rpm -V --nodeps carillon; systemctl enable --now carillon")
	m.want(t, ofAPI, oldVersion)

	m.run(t, "echo SECRET_X=1 >> /etc/carillon/carillon.env; rpm -U --nodeps "+rpm(nextVersion))
	m.want(t, ofAPI, newVersion)
	m.want(t, isEnabled, "enabled")
	m.want(t, "tail -n 1 /etc/carillon/carillon.env", "SECRET_X=1")

	m.run(t, "rpm -e carillon")
	m.want(t, isActive, "inactive")
	m.want(t, "ls -1 /etc/carillon /var/lib/private/carillon/carillon.db",
		"/var/lib/private/carillon/carillon.db\n\n/etc/carillon:\ncarillon.env.rpmsave")
}

func TestSystemdConfinesAndWatchesTheNode(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	m := boot(t, packagesIn(t))
	m.run(t, "apt-get install -y "+deb(version))
	pid := strings.TrimSpace(m.run(t, "systemctl show --property MainPID --value carillon"))
	m.want(t, "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/"+pid+"/status", "CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2")
	m.want(t, "stat -c '%a' /var/lib/private/carillon", "700")
	if uid := strings.TrimSpace(m.run(t, "stat -c %u /proc/"+pid)); uid == "0" {
		t.Error("the node runs as root")
	}

	// The sandbox does not hide the sources of the process metrics.
	metrics := m.run(t, `token=$(carillon token create --name metrics --scope metrics)
		curl -fsS -H "Authorization: Bearer $token" http://127.0.0.1:8080/metrics`)
	for _, name := range []string{"cpu_seconds_total", "max_fds", "open_fds", "resident_memory_bytes", "start_time_seconds"} {
		if !regexp.MustCompile(`(?m)^process_` + name + ` [0-9]`).MatchString(metrics) {
			t.Errorf("there is no process_%s", name)
		}
	}

	// A hanging node is killed and restarted. The test waits for less than 30 seconds.
	m.want(t, "systemctl show --property WatchdogUSec --value carillon", "30s")
	m.run(t, `mkdir /run/systemd/system/carillon.service.d
		printf '[Service]\nWatchdogSec=2\nRestartSec=0\n' > /run/systemd/system/carillon.service.d/quick.conf
		systemctl daemon-reload; systemctl restart carillon
		kill -STOP $(systemctl show --property MainPID --value carillon)`)
	until(t, "systemd to restart a node that hangs", func() bool {
		out, _ := m.try(t, "systemctl show --property NRestarts --value carillon; "+isActive)
		return out == "1\nactive\n"
	})
}

// The node, which may not read /etc/carillon/credentials itself, gets its files, and so do the commands of root.
func TestCredentialsReachNodeAndCommands(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	m := boot(t, packagesIn(t))
	m.run(t, `systemctl start postgresql
		cd /; runuser -u postgres -- psql -qc "CREATE ROLE carillon LOGIN PASSWORD 'hunter2'" -c 'CREATE DATABASE carillon OWNER carillon'
		apt-get install -y `+deb(version)+`
		cd /etc/carillon
		sed -i 's#^CARILLON_DATABASE=.*#CARILLON_DATABASE=postgres://carillon@127.0.0.1/carillon#' carillon.env
		umask 077
		printf 'hunter2\n' > credentials/database-password
		carillon secret key > credentials/secret-keys
		openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=localhost \
			-addext subjectAltName=DNS:localhost -keyout credentials/tls-key -out credentials/tls-cert 2>/dev/null
		carillon serve --check
		systemctl restart carillon`)
	m.want(t, "curl -fsS --cacert /etc/carillon/credentials/tls-cert https://localhost:8080/version"+onlyVersion, oldVersion)
	m.want(t, "CARILLON_TOKEN=$(carillon token create --name looks --scope read) carillon node list "+
		"--endpoint https://localhost:8080 --ca-cert /etc/carillon/credentials/tls-cert | wc -l", "2")
	m.want(t,
		"cd /; runuser -u postgres -- psql -d carillon -Atc \"SELECT 'some' FROM pg_stat_activity WHERE usename = 'carillon' LIMIT 1\"",
		"some")

	// A removed directory does not stop the node.
	m.run(t, `rm -r /etc/carillon/credentials
		sed -i 's#^CARILLON_DATABASE=.*#CARILLON_DATABASE=sqlite:/var/lib/carillon/carillon.db#' /etc/carillon/carillon.env
		systemctl restart carillon`)
	m.want(t, ofAPI, oldVersion)
}

// The agent may stop the node although it has no capabilities.
func TestLifecycleAgentMayStopTheNode(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	m := boot(t, packagesIn(t))
	m.run(t, "apt-get install -y "+deb(version))
	m.run(t, `mkdir /run/systemd/system/carillon-lifecycle.service.d
		printf '[Service]\nType=oneshot\nRestart=no\nExecStart=\nExecStart=/usr/bin/systemctl stop carillon.service\n' \
			> /run/systemd/system/carillon-lifecycle.service.d/stop.conf
		systemctl daemon-reload; systemctl start carillon-lifecycle`)
	m.want(t, isActive, "inactive")
}
