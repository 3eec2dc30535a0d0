package tfconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// directory returns a new directory with files of these names and texts.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBlocksHaveNames(t *testing.T) {
	t.Parallel()
	const job = "variable \"v\" {}\nresource \"carillon_job\" \"j\" {\n app = \"a\"\n name = \"j\"\n" +
		" target {\n webhook { url = \"https://example.com/\" }\n}\n%s\n}\n"
	const rest = "\n expression = \"rate(5m)\"\n}\n"
	dynamic := func(each, name string) string {
		return "dynamic \"trigger\" {\n for_each = " + each + "\n content {\n name = " + name + rest + "}\n"
	}
	const missing = `main.tf:8:1: carillon_job.j: error: trigger has no name; write name = "NAME" inside (required)`
	for name, tt := range map[string]struct{ triggers, want string }{
		"a name":    {"trigger {\n name = \"a\"" + rest, ""},
		"a number":  {"trigger {\n name = 3" + rest, ""},
		"unknown":   {"trigger {\n name = var.v" + rest, ""},
		"no name":   {"trigger {" + rest, missing},
		"misspelt":  {"trigger {\n nam = \"a\"" + rest, `error: trigger has no "nam"; did you mean name? (hcl_unknown)`},
		"null":      {"trigger {\n name = null" + rest, missing},
		"a list":    {"trigger {\n name = [\"a\"]" + rest, "main.tf:9:9: carillon_job.j: error: name is not a text (hcl_type)"},
		"a label":   {"trigger \"a\" {" + rest, `main.tf:8:9: carillon_job.j: error: trigger has no label; write name = "a" inside (hcl_form)`},
		"an object": {"trigger = {}", `error: trigger is a block: write trigger { … } with name = "NAME" for each, without = (hcl_form)`},
		"given twice": {"trigger {\n name = \"a\"" + rest + "trigger {\n name = \"a\"" + rest, "main.tf:13:9: carillon_job.j: " +
			"error: trigger \"a\" is given twice, first in line 8; give each a name of its own (hcl_twice)"},
		"dynamic":                   {dynamic(`toset(["a", "b"])`, "trigger.key"), ""},
		"dynamic, of unknown names": {dynamic("[var.v]", "trigger.value") + "trigger {\n name = \"a\"" + rest, ""},
		"dynamic, given twice":      {dynamic("[1, 2]", `"a"`), `main.tf:11:9: carillon_job.j: error: trigger "a" is given twice`},
		"dynamic, with labels": {strings.Replace(dynamic(`toset(["a"])`, "trigger.key"), " content", " labels = [trigger.key]\n content", 1),
			"main.tf:10:2: carillon_job.j: error: trigger has no labels; write name = … in content (hcl_form)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := lint(t, directory(t, map[string]string{"main.tf": fmt.Sprintf(job, tt.triggers)}))
			if !strings.Contains(found, tt.want) || strings.Count(found, "\n") > 1 || tt.want == "" && found != "" {
				t.Errorf("found\n%swant only %q", found, tt.want)
			}
		})
	}
}
