package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCheckOfAValidConfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"SQLite": {"--database=sqlite:" + filepath.Join(dir, "carillon.db"), "--stop-timeout=120s", "--drain-timeout=115s"},
		"PostgreSQL with tokens": {"--database=postgres://carillon@db.cluster-x.eu-west-1.rds.amazonaws.com:5432/carillon",
			"--database-auth=rds-iam", "--listen=0.0.0.0:8080"},
		"two hosts with tokens": {"--database=postgres://carillon@a:5432,b:5432/carillon?sslmode=verify-full", "--database-auth=rds-iam"},
		"a password":            {"--database=postgres://carillon@127.0.0.1:1/carillon", "--database-password=x"},
		"a password in the URL": {"--database=postgres://carillon:x@127.0.0.1:1/carillon", "--database-auth=url"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, code := carillon(t, nil, append([]string{"serve", "--check"}, args...)...)
			if code != 0 || out != "configuration is valid\n" || errs != "" {
				t.Errorf("exit %d, %q, %s, want one line", code, out, errs)
			}
		})
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("it left %v, %v", left, err)
		}
	})
}
