package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHouseIsWithinItsBounds(t *testing.T) {
	t.Parallel()
	if err := check(t.Context(), "../..", io.Discard); err != nil {
		t.Error(err)
	}
}

func TestGraphMatchesTheCodeAndPointsDown(t *testing.T) {
	t.Parallel()
	built := map[string][]string{"input": nil, "run": {"input"}, "store": {"input", "run"}}
	for name, tt := range map[string]struct{ block, want string }{
		"a matching graph":           {"input:\nrun: input\nstore: input run\n", ""},
		"two rooms of the same line": {"input:\nrun, store: input\n", "store imports run; the graph in CONTRIBUTING.md does not say so"},
		"a missing arrow":            {"input:\nrun:\nstore: input run\n", "run imports input; the graph"},
		"an arrow without import":    {"input:\nrun: input\nstore: input run seal\n", "store does not import seal; the graph"},
		"an arrow that points up":    {"run: input\ninput:\nstore: input run\n", "the arrow from run to input points up"},
		"a missing package":          {"input:\nrun: input\n", "package store is not in the graph"},
		"a room without package":     {"input:\nrun: input\nstore: input run\nview:\n", "room view, which is no package"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drawn, err := graphOf("# Page\n\n```rooms\n" + tt.block + "```\n")
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(compare(drawn, built)...)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("problems are %v, want %q", err, tt.want)
			}
		})
	}
	for _, page := range []string{"# Page", "```rooms\ninput run\n```\n"} {
		if _, err := graphOf(page); err == nil {
			t.Errorf("page %q has a graph, want an error", page)
		}
	}
}

func TestComplexityCountsBranches(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		"":                               1,
		"if a && b || c { return }":      4,
		"for range x { for { break } }":  3,
		"switch { case a: default: }":    2,
		"select { case <-x: default: }":  2,
		"func() { if a { return } }()":   2,
		"switch x { case 1, 2: case 3:}": 3,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() {\n"+body+"\n}\n", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := complexity(file.Decls[0].(*ast.FuncDecl)); got != want {
			t.Errorf("complexity of %q is %d, want %d", body, got, want)
		}
	}
}

func TestEachBoundIsKept(t *testing.T) {
	t.Parallel()
	h := house{
		folders:    map[string]*folder{"dispatcher/new": {files: maxFiles + 1, lines: mostLines + 1, exported: maxExported + 1}},
		complexity: []int{mostNinetieth + 1, mostNinetieth + 1},
		complex:    map[string]int{},
		wide:       make([]string, mostWide+1),
		long:       make([]string, mostLong+1),
	}
	for range mostComplex + 1 {
		h.complex[strings.Repeat("f", len(h.complex)+1)] = maxComplexity + 1
	}
	var got []string
	for _, problem := range h.problems() {
		what, _, _ := strings.Cut(problem.Error(), ":")
		got = append(got, what)
	}
	want := []string{"lines of the product", "complexity that nine of ten functions have at most", "functions of a complexity above 15",
		"structs with more than 15 fields", "functions with 6 parameters or more", "files in dispatcher/new", "exported names of dispatcher/new"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	h.long = h.long[:mostLong-1]
	lower := fmt.Sprintf("functions with 6 parameters or more: %d, less than the bound of %d; lower it", mostLong-1, mostLong)
	if err := errors.Join(h.problems()...); !strings.Contains(err.Error(), lower) {
		t.Errorf("problems are %v, want one of the bound that is too high", err)
	}
}
