package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// T1: jobs read files of the secret directory. A node refuses to start if any of them is its own.
func TestSecretDirectoryWithFilesOfTheNodeIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("# x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(create func(from, to string) error, from, name string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := create(from, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("good/a/key")
	write("kubernetes/kubernetes.io/serviceaccount/token")
	write("eks/eks.amazonaws.com/serviceaccount/token")
	pass := write("pass/pgpass")
	link(os.Symlink, "pass", "linked")
	link(os.Link, pass, "hard/app/other")
	database := write("data/carillon.db")
	for name, tt := range map[string]struct {
		dir  string
		env  []string
		args []string
		says string // empty if it is accepted
	}{
		"a directory of its own":     {"good", nil, nil, ""},
		"a missing one":              {"none", nil, nil, ""},
		"tokens of Kubernetes":       {"kubernetes", nil, nil, "kubernetes.io"},
		"below tokens of Kubernetes": {"kubernetes/kubernetes.io/serviceaccount", nil, nil, "kubernetes.io"},
		"tokens of EKS":              {"eks", nil, nil, "eks.amazonaws.com"},
		"a password file": {"pass", nil, []string{"--database=postgres://me@h/d", "--database-password-file=" + pass},
			"--database-password-file"},
		"a password file of the URL":  {"pass", nil, []string{"--database=postgres://me@h/d?passfile=" + pass}, "passfile"},
		"a password file of libpq":    {"pass", []string{"PGPASSFILE=" + pass}, nil, "PGPASSFILE"},
		"through a link":              {"linked", []string{"PGPASSFILE=" + pass}, nil, "PGPASSFILE"},
		"another name of the file":    {"hard", []string{"PGPASSFILE=" + pass}, nil, "PGPASSFILE"},
		"web identity":                {"pass", []string{"AWS_WEB_IDENTITY_TOKEN_FILE=" + pass}, nil, "AWS_WEB_IDENTITY_TOKEN_FILE"},
		"the database":                {"data", nil, []string{"--database=sqlite:" + database}, "the database"},
		"the settings of the machine": {"pass", []string{"CARILLON_ENV_FILE=" + write("pass/carillon.env")}, nil, "settings"},
	} {
		env := append([]string{"CARILLON_ENV_FILE="}, tt.env...)
		args := append([]string{"serve", "--check", "--database=sqlite:" + filepath.Join(dir, "other.db"),
			"--secret-dir=" + filepath.Join(dir, tt.dir)}, tt.args...)
		_, out, code := carillon(t, env, args...)
		refused := code == exitUsage && strings.Contains(out, tt.says) && strings.Contains(out, "--secret-dir")
		if tt.says == "" && code != 0 || tt.says != "" && !refused {
			t.Errorf("%s: exit code %d, %s; want it to say %q", name, code, out, tt.says)
		}
	}
}
