package terraform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

const (
	continued = "aws autoscaling complete-lifecycle-action --auto-scaling-group-name payroll --lifecycle-hook-name payroll-launch " +
		"--instance-id i-0123456789abcdef0 --lifecycle-action-result CONTINUE"
	abandoned = "--lifecycle-action-result ABANDON"
	started   = "systemctl restart --no-block carillon.service"
)

// The real node starts with what cloud-init has written, and its readiness completes the launch.
func TestFirstBootStartsNode(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	m := machineOfRun(t, "terraform/vm/cloud-init", "node_of_a_group")
	h := newHost(t, m)
	out, err := h.boot(t.Context(), m)
	if err != nil {
		t.Fatalf("boot: %v\n%s\n%s", err, out, h.read(t, "/var/log/carillon/carillon.log"))
	}
	calls := h.read(t, "/var/log/calls")
	at := 0
	for _, step := range []string{
		"amazon-cloudwatch-agent.deb", "aws s3 cp --only-show-errors s3://packages/amazon-ssm-agent.deb", "log agent -a fetch-config",
		"aws secretsmanager", "--force-confold /tmp/", "nothing is started", "systemctl enable carillon.service", started,
		"systemctl restart --no-block carillon-lifecycle.service", continued,
	} {
		i := strings.Index(calls[at:], step)
		if i < 0 {
			t.Fatalf("after what came before, %q is missing in:\n%s", step, calls)
		}
		at += i
	}
	if _, err := os.Stat(h.path("/usr/sbin/policy-rc.d")); err == nil {
		t.Error("packages start nothing from now on: policy-rc.d is still there")
	}
	if log := h.read(t, "/var/log/carillon/carillon.log"); !strings.Contains(log, "node started") && !strings.Contains(log, `"node"`) {
		t.Errorf("the log of the node: %s", log)
	}
}

func TestFirstBootPutsSecretsWhereTheNodeReadsThem(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	m := machineOfRun(t, "terraform/vm/cloud-init", "node_of_a_group")
	h := newHost(t, m)
	out, err := h.boot(t.Context(), m)
	if err != nil {
		t.Fatalf("boot: %v\n%s", err, out)
	}
	keys := strings.ReplaceAll(secretsManager["keys-AbCdEf"], ",", "\n")
	if got := h.read(t, "/etc/carillon/credentials/secret-keys"); got != keys {
		t.Errorf("secret-keys = %q, want one on each line: %q", got, keys)
	}
	if got := h.read(t, "/etc/carillon/credentials/vault-token"); got != "hunter4" {
		t.Errorf("vault-token = %q", got)
	}
	environment := h.read(t, "/var/log/environment")
	for _, want := range []string{"SECRET_CRM=a \"b\" $c \\ d`e`\n", "SECRET_PEM=" + secretsManager["pem-AbCdEf"]} {
		if !strings.Contains(environment, want) {
			t.Errorf("the environment of the node lacks %q:\n%s", want, environment)
		}
	}
	for path, mode := range map[string]os.FileMode{
		"/etc/carillon/credentials": 0o700, "/etc/carillon/credentials/secret-keys": 0o600, "/etc/carillon/secrets.env": 0o600,
	} {
		if info, err := os.Stat(h.path(path)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want mode %o", path, info.Mode(), err, mode)
		}
	}
	for _, secret := range []string{"hunter", "MDEyMzQ1", "d`e`"} {
		if strings.Contains(out+h.read(t, "/var/log/calls")+m.text, secret) {
			t.Errorf("%q is in user data, arguments or output:\n%s", secret, out)
		}
	}
}

// What the modules set is what the binary reads: "serve --check" knows each variable and takes each value.
func TestBinaryAcceptsConfigurationOfMachines(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	for _, of := range []struct{ dir, run string }{
		{"terraform/vm", "defaults"},
		{"terraform/vm", "all_inputs"},
		{"terraform/vm", "long_drain"},
		{"terraform/vm", "no_log_agent"},
		{"examples/vm-fleet", "fleet"},
		{"examples/vm-single-sqlite", "single"},
	} {
		t.Run(of.dir+"/"+of.run, func(t *testing.T) {
			t.Parallel()
			m := machineOfRun(t, of.dir, of.run)
			h := newHost(t, m)
			if of.run != "single" { // the database is nowhere
				h.set(t, "/etc/carillon/boot.env", "READY_TIMEOUT", "1")
			}
			out, err := h.boot(t.Context(), m)
			if !strings.Contains(out, "configuration is valid") || strings.Contains(out, "unknown environment variable") {
				t.Errorf("boot: %v\n%s", err, out)
			}
		})
	}
}

