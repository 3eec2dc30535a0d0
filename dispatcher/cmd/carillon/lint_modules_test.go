package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A called module is checked as it is called, and not on its own, where its app is missing.
func TestLintChecksModulesAsTheyAreCalled(t *testing.T) {
	t.Parallel()
	dir := directory(t, "resource \"carillon_app\" \"a\" {\n  name = \"billing\"\n  default_timezone = \"Europe/Berlin\"\n}\n"+
		"module \"many\" {\n  source = \"./job\"\n  for_each = { a = \"0 0 8 * * ?\", b = \"0 0 8 30 2 ?\" }\n"+
		"  name = each.key\n  expression = each.value\n}\n")
	const module = `variable "name" {}
variable "expression" {}
resource "carillon_job" "j" {
  app  = "billing"
  name = var.name
  target {
    webhook { url = "https://example.com/" }
  }
  trigger {
    name       = "t"
    expression = var.expression
  }
}
`
	if err := os.Mkdir(filepath.Join(dir, "job"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "job", "main.tf"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := carillon(t, nil, "lint", dir)
	want := filepath.Join(dir, "job", "main.tf") + `:11:18: module.many["b"].carillon_job.j: expression "0 0 8 30 2 ?": February never`
	if code != exitNegative || strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, want) {
		t.Errorf("exit %d, want %d, and output\n%s%swant only %s…", code, exitNegative, out, errs, want)
	}
}
