package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// marks are the tests that call need.Step, by step and by the folder of their package.
type marks map[string]map[string][]string

// findMarks reads the test files below root. A mark is a call of need.Step with a literal, directly in a
// top-level test. The marks are found without running tests, so that a step runs exactly its own tests.
func findMarks(root string) (marks, error) {
	found := marks{}
	err := eachTestFile(root, func(file, rel string) error { return found.readFile(file, path.Dir(rel)) })
	return found, err
}

func (m marks) readFile(file, folder string) error {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range parsed.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		for _, call := range callsOfStep(function.Body) {
			step, err := literal(call)
			if err == nil && (function.Recv != nil || !strings.HasPrefix(function.Name.Name, "Test")) {
				err = fmt.Errorf("%s is not a test: need.Step must stand in the test itself", function.Name.Name)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", files.Position(call.Pos()), err)
			}
			if m[step] == nil {
				m[step] = map[string][]string{}
			}
			m[step][folder] = append(m[step][folder], function.Name.Name)
		}
	}
	return nil
}

// callsOfStep returns the calls of need.Step.
func callsOfStep(body *ast.BlockStmt) (calls []*ast.CallExpr) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Step" {
				if pkg, ok := f.X.(*ast.Ident); ok && pkg.Name == "need" {
					calls = append(calls, call)
				}
			}
		}
		return true
	})
	return calls
}

// literal returns the name of the step in a call of need.Step.
func literal(call *ast.CallExpr) (string, error) {
	if len(call.Args) == 2 {
		if text, ok := call.Args[1].(*ast.BasicLit); ok && text.Kind == token.STRING {
			return strconv.Unquote(text.Value)
		}
	}
	return "", fmt.Errorf("need.Step needs the name of a step as a literal")
}

// packages returns the packages with tests of a step, as arguments of "go test", and the pattern of these tests.
func (m marks) packages(step string) (packages []string, pattern string) {
	var tests []string
	for folder, names := range m[step] {
		packages = append(packages, "./"+folder)
		tests = append(tests, names...)
	}
	slices.Sort(packages)
	slices.Sort(tests)
	return packages, "^(" + strings.Join(slices.Compact(tests), "|") + ")$"
}
