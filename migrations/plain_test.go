package migrations_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/migrations"
)

// A script for a database without partitions creates none, and is otherwise the same.
func TestPlainScriptsHaveNoPartitions(t *testing.T) {
	t.Parallel()
	plain := migrations.Plain(migrations.Postgres)
	names, err := fs.Glob(plain, "postgres/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("scripts: got %v, %v", names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(plain, name)
		if err != nil {
			t.Fatal(err)
		}
		before, err := fs.ReadFile(migrations.Postgres, name)
		if err != nil {
			t.Fatal(err)
		}
		statements := func(text []byte) (all []string) {
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(strings.TrimSpace(line), "--") {
					all = append(all, line)
				}
			}
			return all
		}
		if got := strings.Join(statements(text), ""); strings.Contains(got, "PARTITION") {
			t.Errorf("%s has partitions for databases that have none", name)
		}
		if got, want := len(statements(text)), len(statements(before)); got != want {
			t.Errorf("%s has %d lines of statements, want %d", name, got, want)
		}
	}
}
