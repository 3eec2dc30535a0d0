package tfconfig

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Module has the resources of Carillon in one directory, and the problems of their syntax.
type Module struct {
	Resources []*Resource
	Problems  []Problem
}

// Problem is a problem in a file.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Warning is true if it is allowed but probably a mistake.
	Warning bool `json:"warning"`
	// Code is one of the codes of this package, or of the API.
	Code string `json:"code"`
	// Resource is the address of the resource, empty outside of one.
	Resource string `json:"resource,omitempty"`
	Message  string `json:"message"`
}

// Codes of syntax problems. All other codes are those of the API.
const (
	CodeSyntax   = "hcl_syntax"    // not HCL
	CodeForm     = "hcl_form"      // an attribute is written as a block or the other way round
	CodeUnknown  = "hcl_unknown"   // no such attribute or block
	CodeReadOnly = "hcl_read_only" // only the server sets it
	CodeType     = "hcl_type"      // a value of another type
	CodeTwice    = "hcl_twice"     // given twice
	CodeNotRead  = "hcl_not_read"  // a file in another syntax
)

// Load reads the files of one directory. The error is about reading them; their problems are in the module. Paths in
// the module begin with dir.
func Load(dir string) (*Module, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	l := loader{module: &Module{}, variables: map[string]cty.Value{}, locals: map[string]hcl.Expression{}}
	given := map[string][]byte{} // values of variables, by file
	for _, entry := range entries {
		name, path := entry.Name(), filepath.Join(dir, entry.Name())
		if entry.IsDir() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
			continue
		}
		isValues := name == "terraform.tfvars" || strings.HasSuffix(name, ".auto.tfvars")
		switch {
		case strings.HasSuffix(name, ".tf.json") || strings.HasSuffix(name, ".tfvars.json"):
			notRead := problemAt(hcl.Range{Filename: path, Start: hcl.InitialPos}, CodeNotRead, "JSON syntax is not read; only HCL is")
			notRead.Warning = true
			l.module.add("", notRead)
			continue
		case !strings.HasSuffix(name, ".tf") && !isValues:
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if isValues {
			given[path] = text
			continue
		}
		l.file(path, text)
	}
	l.values(given)
	l.resources()
	return l.module, nil
}

// Directories returns dir and the directories below it that contain Terraform files, without hidden ones, such as the
// working directory of Terraform.
func Directories(dir string) ([]string, error) {
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case !entry.IsDir() && (strings.HasSuffix(path, ".tf") || strings.HasSuffix(path, ".tf.json")):
			found[filepath.Dir(path)] = true
		}
		return nil
	})
	return slices.Sorted(maps.Keys(found)), err
}

// loader collects the declarations in the files of a module.
type loader struct {
	module    *Module
	variables map[string]cty.Value
	locals    map[string]hcl.Expression
	blocks    []*hclsyntax.Block // resources of Carillon
}

func problemAt(at hcl.Range, code, format string, args ...any) Problem {
	return Problem{File: at.Filename, Line: at.Start.Line, Column: at.Start.Column, Code: code, Message: fmt.Sprintf(format, args...)}
}

func (m *Module) add(resource string, problem Problem) {
	problem.Resource = resource
	m.Problems = append(m.Problems, problem)
}

// diagnostics reports the diagnostics of HCL for a file.
func (l *loader) diagnostics(path string, diags hcl.Diagnostics) {
	for _, d := range diags.Errs() {
		one, ok := d.(*hcl.Diagnostic) //nolint:errorlint // Errs returns nothing else
		if !ok || one.Subject == nil {
			l.module.add("", problemAt(hcl.Range{Filename: path, Start: hcl.InitialPos}, CodeSyntax, "%v", d))
			continue
		}
		l.module.add("", problemAt(*one.Subject, CodeSyntax, "%s: %s", one.Summary, one.Detail))
	}
}

// file collects the declarations of one file.
func (l *loader) file(path string, text []byte) {
	parsed, diags := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
	l.diagnostics(path, diags)
	body, ok := parsed.Body.(*hclsyntax.Body)
	if !ok {
		return
	}
	for _, block := range body.Blocks {
		switch {
		case block.Type == "locals":
			for name, attribute := range block.Body.Attributes {
				l.locals[name] = attribute.Expr
			}
		case block.Type == "variable" && len(block.Labels) == 1:
			l.variables[block.Labels[0]] = cty.DynamicVal // without a default, and for null, which a caller replaces
			if attribute := block.Body.Attributes["default"]; attribute != nil {
				if value, diags := attribute.Expr.Value(nil); !diags.HasErrors() && !value.IsNull() {
					l.variables[block.Labels[0]] = value
				}
			}
		case block.Type == "resource" && len(block.Labels) == 2 && Schemas()[block.Labels[0]] != nil:
			l.blocks = append(l.blocks, block)
		}
	}
}

// values reads the files with values that Terraform loads automatically: terraform.tfvars, then the others by name.
func (l *loader) values(files map[string][]byte) {
	paths := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		first := func(path string) string { return strings.Replace(filepath.Base(path), "terraform.tfvars", "", 1) }
		return strings.Compare(first(a), first(b))
	})
	for _, path := range paths {
		parsed, diags := hclsyntax.ParseConfig(files[path], path, hcl.InitialPos)
		l.diagnostics(path, diags)
		attributes, _ := parsed.Body.JustAttributes()
		for name, attribute := range attributes {
			if value, diags := attribute.Expr.Value(nil); !diags.HasErrors() {
				l.variables[name] = value
			}
		}
	}
}
