package store_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/store"
)

// update writes the page instead of comparing it: go test ./dispatcher/store -run Page -update.
var update = flag.Bool("update", false, "write the statements into docs/why/architecture.md")

// shown is a statement on the page: a marker with its name, and the block behind it.
var shown = regexp.MustCompile("(?s)<!-- statement: ([a-z]+) -->\n```sql\n(.*?)```\n")

func TestPageShowsTheStatementsAsTheyAre(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "architecture.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	want := shown.ReplaceAllStringFunc(string(page), func(block string) string {
		name := shown.FindStringSubmatch(block)[1]
		found = append(found, name)
		statement, ok := store.Statement(name)
		if !ok {
			t.Errorf("the page shows a statement %q, which does not exist", name)
			return block
		}
		return "<!-- statement: " + name + " -->\n```sql\n" + statement + "\n```\n"
	})
	if got := strings.Join(found, " "); got != "due claim record adopt" {
		t.Errorf("the page shows %s, want due claim record adopt", got)
	}
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a page that all may read
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("the page differs from the statements; write it with -update (-want +got):\n%s", diff)
	}
}
