package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/carillon-dev/carillon/"

// room is a line of the graph: a package, and our packages that it imports.
type room struct {
	name    string
	imports []string
}

var block = regexp.MustCompile("(?ms)^```rooms\n(.*?)^```$")

// graphOf reads the block of the page with lines "room, room: imports". Imports stand above their importers.
func graphOf(page string) ([]room, error) {
	found := block.FindStringSubmatch(page)
	if found == nil {
		return nil, errors.New("there is no block ```rooms")
	}
	var rooms []room
	for line := range strings.Lines(found[1]) {
		names, imports, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			return nil, fmt.Errorf("line %q has no colon between rooms and imports", line)
		}
		for name := range strings.SplitSeq(names, ",") {
			rooms = append(rooms, room{strings.TrimSpace(name), strings.Fields(imports)})
		}
	}
	return rooms, nil
}

// imports returns what each package of the product imports of ours, without its tests, by their names in the graph.
func imports(ctx context.Context, root string) (map[string][]string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Imports", "./dispatcher/...", "./provider/...", "./migrations/...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	all := map[string][]string{}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var one struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if forTests(one.ImportPath) {
			continue
		}
		var ours []string
		for _, path := range one.Imports {
			if strings.HasPrefix(path, module) {
				ours = append(ours, short(path))
			}
		}
		all[short(one.ImportPath)] = ours
	}
}

// forTests reports packages that no program has, and programs, which may import everything.
func forTests(path string) bool {
	return strings.HasSuffix(path, "test") || strings.Contains(path, "test/") || strings.HasSuffix(path, "/simulate") ||
		strings.Contains(path, "/cmd/")
}

// short is the name of a package in the graph: its path below dispatcher, which is the domain's root itself.
func short(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "dispatcher/")
}

// compare returns where the graph is not the one there is, and where an arrow of it points up.
func compare(drawn []room, built map[string][]string) (problems []error) {
	above := map[string]bool{}
	for _, one := range drawn {
		actual, there := built[one.name]
		if !there {
			problems = append(problems, fmt.Errorf("the graph in CONTRIBUTING.md has room %s, which is no package", one.name))
		}
		for _, name := range actual {
			if !slices.Contains(one.imports, name) {
				problems = append(problems, fmt.Errorf("%s imports %s; the graph in CONTRIBUTING.md does not say so", one.name, name))
			}
		}
		for _, name := range one.imports {
			if there && !slices.Contains(actual, name) {
				problems = append(problems, fmt.Errorf("%s does not import %s; the graph in CONTRIBUTING.md says so", one.name, name))
			}
			if !above[name] {
				problems = append(problems, fmt.Errorf("the arrow from %s to %s points up: %[2]s does not stand above it in the graph",
					one.name, name))
			}
		}
		above[one.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(built)) {
		if !above[name] {
			problems = append(problems, fmt.Errorf("package %s is not in the graph in CONTRIBUTING.md", name))
		}
	}
	return problems
}
