package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// tracked returns the files of the repository.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files").Output()
	if err != nil {
		t.Skipf("SKIPPED: this is no checkout of git: %v", err) // also with CI=true: a tarball is tested, too
	}
	return strings.Fields(string(out))
}

// withoutSteps are folders whose code concerns no step except lint and test, with the reason.
var withoutSteps = map[string]string{
	"test/badinput":   "a table that tests of other packages read",
	"test/markup":     "judges pages in the tests of the console",
	"test/need":       "has no behaviour but skipping",
	"test/sqlitetest": "makes the databases of tests that make test has",
	"tools/check":     "its own tests are in make test",
	"tools/rooms":     "its own tests are in make test; make lint runs it",
	"tools/zones":     "its own tests are in make test; the weekly workflow runs it",
}

func TestEveryFolderWithCodeHasToDoWithAStep(t *testing.T) {
	t.Parallel()
	folders := map[string]bool{}
	for _, file := range tracked(t) {
		if strings.HasSuffix(file, ".go") || strings.HasSuffix(file, ".sql") || strings.HasSuffix(file, ".tf") || strings.HasSuffix(file, ".sh") {
			folders[path.Dir(file)] = true
		}
	}
	if len(folders) < 40 {
		t.Fatalf("found %d folders with code, want all", len(folders))
	}
	for folder := range folders {
		found := slices.ContainsFunc(steps(), func(s step) bool { return !s.always && s.touchedBy(folder+"/x.go") })
		switch {
		case found && withoutSteps[folder] != "":
			t.Errorf("withoutSteps has %s, but a step has to do with it", folder)
		case !found && withoutSteps[folder] == "" && folder != "." && folder != "tools":
			t.Errorf("no step of make check has to do with %s; add it to the paths of those that show whether it works, or to withoutSteps", folder)
		}
	}
	for folder := range withoutSteps {
		if !folders[folder] {
			t.Errorf("withoutSteps has %s, which holds no code", folder)
		}
	}
}

func TestPathsOfStepsExist(t *testing.T) {
	t.Parallel()
	files := tracked(t)
	for _, s := range steps() {
		for _, at := range s.paths {
			if _, err := path.Match(at, ""); err != nil {
				t.Errorf("step %s: %s: %v", s.name, at, err)
			}
			if !slices.ContainsFunc(files, func(file string) bool { return step{paths: []string{at}}.touchedBy(file) }) {
				t.Errorf("step %s has to do with %s, which is not there", s.name, at)
			}
		}
		if len(s.paths) == 0 {
			t.Errorf("step %s has to do with nothing", s.name)
		}
	}
}

func TestStepsAreNamedOnceAndRunSomething(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, s := range steps() {
		if known[s.name] {
			t.Errorf("two steps are called %s", s.name)
		}
		known[s.name] = true
		if (s.command == nil) == (s.tests == nil) || s.proves == "" {
			t.Errorf("step %s: want a command or tests, and what it proves", s.name)
		}
		if s.minutes == 0 && !s.always && !s.nightly {
			t.Errorf("step %s does not say how long it takes", s.name)
		}
	}
}

func TestTestsNameStepsThatExist(t *testing.T) {
	t.Parallel()
	found, err := findMarks(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps() {
		named := len(found[s.name]) > 0
		if wants := slices.ContainsFunc(s.tests, func(r testRun) bool { return r.marked }); named != wants {
			t.Errorf("step %s: tests name it: %t; it runs the tests that do: %t", s.name, named, wants)
		}
		delete(found, s.name)
	}
	for name, packages := range found {
		t.Errorf("no step is called %q, which tests name: %v", name, packages)
	}
}

// A step installs the programs that its tests need. A machine of CI otherwise has them only if another step ran before.
func TestStepsInstallThePrograms(t *testing.T) {
	t.Parallel()
	found, err := findMarks(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps() {
		for folder, tests := range found[s.name] {
			calls := callsIn(t, filepath.Join(root, folder))
			for _, program := range calls.programs(tests) {
				if !slices.Contains(s.needs, "tools/need.sh "+program) {
					t.Errorf("step %s: tests of %s need %s; add it to its needs", s.name, folder, program)
				}
			}
		}
	}
}

// calls are the functions that the tests of a package call by name, and the programs that each needs itself.
type calls struct {
	of    map[string][]string
	needs map[string][]string
}

func callsIn(t *testing.T, folder string) calls {
	t.Helper()
	c := calls{map[string][]string{}, map[string][]string{}}
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := function.Name.Name
			ast.Inspect(function, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					c.of[name] = append(c.of[name], n.Name)
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Program" && len(n.Args) == 3 {
						program, _ := strconv.Unquote(n.Args[1].(*ast.BasicLit).Value)
						debian, _ := strconv.Unquote(n.Args[2].(*ast.BasicLit).Value)
						c.needs[name] = append(c.needs[name], program+" "+debian)
					}
				}
				return true
			})
		}
	}
	return c
}

// programs returns the programs that tests need, directly or through calls.
func (c calls) programs(tests []string) (all []string) {
	seen, next := map[string]bool{}, slices.Clone(tests)
	for len(next) > 0 {
		name := next[0]
		next = next[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		all = append(all, c.needs[name]...)
		for _, called := range c.of[name] {
			if c.of[called] != nil {
				next = append(next, called)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestTouchedByFilesAndFolders(t *testing.T) {
	t.Parallel()
	s := step{paths: []string{"go.mod", "provider/", "dispatcher/*.go"}}
	for file, want := range map[string]bool{
		"go.mod": true, "go.mod2": false, "tools/go.mod": false, "provider/a/b.go": true, "provider2/a.go": false, "provider": false,
		"dispatcher/job.go": true, "dispatcher/a.sql": false, "dispatcher/api/a.go": false,
	} {
		if got := s.touchedBy(file); got != want {
			t.Errorf("%s: touched = %t, want %t", file, got, want)
		}
	}
}
