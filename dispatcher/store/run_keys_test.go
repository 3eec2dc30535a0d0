package store

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A statement that writes one run, or its slots, by its key also names the job, so that no key leads to a run of another one.
func TestWritesByTheKeyOfARunNameItsJob(t *testing.T) {
	t.Parallel()
	write := regexp.MustCompile(`(UPDATE|DELETE FROM) (live_runs|runs|slots)\b`)
	byKey := regexp.MustCompile(`\btrigger_id = \$[0-9]`)
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "storetest") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			literal, is := node.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil || !write.MatchString(text) || !byKey.MatchString(text) {
				return true
			}
			if seen++; !strings.Contains(text, "job_id ") {
				t.Errorf("%s: this statement names no job: %s", set.Position(literal.Pos()), text)
			}
			return true
		})
	}
	if seen < 5 {
		t.Errorf("%d statements were looked at, want those of callbacks, broadcasts, slots, imports and runs that are set aside", seen)
	}
}
