package provider_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/carillon-dev/carillon/provider"
)

// update writes the pages instead of comparing them: go test ./provider -run Pages -update.
var update = flag.Bool("update", false, "write docs/provider from the schema and examples")

const (
	docsDir     = "../docs/provider"
	examplesDir = "../examples"
)

func TestPagesMatchSchemaAndExamples(t *testing.T) {
	t.Parallel()
	for name, page := range pages(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(docsDir, name)
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(page, contents(t, file)); diff != "" {
				t.Errorf("page differs from schema and examples; write it with -update (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryAttributeIsDescribed(t *testing.T) {
	t.Parallel()
	for name, schema := range schemas(t) {
		walk(schema.Block.Attributes, name, func(path string, a *tfprotov6.SchemaAttribute) {
			if !strings.HasSuffix(a.Description, ".") {
				t.Errorf("%s: description %q is not a sentence", path, a.Description)
			}
			if a.Optional && !strings.Contains(a.Description, "Default: ") {
				t.Errorf("%s is optional, but its description names no default: %q", path, a.Description)
			}
		})
	}
}

// schemas returns the schemas as Terraform gets them, by the name of their page without extension.
func schemas(t *testing.T) map[string]*tfprotov6.Schema {
	t.Helper()
	server := providerserver.NewProtocol6(provider.New("test")())()
	got, err := server.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil || len(got.Diagnostics) > 0 {
		t.Fatalf("schema: %v, %v", err, got.Diagnostics)
	}
	all := map[string]*tfprotov6.Schema{"index": got.Provider}
	for name, schema := range got.ResourceSchemas {
		all["resources/"+strings.TrimPrefix(name, "carillon_")] = schema
	}
	for name, schema := range got.DataSourceSchemas {
		all["data-sources/"+strings.TrimPrefix(name, "carillon_")] = schema
	}
	return all
}

func walk(attributes []*tfprotov6.SchemaAttribute, path string, visit func(string, *tfprotov6.SchemaAttribute)) {
	for _, a := range attributes {
		visit(path+"."+a.Name, a)
		if a.NestedType != nil {
			walk(a.NestedType.Attributes, path+"."+a.Name, visit)
		}
	}
}

// pages renders every page, by its path under docsDir.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, schema := range schemas(t) {
		kind, short, nested := strings.Cut(name, "/")
		full, example := "carillon_"+short, filepath.Join(examplesDir, kind, "carillon_"+short, "resource.tf")
		title := fmt.Sprintf("%s (%s)", full, strings.TrimSuffix(strings.ReplaceAll(kind, "-", " "), "s"))
		switch {
		case !nested:
			title, example = "The Carillon provider", filepath.Join(examplesDir, "provider", "provider.tf")
		case kind == "data-sources":
			example = filepath.Join(examplesDir, kind, full, "data-source.tf")
		}
		var b strings.Builder
		b.WriteString("<!-- Generated from the schema and the examples: go test ./provider -run Pages -update -->\n\n")
		fmt.Fprintf(&b, "# %s\n\n%s\n\n## Example\n\n```terraform\n%s```\n", title, schema.Block.Description, contents(t, example))
		writeAttributes(&b, schema.Block.Attributes)
		if kind == "resources" {
			fmt.Fprintf(&b, "\n## Import\n\n```shell\n%s```\n", contents(t, filepath.Join(examplesDir, kind, full, "import.sh")))
		}
		all[name+".md"] = b.String()
	}
	return all
}

// writeAttributes writes the arguments before the read-only attributes.
func writeAttributes(b *strings.Builder, attributes []*tfprotov6.SchemaAttribute) {
	for _, part := range []struct {
		title string
		holds func(*tfprotov6.SchemaAttribute) bool
	}{
		{"Arguments", func(a *tfprotov6.SchemaAttribute) bool { return a.Required || a.Optional }},
		{"Read-only attributes", func(a *tfprotov6.SchemaAttribute) bool { return !a.Required && !a.Optional }},
	} {
		if slices.ContainsFunc(attributes, part.holds) {
			fmt.Fprintf(b, "\n## %s\n\n", part.title)
			writeList(b, attributes, part.holds, "")
		}
	}
}

func writeList(b *strings.Builder, attributes []*tfprotov6.SchemaAttribute, holds func(*tfprotov6.SchemaAttribute) bool, indent string) {
	sorted := slices.Clone(attributes)
	slices.SortFunc(sorted, func(x, y *tfprotov6.SchemaAttribute) int {
		if x.Required != y.Required {
			return map[bool]int{true: -1, false: 1}[x.Required]
		}
		return strings.Compare(x.Name, y.Name)
	})
	for _, a := range sorted {
		if !holds(a) {
			continue
		}
		fmt.Fprintf(b, "%s- `%s` (%s) %s\n", indent, a.Name, kindOf(a), a.Description)
		if a.NestedType != nil {
			writeList(b, a.NestedType.Attributes, func(*tfprotov6.SchemaAttribute) bool { return true }, indent+"  ")
		}
	}
}

// kindOf returns the type of an attribute, and whether it is required, optional or sensitive.
func kindOf(a *tfprotov6.SchemaAttribute) string {
	kind := ""
	switch {
	case a.NestedType != nil:
		kind = strings.ToLower(a.NestedType.Nesting.String()) + " of objects"
		if a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeSingle {
			kind = "object"
		}
	case a.Type.Is(tftypes.Map{ElementType: tftypes.String}):
		kind = "map of strings"
	case a.Type.Is(tftypes.List{}):
		kind = "list of " + strings.ToLower(strings.TrimPrefix(a.Type.(tftypes.List).ElementType.String(), "tftypes.")) + "s"
	default:
		kind = map[string]string{"tftypes.String": "string", "tftypes.Number": "number", "tftypes.Bool": "bool"}[a.Type.String()]
	}
	for _, mark := range []struct {
		holds bool
		word  string
	}{{a.Required, "required"}, {a.Optional, "optional"}, {a.Sensitive, "sensitive"}} {
		if mark.holds {
			kind += ", " + mark.word
		}
	}
	return kind
}

func contents(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
