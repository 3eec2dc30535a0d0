package terraform_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// run is one run block of a module's tests: how it ended, and what existed afterwards.
type run struct {
	name, status string
	state        state
}

// state is what a run that applies has created, with the modules inside.
type state struct {
	resources []resource
	outputs   map[string]any
}

type resource struct {
	Address string
	Mode    string // managed or data
	Type    string
	Name    string
	Values  map[string]any
}

// runs returns the runs of all tests of a folder by name. They run once for all that ask. A failed run
// fails the test.
func (c client) runs(t *testing.T, dir string) map[string]run {
	t.Helper()
	bench.mu.Lock()
	test, ok := bench.tests[[2]string{c.name, dir}]
	if !ok {
		test = sync.OnceValues(func() (map[string]run, error) { return c.testFolder(context.Background(), dir) })
		bench.tests[[2]string{c.name, dir}] = test
	}
	bench.mu.Unlock()
	runs, err := test()
	skipWithoutProvider(t, err)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// state returns what existed after a run of a folder's tests.
func (c client) state(t *testing.T, dir, name string) state {
	t.Helper()
	r, ok := c.runs(t, dir)[name]
	if !ok {
		t.Fatalf("%s has no run %q", dir, name)
	}
	return r.state
}

// testFolder initialises a folder and runs its tests.
func (c client) testFolder(ctx context.Context, dir string) (map[string]run, error) {
	if _, err := c.command(ctx, dir, "init"); err != nil {
		return nil, err
	}
	out, failed := c.command(ctx, dir, "test", "-json", "-verbose")
	runs, said, err := readRuns(out)
	if err == nil && failed != nil {
		err = fmt.Errorf("%s test in %s:\n%s", c.name, dir, strings.Join(said, "\n"))
	}
	return runs, err
}

// event is a line of "test -json"; the clients differ in where the state has its values.
type event struct {
	Message    string `json:"@message"`
	Run        string `json:"@testrun"`
	Diagnostic *struct {
		Severity, Summary, Detail string
		Range                     *struct {
			Filename string
			Start    struct{ Line int }
		}
	}
	TestRun   *struct{ Run, Status string } `json:"test_run"`
	TestState *struct {
		stateValues
		Values *stateValues
	} `json:"test_state"`
}

type stateValues struct {
	Outputs    map[string]struct{ Value any }
	RootModule stateModule `json:"root_module"`
}

type stateModule struct {
	Resources    []resource
	ChildModules []stateModule `json:"child_modules"`
}

func (m stateModule) all() []resource {
	resources := slices.Clone(m.Resources)
	for _, child := range m.ChildModules {
		resources = append(resources, child.all()...)
	}
	return resources
}

// readRuns reads the lines of "test -json -verbose", and returns problems as people read them.
func readRuns(out string) (runs map[string]run, problems []string, err error) {
	runs = map[string]run{}
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "{") {
			problems = append(problems, line)
			continue
		}
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, nil, fmt.Errorf("read %q: %w", line, err)
		}
		if d := e.Diagnostic; d != nil && d.Severity == "error" {
			place := ""
			if d.Range != nil {
				place = fmt.Sprintf("%s:%d: ", d.Range.Filename, d.Range.Start.Line)
			}
			problems = append(problems, fmt.Sprintf("%srun %q: %s: %s", place, e.Run, d.Summary, d.Detail))
		}
		r := runs[e.Run]
		if e.TestRun != nil && e.TestRun.Status != "" {
			r.name, r.status = e.TestRun.Run, e.TestRun.Status
			runs[e.Run] = r
		}
		if e.TestState != nil {
			values := e.TestState.stateValues
			if e.TestState.Values != nil {
				values = *e.TestState.Values
			}
			r.state = state{resources: values.RootModule.all(), outputs: map[string]any{}}
			for name, output := range values.Outputs {
				r.state.outputs[name] = output.Value
			}
			runs[e.Run] = r
		}
	}
	return runs, problems, nil
}

// all returns the resources of a type.
func (s state) all(kind string) []resource {
	var found []resource
	for _, r := range s.resources {
		if r.Type == kind && r.Mode == "managed" {
			found = append(found, r)
		}
	}
	return found
}

// one returns the only resource of a type.
func (s state) one(t *testing.T, kind string) resource {
	t.Helper()
	found := s.all(kind)
	if len(found) != 1 {
		t.Fatalf("there are %d of %s, want one", len(found), kind)
	}
	return found[0]
}

// text returns an attribute that is a string.
func (r resource) text(attribute string) string {
	value, _ := r.Values[attribute].(string)
	return value
}
