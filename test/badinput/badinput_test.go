package badinput_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/badinput"
)

func TestEveryRowHasAPlaceThatExists(t *testing.T) {
	t.Parallel()
	rows, err := badinput.Rows()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[badinput.Place]int{}
	tests := map[string]string{} // the text of all tests, by package
	for _, row := range rows {
		seen[row.Place]++
		if row.Place != badinput.Test {
			continue
		}
		pkg, name, _ := strings.Cut(row.Where, " ")
		if tests[pkg] == "" {
			tests[pkg] = textOfTests(t, pkg)
		}
		if !strings.Contains(tests[pkg], "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("rows.md:%d: %s has no test %s", row.Line, pkg, name)
		}
	}
	for place, least := range map[badinput.Place]int{badinput.API: 100, badinput.Request: 20, badinput.Node: 15, badinput.Test: 20} {
		if seen[place] < least {
			t.Errorf("the table has %d rows of %s, want %d or more: is it read to the end?", seen[place], place, least)
		}
	}
}

func textOfTests(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", pkg, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
