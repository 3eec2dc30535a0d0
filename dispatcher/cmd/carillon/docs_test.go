package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// reference reads a page of the reference.
func reference(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCLIReferenceListsEveryCommandFlagAndVariable(t *testing.T) {
	t.Parallel()
	page := reference(t, "cli.md")
	parser := must[*kong.Kong](t)(kong.New(&cli{}, kong.Name("carillon")))
	commands := 0
	for _, command := range parser.Model.Leaves(true) {
		commands++
		if name := "`carillon " + pathOf(command) + "`"; !strings.Contains(page, name) {
			t.Errorf("docs/reference/cli.md does not list the command %s", name)
		}
		for _, group := range command.AllFlags(true) {
			for _, flag := range group {
				if !strings.Contains(page, "--"+flag.Name) {
					t.Errorf("docs/reference/cli.md does not list the flag --%s of carillon %s", flag.Name, pathOf(command))
				}
				for _, env := range flag.Envs {
					if !strings.Contains(page, env) {
						t.Errorf("docs/reference/cli.md does not name the variable %s of --%s", env, flag.Name)
					}
				}
			}
		}
	}
	if commands < 20 {
		t.Errorf("found %d commands, want twenty or more", commands)
	}
}
