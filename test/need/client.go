package need

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// FindClient returns the path of terraform or tofu: from CARILLON_TERRAFORM or CARILLON_TOFU, from
// PATH or, for tofu, the build of tools/opentofu.sh. CARILLON_TERRAFORM may also be the path of a
// tofu. FindClient returns "" without a client.
func FindClient(ctx context.Context, name string) (string, error) {
	product := map[string]string{"terraform": "Terraform v", "tofu": "OpenTofu v"}[name]
	candidates := []string{os.Getenv("CARILLON_" + strings.ToUpper(name)), os.Getenv("CARILLON_TERRAFORM"), name}
	built, err := filepath.Glob(filepath.Join(root(), ".cache", "bin", "tofu-v*"))
	if err != nil {
		return "", err
	}
	for _, candidate := range append(candidates, built...) {
		path, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			return "", err
		}
		version := exec.CommandContext(ctx, path, "version")
		version.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
		if out, err := version.Output(); err == nil && strings.HasPrefix(string(out), product) {
			return path, nil
		}
	}
	return "", nil
}

// Client returns the path of terraform or tofu, or ends the test. CI=true makes a missing client a
// failure, except for terraform if CARILLON_TERRAFORM is a tofu: this machine then has none.
func Client(t testing.TB, name string) string {
	t.Helper()
	path, err := FindClient(t.Context(), name)
	switch {
	case err != nil:
		t.Fatal(err)
	case path == "" && name == "terraform" && os.Getenv("CARILLON_TERRAFORM") != "":
		t.Skip("SKIPPED: CARILLON_TERRAFORM says that this machine has no terraform") // also with CI=true
	case path == "":
		Missing(t, name+" is not installed; tools/opentofu.sh builds tofu")
	}
	return path
}

// root returns the folder of the repository: the nearest parent with its go.mod.
func root() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}
