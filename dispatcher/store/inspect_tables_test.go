package store

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/migrations"
)

// A table that is not looked at may belong to another role, and then the first query of it fails in the middle of work.
func TestOwnersOfAllTablesAreLookedAt(t *testing.T) {
	t.Parallel()
	created := regexp.MustCompile(`(?m)^CREATE TABLE (\w+) \(`)
	scripts, err := fs.Glob(migrations.Postgres, "postgres/*.sql")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("scripts: %v, %v", scripts, err)
	}
	for _, script := range scripts {
		text, err := fs.ReadFile(migrations.Postgres, script)
		if err != nil {
			t.Fatal(err)
		}
		tables := created.FindAllSubmatch(text, -1)
		if len(tables) == 0 {
			t.Errorf("%s creates no table, as far as this test sees", script)
		}
		for _, table := range tables {
			if name := string(table[1]); !strings.Contains(foreignTables, "'"+name+"'") {
				t.Errorf("nobody looks who owns table %s; add it to foreignTables", name)
			}
		}
	}
}
