package tfconfig_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// update writes the golden files instead of comparing them.
var update = flag.Bool("update", false, "write the golden files of testdata")

// now is the time at which these tests lint modules.
var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// golden compares a text with a file of testdata.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s; write it with -update (-want +got):\n%s", file, diff)
	}
}

// lint returns the problems of a directory, one in each line.
func lint(t *testing.T, dir string) string {
	t.Helper()
	module, err := tfconfig.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range module.Lint(now) {
		kind := "error"
		if p.Warning {
			kind = "warning"
		}
		file, err := filepath.Rel(dir, p.File)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s: %s: %s (%s)\n", file, p.Line, p.Column, p.Resource, kind, p.Message, p.Code)
	}
	return b.String()
}

func TestLintNamesPlaceRuleAndRemedy(t *testing.T) {
	t.Parallel()
	golden(t, filepath.Join("testdata", "lint", "problems.txt"), lint(t, filepath.Join("testdata", "lint")))
}

func TestExamplesAreClean(t *testing.T) {
	t.Parallel()
	dirs, err := tfconfig.Directories(filepath.Join("..", "..", "examples"))
	if err != nil || len(dirs) < 5 {
		t.Fatalf("examples: %v, %v", dirs, err)
	}
	for _, dir := range dirs {
		if found := lint(t, dir); found != "" {
			t.Errorf("%s:\n%s", dir, found)
		}
	}
}

func TestOneFile(t *testing.T) {
	t.Parallel()
	const job = `
resource "carillon_job" "j" {
  app  = "a"
  name = "j"
  target {
    webhook { url = "https://example.com/" }
  }
  trigger {
    name       = "t"
    expression = %s
    timezone   = "UTC"
  }
}
`
	const app = `
resource "carillon_app" "a" {
  name = "a"
  %s
}
`
	for name, tt := range map[string]struct{ files, want map[string]string }{
		"not HCL":        {files: map[string]string{"main.tf": "resource {{"}, want: map[string]string{"hcl_syntax": ""}},
		"JSON syntax":    {files: map[string]string{"main.tf.json": "{}"}, want: map[string]string{"hcl_not_read": "JSON"}},
		"a clean module": {files: map[string]string{"main.tf": fmt.Sprintf(job, `"0 0 8 * * ?"`)}},
		"an expression by a variable's default": {
			files: map[string]string{"main.tf": fmt.Sprintf(job, "var.e"), "v.tf": "variable \"e\" {\n default = \"0 0 0 30 2 ?\"\n}"},
			want:  map[string]string{"cron_never": "February"},
		},
		"terraform.tfvars wins over the default": {
			files: map[string]string{"main.tf": fmt.Sprintf(job, "var.e"), "v.tf": "variable \"e\" {\n default = \"0 0 0 30 2 ?\"\n}",
				"terraform.tfvars": `e = "0 0 8 * * ?"`},
		},
		"a variable without a default is not judged": {files: map[string]string{"main.tf": fmt.Sprintf(job, "var.e")}},
		"locals that need one another": {
			files: map[string]string{"main.tf": fmt.Sprintf(job, "local.b"), "l.tf": "locals {\n b = \"${local.a} 2 ?\"\n a = \"0 0 0 30\"\n}"},
			want:  map[string]string{"cron_never": "February"},
		},
		"an invalid delay": {
			files: map[string]string{"main.tf": strings.Replace(fmt.Sprintf(job, `"0 0 8 * * ?"`), "  trigger",
				"  retry {\n    delays = [\"5s\", \"10\"]\n  }\n  trigger", 1)},
			want: map[string]string{"duration_unit": "main.tf:9:21"},
		},
		"a renamed trigger": {
			files: map[string]string{"main.tf": fmt.Sprintf(job, "\"0 0 8 * * ?\"\n renamed_from = \"u\"")},
		},
		"a trigger renamed from its own name": {
			files: map[string]string{"main.tf": fmt.Sprintf(job, "\"0 0 8 * * ?\"\n renamed_from = \"t\"")},
			want:  map[string]string{"name_taken": "main.tf:11:17"},
		},
		"no zone anywhere": {
			files: map[string]string{"main.tf": strings.Replace(fmt.Sprintf(app+job, "", `"0 0 8 * * ?"`), "    timezone   = \"UTC\"\n", "", 1)},
			want:  map[string]string{"timezone_required": "main.tf:13:3"},
		},
		"the default zone of the app": {
			files: map[string]string{"main.tf": strings.Replace(
				fmt.Sprintf(app+job, `default_timezone = "Europe/Berlin"`, `"0 0 8 * * ?"`), "    timezone   = \"UTC\"\n", "", 1)},
		},
		"an unknown default zone": {
			files: map[string]string{"main.tf": strings.Replace(
				fmt.Sprintf(app+job, `default_timezone = var.zone`, `"0 0 8 * * ?"`), "    timezone   = \"UTC\"\n", "", 1)},
			want: map[string]string{"timezone_required": "warning: timezone is missing"},
		},
		"a wrong default": {
			files: map[string]string{"main.tf": fmt.Sprintf(app+job, `default_timezone = "Mars/Olympus"`, `"0 0 8 * * ?"`)},
			want:  map[string]string{"tz_unknown": "main.tf:4:22"},
		},
		"an acknowledged warning": {
			files: map[string]string{"main.tf": strings.Replace(strings.Replace(fmt.Sprintf(job, `"0 30 2 * * ?"`), "UTC", "Europe/Berlin", 1),
				"  target", "  acknowledge = [\"dst\"]\n  target", 1)},
		},
		"a file read at plan": {files: map[string]string{"main.tf": fmt.Sprintf(job, `file("expression.txt")`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := lint(t, directory(t, tt.files))
			for code, part := range tt.want {
				if !strings.Contains(found, "("+code+")") || !strings.Contains(found, part) {
					t.Errorf("found\n%swant code %s and %q", found, code, part)
				}
			}
			if len(tt.want) == 0 && found != "" {
				t.Errorf("found\n%swant nothing", found)
			}
		})
	}
}