// The machine of the example has its database on its own volume, and becomes ready.
func TestSingleMachineUsesItsVolume(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	for name, tt := range map[string]struct {
		blkid     string
		formatted bool
	}{
		"a new volume is formatted":         {"2", true},
		"a volume with a file system stays": {"0", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machineOfRun(t, "examples/vm-single-sqlite", "single")
			h := newHost(t, m)
			h.write(t, "/opt/blkid", tt.blkid)
			if out, err := h.boot(t.Context(), m); err != nil {
				t.Fatalf("boot: %v\n%s\n%s", err, out, h.read(t, "/var/log/carillon/carillon.log"))
			}
			calls := h.read(t, "/var/log/calls")
			if formatted := strings.Contains(calls, "mkfs.ext4"); formatted != tt.formatted {
				t.Errorf("formatted: %v\n%s", formatted, calls)
			}
			if !strings.Contains(h.read(t, "/etc/fstab"), "vol0123456789abcdef0 /var/lib/private/carillon auto") {
				t.Errorf("fstab: %s", h.read(t, "/etc/fstab"))
			}
			if _, err := os.Stat(h.path("/var/lib/carillon/carillon.db")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A machine that is not as it should be never enters the group, and says why.
func TestFirstBootAbandonsBrokenMachine(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	for name, tt := range map[string]struct {
		breakIt func(t *testing.T, h host)
		says    string
		starts  bool
	}{
		"another package": {
			func(t *testing.T, h host) { t.Helper(); h.write(t, "/opt/downloads/carillon_1.0.0_arm64.deb", "4") },
			"does not have the sha256", false,
		},
		"no package": {
			func(t *testing.T, h host) { t.Helper(); h.remove(t, "/opt/downloads/carillon_1.0.0_arm64.deb") },
			"gave up: curl", false,
		},
		"a secret that may not be read": {
			func(t *testing.T, h host) { t.Helper(); h.remove(t, "/opt/secrets/crm-AbCdEf") },
			"AccessDeniedException", false,
		},
		"a secret without the key": {
			func(t *testing.T, h host) {
				t.Helper()
				h.write(t, "/opt/secrets/crm-AbCdEf", `{"SecretString": "{}"}`)
			},
			"has no key token", false,
		},
		"a configuration that the node refuses": {
			func(t *testing.T, h host) { t.Helper(); h.set(t, envFile, "CARILLON_DATABASE", "mysql://db") },
			"CARILLON_DATABASE", false,
		},
		"a node that does not become ready": {
			func(t *testing.T, h host) {
				t.Helper()
				h.set(t, "/etc/carillon/boot.env", "READY_TIMEOUT", "1")
				h.set(t, envFile, "CARILLON_DATABASE", "postgres://carillon@db.invalid/carillon")
			},
			"the node was not ready within 1 s", true,
		},
		"no programs": {
			func(t *testing.T, h host) { t.Helper(); h.remove(t, "/usr/local/bin/aws") },
			"aws is missing", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machineOfRun(t, "terraform/vm/cloud-init", "node_of_a_group")
			h := newHost(t, m)
			tt.breakIt(t, h)
			out, err := h.boot(t.Context(), m)
			calls := h.read(t, "/var/log/calls")
			if err == nil || !strings.Contains(out, tt.says) {
				t.Errorf("boot: %v, want %q in:\n%s", err, tt.says, out)
			}
			// Without the AWS command line nothing can be completed; the default result of the hook abandons.
			if name != "no programs" && (!strings.Contains(calls, abandoned) || strings.Contains(calls, "CONTINUE")) {
				t.Errorf("the launch was not abandoned:\n%s", calls)
			}
			if starts := strings.Contains(calls, started); starts != tt.starts {
				t.Errorf("the node was started: %v\n%s", starts, calls)
			}
			if _, err := os.Stat(h.path("/usr/sbin/policy-rc.d")); err == nil {
				t.Error("policy-rc.d is still there")
			}
		})
	}
}

// Secrets that cannot be fetched later leave those of before.
func TestSecretsStayIfTheyCannotBeFetched(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	m := machineOfRun(t, "terraform/vm/cloud-init", "node_of_a_group")
	h := newHost(t, m)
	only := *m
	only.Commands = [][]string{{"/usr/local/lib/carillon/fetch-secrets"}}
	if out, err := h.boot(t.Context(), &only); err != nil {
		t.Fatalf("fetch: %v\n%s", err, out)
	}
	files := []string{"/etc/carillon/secrets.env", "/etc/carillon/credentials/secret-keys"}
	var before []string
	for _, file := range files {
		before = append(before, h.read(t, file))
	}
	h.write(t, "/opt/secrets/keys-AbCdEf", `{"SecretString": "new"}`)
	h.remove(t, "/opt/secrets/pem-AbCdEf")
	if out, err := h.boot(t.Context(), &only); err == nil {
		t.Errorf("a missing secret is no failure:\n%s", out)
	}
	for i, file := range files {
		if got := h.read(t, file); got != before[i] {
			t.Errorf("%s changed: %q", file, got)
		}
	}
	left, err := filepath.Glob(h.path("/etc/carillon/.new.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("secrets are left in %v, %v", left, err)
	}
}

func (h host) remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(h.path(path)); err != nil {
		t.Fatal(err)
	}
}

func TestCloudInitAcceptsUserData(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	need.Program(t, "cloud-init", "cloud-init")
	eachClient(t, func(t *testing.T, c client) {
		for dir, run := range map[string]string{"terraform/vm": "all_inputs", "examples/vm-single-sqlite": "single"} {
			m, err := machineOf(c.state(t, dir, run))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "user-data")
			if err := os.WriteFile(file, []byte(m.text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "cloud-init", "schema", "--config-file", file).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Valid") {
				t.Errorf("%s: %v\n%s", dir, err, out)
			}
		}
	})
}

func TestScriptsOfMachinesPassShellcheck(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	need.Program(t, "shellcheck", "shellcheck")
	scripts, err := filepath.Glob("vm/cloud-init/files/*")
	if err != nil || !slices.Contains(scripts, "vm/cloud-init/files/boot") {
		t.Fatal(scripts, err)
	}
	out, err := exec.CommandContext(t.Context(), "shellcheck", append([]string{"--shell=bash"}, scripts...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
