package terraform_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of inputs and outputs into the pages of the modules")

var (
	argument = regexp.MustCompile(`(?m)^  (description|type|default) += (.*)$`)
	anOutput = regexp.MustCompile(`(?m)^output "([a-z_0-9]+)" \{$`)
)

// arguments returns the one-line arguments of a block. Of a value of several lines it has the first.
func arguments(body string) map[string]string {
	found := map[string]string{}
	for _, a := range argument.FindAllStringSubmatch(body, -1) {
		found[a[1]] = a[2]
	}
	if text := found["description"]; text != "" {
		text = strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`)
		found["description"] = strings.ReplaceAll(strings.ReplaceAll(text, `\"`, `"`), "|", `\|`)
	}
	return found
}

// tables returns the tables of inputs and outputs of a module, by their names.
func tables(t *testing.T, dir string) map[string]string {
	t.Helper()
	inputs, outputs := &strings.Builder{}, &strings.Builder{}
	inputs.WriteString("| input | type | default | meaning |\n|---|---|---|---|\n")
	outputs.WriteString("| output | meaning |\n|---|---|\n")
	for _, text := range read(t, dir, "*.tf") {
		sections(text, block, func(name []string, body string) {
			a := arguments(body)
			kind := a["type"]
			if strings.HasSuffix(kind, "({") { // its attributes are in the description or in the file
				kind = strings.NewReplacer("({", "", "(object", " of objects").Replace(kind)
			}
			value := "**required**"
			if v, ok := a["default"]; ok {
				value = "`" + v + "`"
			}
			fmt.Fprintf(inputs, "| `%s` | %s | %s | %s |\n", name[1], kind, value, a["description"])
		})
		sections(text, anOutput, func(name []string, body string) {
			fmt.Fprintf(outputs, "| `%s` | %s |\n", name[1], arguments(body)["description"])
		})
	}
	return map[string]string{"inputs": inputs.String(), "outputs": outputs.String()}
}

// TestPagesShowInputsAndOutputs compares the pages of the modules with their variables. A table stands between
// "<!-- inputs -->" and "<!-- end -->", and is written by: go test ./terraform -run Pages -update
func TestPagesShowInputsAndOutputs(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*/README.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		want := string(text)
		for name, table := range tables(t, "terraform/"+filepath.Dir(page)) {
			between := regexp.MustCompile(`(?s)(<!-- ` + name + ` -->\n).*?(<!-- end -->)`)
			if !between.MatchString(want) {
				t.Errorf("%s has no table <!-- %s --> ... <!-- end -->", page, name)
			}
			want = between.ReplaceAllString(want, "${1}\n"+strings.ReplaceAll(table, "$", "$$")+"\n${2}")
		}
		switch {
		case want == string(text):
		case *update:
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil { //nolint:gosec // a page is public
				t.Fatal(err)
			}
		default:
			t.Errorf("%s does not show the variables and outputs; run go test ./terraform -run Pages -update", page)
		}
	}
}

// Every variable and output says what it is.
func TestVariablesAndOutputsAreDescribed(t *testing.T) {
	t.Parallel()
	for _, dir := range folders(t) {
		for _, text := range read(t, dir, "*.tf") {
			sections(text, block, func(name []string, body string) {
				if a := arguments(body); a["description"] == "" || a["type"] == "" {
					t.Errorf("%s: variable %s has no description or no type", dir, name[1])
				}
			})
			sections(text, anOutput, func(name []string, body string) {
				if arguments(body)["description"] == "" {
					t.Errorf("%s: output %s has no description", dir, name[1])
				}
			})
		}
	}
}
