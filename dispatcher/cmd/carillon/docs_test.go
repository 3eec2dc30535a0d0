package main

import (
	"os"
	"path/filepath"
	"regexp"
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
		if name := "`carillon " + command.Path() + "`"; !strings.Contains(page, name) {
			t.Errorf("docs/reference/cli.md does not list the command %s", name)
		}
		for _, group := range command.AllFlags(true) {
			for _, flag := range group {
				if !strings.Contains(page, "--"+flag.Name) {
					t.Errorf("docs/reference/cli.md does not list the flag --%s of carillon %s", flag.Name, command.Path())
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

func TestMetricsReferenceListsEveryFamily(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "metrics.db")
	token := newToken(t, database)
	n := startNode(t, database, token)
	defer n.terminate()
	body := n.get(t, "/metrics")
	page := reference(t, "metrics.md")
	families := regexp.MustCompile(`(?m)^# TYPE (carillon_\w+)`).FindAllStringSubmatch(body, -1)
	if len(families) < 15 {
		t.Errorf("the node serves %d metric families of its own, want fifteen or more", len(families))
	}
	for _, family := range families {
		if !strings.Contains(page, "`"+family[1]+"`") {
			t.Errorf("docs/reference/metrics.md does not explain `%s`", family[1])
		}
	}
}
