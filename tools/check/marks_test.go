package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// source writes a test file and returns the folder that holds it.
func source(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pkg"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pkg", "a_test.go"), []byte("package a\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestStepFindsItsTests(t *testing.T) {
	t.Parallel()
	found, err := findMarks(source(t, `
func TestA(t *testing.T) { need.Step(t, "kills") }
func TestB(t *testing.T) { t.Parallel(); need.Step(t, "kills") }
func TestC(t *testing.T) { need.Step(t, "fleets") }
func TestD(t *testing.T) {}
`))
	if err != nil {
		t.Fatal(err)
	}
	packages, pattern := found.packages("kills")
	if len(packages) != 1 || packages[0] != "./pkg" || pattern != "^(TestA|TestB)$" {
		t.Errorf("got %v and %s, want ./pkg and the two tests", packages, pattern)
	}
}

func TestMarkThatNoStepWouldFindIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"in a helper":         `func helper(t *testing.T) { need.Step(t, "kills") }`,
		"without a literal":   `func TestA(t *testing.T) { need.Step(t, name) }`,
		"of a suite's method": `func (s suite) TestA(t *testing.T) { need.Step(t, "kills") }`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := findMarks(source(t, text)); err == nil || !strings.Contains(err.Error(), "a_test.go:2") {
				t.Errorf("error = %v, want one that names the line", err)
			}
		})
	}
}
