package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// folder has the measures of one package of the product.
type folder struct {
	files, lines, exported int
	headers                int             // lines from the package clause to the end of the imports
	named                  map[string]int  // occurrences of each identifier in the package, with its declaration
	functions              map[string]bool // unexported functions and methods; false: several have the name
}

// oneUse returns the functions that no other package can call and that this package uses at one place.
func (f *folder) oneUse() (names []string) {
	for name, alone := range f.functions {
		if alone && f.named[name] == 2 {
			names = append(names, name)
		}
	}
	return names
}

// house has the measures of the product: Go code other than tests and their helpers.
type house struct {
	folders    map[string]*folder
	complexity []int          // cyclomatic, of each function
	complex    map[string]int // functions above the bound, with their place
	wide       []string       // structs with more than maxFields fields
	long       []string       // functions with maxParameters parameters or more
}

func measure(root string) (*house, error) {
	h := &house{folders: map[string]*folder{}, complex: map[string]int{}}
	for _, top := range []string{"dispatcher", "provider", "lambda", "worker", "migrations"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			name := entry.Name()
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (name == "testdata" || strings.HasSuffix(name, "test") || name == "simulate"):
				return filepath.SkipDir
			case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			short, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return h.file(path, filepath.ToSlash(short))
		})
		if err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *house) file(path, name string) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := name[:strings.LastIndexByte(name, '/')]
	if h.folders[dir] == nil {
		h.folders[dir] = &folder{named: map[string]int{}, functions: map[string]bool{}}
	}
	of := h.folders[dir]
	of.files++
	of.lines += set.File(file.Pos()).LineCount()
	of.headers += header(set, file)
	ast.Inspect(file, func(node ast.Node) bool {
		if id, ok := node.(*ast.Ident); ok {
			of.named[id.Name]++
		}
		return true
	})
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if !decl.Name.IsExported() {
				_, twice := of.functions[decl.Name.Name]
				of.functions[decl.Name.Name] = !twice
			}
			if decl.Recv == nil && decl.Name.IsExported() {
				of.exported++
			}
			h.function(fmt.Sprintf("%s:%d %s", name, set.Position(decl.Pos()).Line, decl.Name.Name), decl)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				h.spec(of, name, spec)
			}
		}
	}
	return nil
}

// header counts the lines from the package clause to the end of the imports.
func header(set *token.FileSet, file *ast.File) int {
	end := file.Name.End()
	for _, decl := range file.Decls {
		if imports, ok := decl.(*ast.GenDecl); ok && imports.Tok == token.IMPORT {
			end = imports.End()
		}
	}
	return set.Position(end).Line - set.Position(file.Package).Line + 1
}

func (h *house) spec(of *folder, name string, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, id := range spec.Names {
			if id.IsExported() {
				of.exported++
			}
		}
	case *ast.TypeSpec:
		if spec.Name.IsExported() {
			of.exported++
		}
		if fields, ok := spec.Type.(*ast.StructType); ok && count(fields.Fields) > maxFields {
			h.wide = append(h.wide, name+" "+spec.Name.Name)
		}
	}
}

func (h *house) function(place string, f *ast.FuncDecl) {
	if count(f.Type.Params) >= maxParameters {
		h.long = append(h.long, place)
	}
	n := complexity(f)
	h.complexity = append(h.complexity, n)
	if n > maxComplexity {
		h.complex[place] = n
	}
}

// count returns how many fields or parameters a list declares.
func count(list *ast.FieldList) (n int) {
	for _, field := range list.List {
		n += max(len(field.Names), 1)
	}
	return n
}

// complexity is cyclomatic: 1, and 1 for each branch, loop, case with a condition, && and ||.
func complexity(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// totals returns the lines and files of all folders.
func (h *house) totals() (lines, files int) {
	for _, f := range h.folders {
		lines += f.lines
		files += f.files
	}
	return lines, files
}

// shares returns two percentages: of functions that are used at one place, and of lines that are headers.
func (h *house) shares() (oneUse, headers float64) {
	lines, _ := h.totals()
	for _, f := range h.folders {
		oneUse += float64(len(f.oneUse()))
		headers += float64(f.headers)
	}
	return 100 * oneUse / float64(len(h.complexity)), 100 * headers / float64(lines)
}

// ninetieth returns the 90th percentile of complexity.
func (h *house) ninetieth() int {
	sorted := slices.Sorted(slices.Values(h.complexity))
	return sorted[len(sorted)*9/10]
}

func (h *house) print(out io.Writer) {
	lines, files := h.totals()
	fmt.Fprintf(out, "product: %d lines in %d files of %d folders\n", lines, files, len(h.folders))
	fmt.Fprintf(out, "functions: %d, complexity of nine in ten at most %d, above %d: %d\n", len(h.complexity), h.ninetieth(),
		maxComplexity, len(h.complex))
	fmt.Fprintf(out, "structs with more than %d fields: %d; functions with %d parameters or more: %d\n", maxFields, len(h.wide),
		maxParameters, len(h.long))
	oneUse, headers := h.shares()
	fmt.Fprintf(out, "functions named at one place: %.1f %%; lines of headers: %.1f %%\n", oneUse, headers)
	for _, name := range slices.Sorted(maps.Keys(h.folders)) {
		if f := h.folders[name]; f.files > maxFiles || f.exported > maxExported {
			fmt.Fprintf(out, "%s: %d files, %d exported names\n", name, f.files, f.exported)
		}
	}
}
