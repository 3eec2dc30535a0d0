package k8s_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// program builds the carillon program from this tree.
func program(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "carillon")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", file, "./dispatcher/cmd/carillon")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// secrets returns the values that a user puts into the secret "carillon".
func secrets() map[string]string {
	return map[string]string{
		"database-password": "correct horse battery staple",
		"secret-keys":       base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)),
	}
}

// environment returns the variables that Kubernetes gives to a container.
func environment(t *testing.T, m *manifests, c corev1.Container) []string {
	t.Helper()
	var all []string
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef.Name != m.config.Name {
			t.Fatalf("the container reads the ConfigMap %q, which is not there", from.ConfigMapRef.Name)
		}
		for name, value := range m.config.Data {
			all = append(all, name+"="+value)
		}
	}
	for _, e := range c.Env {
		switch from := e.ValueFrom; {
		case from != nil && from.SecretKeyRef != nil:
			value, ok := secrets()[from.SecretKeyRef.Key]
			if from.SecretKeyRef.Name != "carillon" || !ok {
				t.Fatalf("%s reads %s of the secret %s, which the page does not create", e.Name, from.SecretKeyRef.Key, from.SecretKeyRef.Name)
			}
			all = append(all, e.Name+"="+value)
		case from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
			all = append(all, e.Name+"=carillon-7d9c5b8f6-x2x7q")
		default:
			t.Fatalf("%s has a source that this test does not know", e.Name)
		}
	}
	return all
}

// check lets the program validate the configuration of a node.
func check(ctx context.Context, program string, environment []string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, append(args, "--check")...)
	command.Env = environment
	out, err := command.CombinedOutput()
	return string(out), err
}

// The manifests and the program change separately. The program must accept what Kubernetes would start.
func TestProgramAcceptsTheConfiguration(t *testing.T) {
	t.Parallel()
	m, program := load(t), program(t)
	out, err := check(t.Context(), program, environment(t, m, *node(m)), node(m).Args...)
	if err != nil || !strings.Contains(out, "configuration is valid") {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(out, "unknown environment variable") {
		t.Errorf("a variable is misspelt:\n%s", out)
	}
	m.config.Data["CARILLON_DRAIN_TIMEOUT"] = "111s" // Kubernetes would kill the node while it drains
	if out, err := check(t.Context(), program, environment(t, m, *node(m)), node(m).Args...); err == nil {
		t.Errorf("a drain that is too long was accepted:\n%s", out)
	}
}

// The settings that the page adds for Vault are accepted, and name files that exist in the pods.
func TestProgramAcceptsVaultOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/how-to/install-on-kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	m, program := load(t), program(t)
	mounted := map[string]bool{}
	for _, v := range m.deployment.Spec.Template.Spec.Volumes {
		if v.Name == "vault" && v.Projected.Sources[0].ServiceAccountToken.Audience == "vault" {
			mounted["token"], mounted["ca.crt"] = true, v.Projected.Sources[1].ConfigMap.Name == "carillon-vault"
		}
	}
	var directory string
	for _, mount := range node(m).VolumeMounts {
		if mount.Name == "vault" {
			directory = mount.MountPath
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^  (CARILLON_VAULT_[A-Z_]+): (.+)$`).FindAllStringSubmatch(string(page), -1) {
		m.config.Data[line[1]] = line[2]
	}
	for _, name := range []string{"CARILLON_VAULT_TOKEN_FILE", "CARILLON_VAULT_CA"} {
		if dir, file := path.Split(m.config.Data[name]); dir != directory+"/" || !mounted[file] {
			t.Errorf("%s is %s, and the pods have %v in %s", name, m.config.Data[name], mounted, directory)
		}
	}
	delete(m.config.Data, "CARILLON_VAULT_CA") // the file does not exist on this machine
	out, err := check(t.Context(), program, environment(t, m, *node(m)), node(m).Args...)
	if err != nil || !strings.Contains(out, "configuration is valid") || strings.Contains(out, "unknown environment variable") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestMigrationIsACommandOfTheProgram(t *testing.T) {
	t.Parallel()
	m := load(t)
	args := m.migrate.Spec.Template.Spec.Containers[0].Args
	if out, err := exec.CommandContext(t.Context(), program(t), append(args, "--help")...).CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "Update the database schema") {
		t.Errorf("carillon %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Kubernetes reaches a node through its network address, on the port of the probes and the service.
func TestNodeListensWhereKubernetesLooks(t *testing.T) {
	t.Parallel()
	m := load(t)
	host, port, err := net.SplitHostPort(m.config.Data["CARILLON_LISTEN"])
	if err != nil || host != "0.0.0.0" {
		t.Fatalf("CARILLON_LISTEN is %q", m.config.Data["CARILLON_LISTEN"])
	}
	c := node(m)
	if len(c.Ports) != 1 || c.Ports[0].Name != "http" || port != "8080" || c.Ports[0].ContainerPort != 8080 {
		t.Errorf("the node listens on %s and says %+v", port, c.Ports)
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if p.HTTPGet.Port.String() != "http" || p.HTTPGet.Scheme != "" {
			t.Errorf("a probe asks %+v", p.HTTPGet)
		}
	}
	if got := m.service.Spec.Ports[0].TargetPort.String(); got != "http" {
		t.Errorf("the service leads to %s", got)
	}
}

// The paths of the probes are in the node's openapi.json.
func TestProbesAskForRoutesThatExist(t *testing.T) {
	t.Parallel()
	routes, err := os.ReadFile("../../dispatcher/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	m := load(t)
	for _, p := range []*corev1.Probe{node(m).LivenessProbe, node(m).ReadinessProbe} {
		if !bytes.Contains(routes, []byte(`"`+p.HTTPGet.Path+`": {`)) {
			t.Errorf("there is no route %s", p.HTTPGet.Path)
		}
	}
}
