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
	"github.com/zclconf/go-cty/cty/function"
)

// Module has the resources of Carillon in one directory and the local modules that it calls, and the problems of
// their syntax.
type Module struct {
	Resources []*Resource
	Problems  []Problem
	// Called has the directories of the modules that it calls.
	Called map[string]bool
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
	CodeNotRead  = "hcl_not_read"  // a file in another syntax, or a module that is missing
)

// Load reads the files of one directory, and of the local modules that it calls. The error is about reading the
// directory; problems of the files are in the module. Paths in the module begin with dir.
func Load(dir string) (*Module, error) {
	l := &loader{module: &Module{Called: map[string]bool{}}, root: dir, configs: map[string]*config{}, functions: functionsIn(dir)}
	root := &moduleInstance{loader: l, path: ".", found: map[string]cty.Value{}, calls: map[string]*call{}}
	var err error
	if root.config, err = l.load(root.path); err != nil {
		return nil, err
	}
	root.arguments, root.outer = root.values, root.scope()
	root.read()
	return l.module, nil
}

// load reads the files of one directory, once. path leads there from the root module.
func (l *loader) load(path string) (*config, error) {
	if c, done := l.configs[path]; done {
		return c, nil
	}
	dir := filepath.Join(l.root, path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	c := &config{variables: map[string]variable{}, values: map[string]hcl.Expression{}, locals: map[string]hcl.Expression{},
		outputs: map[string]hcl.Expression{}, modules: map[string]*hclsyntax.Block{}}
	var values []string // files with values of variables
	for _, entry := range entries {
		name, path := entry.Name(), filepath.Join(dir, entry.Name())
		switch {
		case entry.IsDir() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~"):
		case strings.HasSuffix(name, ".tf.json") || strings.HasSuffix(name, ".tfvars.json"):
			notRead := problemAt(hcl.Range{Filename: path, Start: hcl.InitialPos}, CodeNotRead, "JSON syntax is not read; only HCL is")
			notRead.Warning = true
			l.module.add("", notRead)
		case name == "terraform.tfvars":
			values = slices.Insert(values, 0, path)
		case strings.HasSuffix(name, ".auto.tfvars"):
			values = append(values, path)
		case strings.HasSuffix(name, ".tf"):
			body, err := l.parse(path)
			if err != nil {
				return nil, err
			}
			c.declare(body)
		}
	}
	l.configs[path] = c
	return c, l.assign(c, values)
}

// assign reads the values of variables in files; a later one counts.
func (l *loader) assign(c *config, files []string) error {
	for _, file := range files {
		body, err := l.parse(file)
		if err != nil {
			return err
		}
		for name, attribute := range body.Attributes {
			c.values[name] = attribute.Expr
		}
	}
	return nil
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

// loader reads the files of the root module and of those that are called from there.
type loader struct {
	module    *Module
	root      string             // its directory
	configs   map[string]*config // of directories, by the path from the root
	functions map[string]function.Function
}

// config has the declarations in the files of one directory.
type config struct {
	variables map[string]variable
	values    map[string]hcl.Expression // of variables, if it is the root module
	locals    map[string]hcl.Expression
	outputs   map[string]hcl.Expression
	modules   map[string]*hclsyntax.Block // calls
	resources []*hclsyntax.Block          // of Carillon
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

// parse reads one file. What is not HCL is a problem, and the rest of the file counts.
func (l *loader) parse(path string) (*hclsyntax.Body, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	parsed, diags := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
	l.diagnostics(path, diags)
	return parsed.Body.(*hclsyntax.Body), nil //nolint:forcetypeassert // ParseConfig returns nothing else
}

// declare collects the declarations of one file.
func (c *config) declare(body *hclsyntax.Body) {
	for _, block := range body.Blocks {
		switch {
		case block.Type == "locals":
			for name, attribute := range block.Body.Attributes {
				c.locals[name] = attribute.Expr
			}
		case block.Type == "variable" && len(block.Labels) == 1:
			c.variables[block.Labels[0]] = variableOf(block.Body)
		case block.Type == "output" && len(block.Labels) == 1 && block.Body.Attributes["value"] != nil:
			c.outputs[block.Labels[0]] = block.Body.Attributes["value"].Expr
		case block.Type == "module" && len(block.Labels) == 1:
			c.modules[block.Labels[0]] = block
		case block.Type == "resource" && len(block.Labels) == 2 && Schemas()[block.Labels[0]] != nil:
			c.resources = append(c.resources, block)
		}
	}
}
