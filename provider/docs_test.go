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
		walk(argumentsOf(schema.Block), name, func(path string, a argument) {
			if !strings.HasSuffix(a.description, ".") {
				t.Errorf("%s: description %q is not a sentence", path, a.description)
			}
			if a.optional && !strings.Contains(a.description, "Default: ") {
				t.Errorf("%s is optional, but its description names no default: %q", path, a.description)
			}
		})
	}
}

// schemas returns the schemas as Terraform gets them, by the name of their page without extension.
func schemas(t *testing.T) map[string]*tfprotov6.Schema {
	t.Helper()
	server := provider.NewServer(context.Background(), "test")
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

func walk(arguments []argument, path string, visit func(string, argument)) {
	for _, a := range arguments {
		visit(path+"."+a.name, a)
		walk(a.inner, path+"."+a.name, visit)
	}
}

// argument is an attribute or a nested block on a page.
type argument struct {
	name, description, kind       string
	required, optional, sensitive bool
	inner                         []argument
}

// argumentsOf returns the contents of a block, required ones first.
func argumentsOf(block *tfprotov6.SchemaBlock) []argument {
	var all []argument
	for _, a := range block.Attributes {
		one := argument{
			name: a.Name, description: a.Description, kind: kindOf(a), required: a.Required, optional: a.Optional, sensitive: a.Sensitive,
		}
		if a.NestedType != nil { // as in data sources
			one.inner = argumentsOf(&tfprotov6.SchemaBlock{Attributes: a.NestedType.Attributes})
		}
		all = append(all, one)
	}
	for _, b := range block.BlockTypes {
		all = append(all, argument{
			name: b.TypeName, description: b.Block.Description, inner: argumentsOf(b.Block),
			kind: map[tfprotov6.SchemaNestedBlockNestingMode]string{
				tfprotov6.SchemaNestedBlockNestingModeSingle: "block",
				tfprotov6.SchemaNestedBlockNestingModeList:   "any number of blocks",
			}[b.Nesting],
			required: b.MinItems > 0, optional: b.MinItems == 0,
		})
	}
	slices.SortFunc(all, func(x, y argument) int {
		if x.required != y.required {
			return map[bool]int{true: -1, false: 1}[x.required]
		}
		return strings.Compare(x.name, y.name)
	})
	return all
}

// pages renders every page, by its path below docsDir.
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
		arguments := argumentsOf(schema.Block)
		writeArguments(&b, arguments)
		writeSecret(&b, arguments)
		if kind == "resources" {
			fmt.Fprintf(&b, "\n## Import\n\n```shell\n%s```\n", contents(t, filepath.Join(examplesDir, kind, full, "import.sh")))
		}
		all[name+".md"] = b.String()
	}
	for name, f := range functions(t) {
		all["functions/"+name+".md"] = functionPage(name, f, contents(t, filepath.Join(examplesDir, "functions", name, "function.tf")))
	}
	return all
}

// functions returns the functions as Terraform gets them.
func functions(t *testing.T) map[string]*tfprotov6.Function {
	t.Helper()
	got, err := provider.NewServer(t.Context(), "test").GetFunctions(t.Context(), &tfprotov6.GetFunctionsRequest{})
	if err != nil || len(got.Diagnostics) > 0 {
		t.Fatalf("functions: %v, %v", err, got.Diagnostics)
	}
	return got.Functions
}

func functionPage(name string, f *tfprotov6.Function, example string) string {
	var b strings.Builder
	b.WriteString("<!-- Generated from the schema and the examples: go test ./provider -run Pages -update -->\n\n")
	fmt.Fprintf(&b, "# %s (function)\n\n%s. %s\n\nNeeds Terraform 1.8 or OpenTofu 1.7.\n\n", name, f.Summary, f.Description)
	fmt.Fprintf(&b, "## Example\n\n```terraform\n%s```\n\n## Arguments\n\n", example)
	for i, p := range f.Parameters {
		kind := strings.ToLower(strings.TrimPrefix(p.Type.String(), "tftypes."))
		fmt.Fprintf(&b, "%d. `%s` (%s) %s\n", i+1, p.Name, kind, p.Description)
	}
	return b.String()
}

// writeArguments writes the arguments before the read-only attributes.
func writeArguments(b *strings.Builder, arguments []argument) {
	for _, part := range []struct {
		title string
		holds func(argument) bool
	}{
		{"Arguments", func(a argument) bool { return a.required || a.optional }},
		{"Read-only attributes", func(a argument) bool { return !a.required && !a.optional }},
	} {
		if slices.ContainsFunc(arguments, part.holds) {
			fmt.Fprintf(b, "\n## %s\n\n", part.title)
			writeList(b, arguments, part.holds, "")
		}
	}
}

func writeList(b *strings.Builder, arguments []argument, holds func(argument) bool, indent string) {
	for _, a := range arguments {
		if !holds(a) {
			continue
		}
		kind := a.kind
		for _, mark := range []struct {
			holds bool
			word  string
		}{{a.required, "required"}, {a.optional, "optional"}, {a.sensitive, "sensitive"}} {
			if mark.holds {
				kind += ", " + mark.word
			}
		}
		if isSecret(a) {
			fmt.Fprintf(b, "%s- `%s` (%s) %s See [secrets](#secrets).\n", indent, a.name, kind, a.description)
			continue
		}
		fmt.Fprintf(b, "%s- `%s` (%s) %s\n", indent, a.name, kind, a.description)
		if !strings.HasPrefix(a.description, "As `") { // the page has it elsewhere
			writeList(b, a.inner, func(argument) bool { return true }, indent+"  ")
		}
	}
}

// isSecret reports whether an argument is a secret. A job has eight of them, which one part of the page describes.
func isSecret(a argument) bool {
	return slices.ContainsFunc(a.inner, func(inner argument) bool { return inner.name == "value_version" })
}

// writeSecret describes the secrets of a page, if it has any.
func writeSecret(b *strings.Builder, arguments []argument) {
	var found []argument
	walk(arguments, "", func(_ string, a argument) {
		if isSecret(a) {
			found = a.inner
		}
	})
	if found != nil {
		b.WriteString("\n## Secrets\n\nEach of the blocks that hold a secret has these arguments:\n\n")
		writeList(b, found, func(argument) bool { return true }, "")
	}
}

// kindOf returns the type of an attribute.
func kindOf(a *tfprotov6.SchemaAttribute) string {
	switch {
	case a.NestedType != nil && a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeSingle:
		return "object"
	case a.NestedType != nil:
		return strings.ToLower(a.NestedType.Nesting.String()) + " of objects"
	case a.Type.Is(tftypes.Map{ElementType: tftypes.String}):
		return "map of strings"
	case a.Type.Is(tftypes.List{}) && a.Type.(tftypes.List).ElementType.Is(tftypes.Object{}):
		return "list of objects"
	case a.Type.Is(tftypes.List{}):
		return "list of " + strings.ToLower(strings.TrimPrefix(a.Type.(tftypes.List).ElementType.String(), "tftypes.")) + "s"
	}
	return map[string]string{"tftypes.String": "string", "tftypes.Number": "number", "tftypes.Bool": "bool"}[a.Type.String()]
}

func contents(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
