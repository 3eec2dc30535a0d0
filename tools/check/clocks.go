package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// findClocks reports real time in tests: time.Since, time.Until, and time.After with less than leastDeadline.
// Tests check what happened and not how long it took, because a busy machine may take any time. A
// testing/synctest bubble has virtual time, which is allowed. So is a line that says why it needs the clock:
//
//	took := time.Since(began) // wall clock: the drain has a timeout of its own, and this bound is an hour
//
// test/bench and test/soak measure time on purpose.
func findClocks(root string) (found []string, err error) {
	err = eachTestFile(root, func(path, rel string) error {
		if strings.HasPrefix(rel, "test/bench/") || strings.HasPrefix(rel, "test/soak/") {
			return nil
		}
		more, err := clocksOf(path)
		for _, one := range more {
			found = append(found, rel+":"+one)
		}
		return err
	})
	return found, err
}

// eachTestFile calls do for each file of Go tests below root, and of the conformance suite, with its path from there.
func eachTestFile(root string, do func(path, rel string) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".go") && strings.Contains(rel, "/storetest/") {
			return do(path, rel)
		}
		return nil
	})
}

// leastDeadline is the shortest time that a test may wait for an event.
const leastDeadline = time.Minute

// clocksOf reports the clocks of one file, as "line: problem".
func clocksOf(path string) (found []string, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	explained := map[int]bool{}
	for _, group := range parsed.Comments {
		for _, comment := range group.List {
			if reason, ok := strings.CutPrefix(comment.Text, "// wall clock: "); ok && reason != "" {
				explained[files.Position(comment.Pos()).Line] = true
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		line := files.Position(call.Pos()).Line
		switch name := calledOf(call); {
		case name == "synctest.Test":
			return false // its time is virtual
		case explained[line]:
		case name == "time.Since" || name == "time.Until":
			found = append(found, fmt.Sprintf("%d: %s measures real time; wait for a state, compare orders or counts, "+
				"or say why after // wall clock:", line, name))
		case name == "time.After" && shorter(call.Args[0], leastDeadline):
			found = append(found, fmt.Sprintf("%d: time.After gives up after less than %s; what must happen may take that long "+
				"on a busy machine", line, leastDeadline))
		}
		return true
	})
	return found, nil
}

// calledOf returns "package.function" for a call of another package, or "".
func calledOf(call *ast.CallExpr) string {
	if f, ok := call.Fun.(*ast.SelectorExpr); ok {
		if pkg, ok := f.X.(*ast.Ident); ok {
			return pkg.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// shorter reports whether an expression such as 5*time.Second is a constant below least. It cannot judge others.
func shorter(expression ast.Expr, least time.Duration) bool {
	units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
	switch e := expression.(type) {
	case *ast.SelectorExpr:
		unit, ok := units[e.Sel.Name]
		return ok && unit < least
	case *ast.BinaryExpr:
		number, isNumber := e.X.(*ast.BasicLit)
		unit, isUnit := e.Y.(*ast.SelectorExpr)
		if !isNumber || !isUnit || e.Op != token.MUL {
			return false
		}
		n, err := strconv.Atoi(number.Value)
		return err == nil && units[unit.Sel.Name] > 0 && time.Duration(n)*units[unit.Sel.Name] < least
	}
	return false
}
