package dispatcher_test

import (
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The cost of matching a character is the size of the program, so bounding the size bounds the cost.
func FuzzRegexpCost(f *testing.F) {
	for _, seed := range []string{
		strings.Repeat("(?:a?){1000}", 83) + "b", "((a{10}){10}){10}", strings.Repeat("(", 50) + "a" + strings.Repeat(")", 50),
		strings.Repeat("a?", 511), `(?i:\pL{1,300})`, `(?:\b\B^$){100}`, `[[:^alpha:]\x{10FFFF}]{999}`, "(?s:.*){500}", "a{0,1000}{0}",
		strings.Repeat("a", 1024), `\Q` + strings.Repeat("(", 1000), "x{1000}{1000}{1000}", "(?:(?:x|y)*|z+)*$", "\xff{500}", "(?",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		compiled, err := target.CompileExpectation(text)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes: %.200s", len(err.Error()), err)
			}
			return
		}
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatalf("%q was compiled, but %v", text, err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if _, literal := compiled.LiteralPrefix(); len(program.Inst) > target.MaxExpectProgram && !literal {
			t.Errorf("%q has %d instructions, want %d at most", text, len(program.Inst), target.MaxExpectProgram)
		}
	})
}
