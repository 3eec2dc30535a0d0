package main

import (
	"os/exec"
	"path"
	"slices"
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

// withoutSteps are folders with code that no step has to do with but lint and test, and why.
var withoutSteps = map[string]string{
	"test/badinput": "a table that tests of other packages read",
	"test/markup":   "judges pages in the tests of the console",
	"test/need":     "has no behaviour but skipping",
	"tools/check":   "its own tests are in make test",
	"tools/rooms":   "its own tests are in make test; make lint runs it",
	"tools/zones":   "its own tests are in make test; the weekly workflow runs it",
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
