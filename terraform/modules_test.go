package terraform_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// folders returns the modules and the examples that deploy Carillon, found by their files.
func folders(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, root := range []string{"terraform", "examples"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && strings.HasPrefix(entry.Name(), ".terraform") {
				return fs.SkipDir
			}
			if !entry.IsDir() && strings.HasSuffix(path, ".tftest.hcl") {
				dir, err := filepath.Rel("..", filepath.Dir(path))
				found = append(found, filepath.ToSlash(dir))
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Compact(found)
}

func TestEveryModuleHasTests(t *testing.T) {
	t.Parallel()
	tested := folders(t)
	for _, pattern := range []string{"../terraform/*/*.tf", "../terraform/modules/*/*.tf", "../examples/*-*/*.tf", "../examples/*-*/*/*.tf"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			dir, err := filepath.Rel("..", filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			// examples/data-sources and the like are snippets of the provider's pages.
			if dir = filepath.ToSlash(dir); !slices.Contains(tested, dir) && !strings.HasPrefix(dir, "examples/data-sources") {
				t.Errorf("%s has no *.tftest.hcl", dir)
			}
		}
	}
}

func TestModules(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	eachClient(t, func(t *testing.T, c client) {
		t.Run("format", func(t *testing.T) {
			t.Parallel()
			for _, root := range []string{"terraform", "examples"} {
				c.must(t, root, "fmt", "-check", "-diff", "-recursive")
			}
		})
		for _, dir := range folders(t) {
			t.Run(dir, func(t *testing.T) {
				t.Parallel()
				runs := c.runs(t, dir) // init and test
				for name, r := range runs {
					if r.status != "pass" && name != "" {
						t.Errorf("run %q: %s", name, r.status)
					}
				}
				if len(runs) == 0 {
					t.Error("no run was found")
				}
				c.must(t, dir, "validate")
			})
		}
	})
}

var (
	block           = regexp.MustCompile(`(?m)^variable "([a-z_0-9]+)" \{$`)
	validation      = regexp.MustCompile(`(?m)^  validation \{$`)
	wholeValidation = regexp.MustCompile(`(?s)\n  validation \{\n.*?\n  \}`)
	expected        = regexp.MustCompile(`expect_failures\s*=\s*\[([^\]]*)\]`)
	condition       = regexp.MustCompile(`(?m)^\s+(precondition|postcondition) \{$|^check "([a-z_0-9]+)" \{$`)
	owner           = regexp.MustCompile(`(?m)^(resource|data|output) "([a-z_0-9]+)"(?: "([a-z_0-9]+)")? \{$`)
)

// rules returns how many validations, preconditions and checks each object of a folder has, by the name that
// expect_failures gives it.
func rules(t *testing.T, dir string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, text := range read(t, dir, "*.tf") {
		sections(text, block, func(name []string, body string) {
			if n := len(validation.FindAllString(body, -1)); n > 0 {
				found["var."+name[1]] = n
			}
		})
		sections(text, owner, func(name []string, body string) {
			address := map[string]string{
				"resource": name[2] + "." + name[3], "data": "data." + name[2] + "." + name[3], "output": "output." + name[2],
			}[name[1]]
			if n := len(condition.FindAllString(body, -1)); n > 0 {
				found[address] = n
			}
		})
		for _, check := range condition.FindAllStringSubmatch(text, -1) {
			if check[2] != "" {
				found["check."+check[2]]++
			}
		}
	}
	return found
}

// sections calls f with each block that begins with a header and ends with "}" in the first column.
func sections(text string, header *regexp.Regexp, f func(name []string, body string)) {
	for _, at := range header.FindAllStringSubmatchIndex(text, -1) {
		body, _, _ := strings.Cut(text[at[1]:], "\n}\n")
		f(header.FindStringSubmatch(text[at[0]:at[1]]), body)
	}
}

func read(t *testing.T, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// A rule that no test trips may be one that never refuses anything.
func TestEveryRuleIsTripped(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	for _, dir := range folders(t) {
		tripped := map[string]int{}
		for _, text := range read(t, dir, "*.tftest.hcl") {
			for _, list := range expected.FindAllStringSubmatch(text, -1) {
				for name := range strings.SplitSeq(list[1], ",") {
					tripped[strings.TrimSpace(name)]++
				}
			}
		}
		for name, n := range rules(t, dir) {
			if tripped[name] < n {
				t.Errorf("%s: %s has %d rules and %d runs that expect it to fail", dir, name, n, tripped[name])
			}
		}
	}
}

// Of a variable with several validations, each must be the one that some run trips: without it, a run fails.
// This takes a run of all tests for each, so it is done where no provider has to start, and with one client.
func TestEachOfSeveralValidationsIsTripped(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	only := "terraform"
	if _, err := bench.clients[only](); err != nil {
		only = "tofu"
	}
	eachClient(t, func(t *testing.T, c client) {
		if c.name != only {
			return
		}
		for _, file := range []string{"terraform/modules/config/variables.tf"} {
			text, err := os.ReadFile(filepath.Join("..", file))
			if err != nil {
				t.Fatal(err)
			}
			sections(string(text), block, func(name []string, body string) {
				all := wholeValidation.FindAllString(body, -1)
				if len(all) < 2 {
					return
				}
				for i, one := range all {
					t.Run(fmt.Sprintf("%s %d", name[1], i+1), func(t *testing.T) {
						t.Parallel()
						c := c.copy(t)
						c.edit(t, file, one, "")
						_, err := c.testFolder(t.Context(), filepath.ToSlash(filepath.Dir(file)))
						if err == nil || !strings.Contains(err.Error(), "Missing expected failure") {
							t.Errorf("no run misses it, but %v, without%s", err, one)
						}
					})
				}
			})
		}
	})
}

func TestWrongArgumentIsCaught(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	eachClient(t, func(t *testing.T, c client) {
		c = c.copy(t)
		c.edit(t, "terraform/modules/alarms/main.tf", "metric_name ", "metric_nam  ")
		c.must(t, "terraform/modules/alarms", "init")
		out, err := c.command(t.Context(), "terraform/modules/alarms", "validate")
		if err == nil || !strings.Contains(out, "metric_nam") {
			t.Errorf("validate of metric_nam says %v:\n%s", err, out)
		}
	})
}
