package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// record is the result of one run of a step: a line of the file that "make check-report" reads.
type record struct {
	Step   string `json:"step"`
	Commit string `json:"commit"` // with "+" if files had been changed since
	Begun  string `json:"begun"`  // RFC 3339
	OK     bool   `json:"ok"`

	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processor_seconds"` // of all processes, including orphans

	LoadBefore string `json:"load_before"` // of the last minute, as the machine reports it
	LoadAfter  string `json:"load_after"`

	Passed  int `json:"passed"` // tests; 0 for a step that runs no tests
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`

	Failures []string `json:"failures,omitempty"`
}

// checker runs steps in a checkout.
type checker struct {
	root  string
	marks marks
	log   string        // the file of records; "": none
	alone bool          // no person works in the checkout
	grace time.Duration // how long processes may outlive a step; throwaway databases end by themselves
}

// run runs the steps in turn, even if one fails, and returns the failures.
func (c *checker) run(ctx context.Context, steps []step) error {
	var failed []string
	for n, s := range steps {
		fmt.Printf("\n==> %s (%d of %d): %s\n", s.name, n+1, len(steps), s.proves)
		r, err := c.runOne(ctx, s)
		if err != nil {
			fmt.Printf("==> %s FAILED after %.0f s: %v\n", s.name, r.Seconds, err)
			failed = append(failed, s.name)
		} else {
			fmt.Printf("==> %s: ok, %.0f s, %.0f of the processors\n", s.name, r.Seconds, r.Processor)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// runOne runs one step and keeps its record.
func (c *checker) runOne(ctx context.Context, s step) (record, error) {
	begun := time.Now()
	r := record{Step: s.name, Commit: commitOf(ctx, c.root), Begun: begun.UTC().Format(time.RFC3339), LoadBefore: load()}
	before := processorSeconds()
	err := c.attempt(ctx, s, &r)
	r.Seconds, r.Processor = time.Since(begun).Seconds(), processorSeconds()-before
	r.LoadAfter, r.OK = load(), err == nil
	return r, errors.Join(err, c.keep(r))
}

// attempt prepares and runs a step, and then looks for leftovers.
func (c *checker) attempt(ctx context.Context, s step, r *record) error {
	for _, need := range s.needs {
		if err := runReaping(c.command(ctx, nil, strings.Fields(need)...)); err != nil {
			return fmt.Errorf("%s: %w", need, err)
		}
	}
	scene, err := newScene(ctx, c.root, c.alone)
	if err != nil {
		return err
	}
	err = c.perform(ctx, s, scene.dir, r)
	return errors.Join(err, scene.leave(ctx, c.grace))
}

// perform runs the command of a step, or its tests.
func (c *checker) perform(ctx context.Context, s step, dir string, r *record) error {
	env := append(slices.Clone(s.env), "TMPDIR="+dir)
	for variable, script := range s.prints {
		command := c.command(ctx, nil, script)
		command.Stdout = nil
		out, err := command.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", script, err)
		}
		env = append(env, variable+"="+strings.TrimSpace(string(out)))
	}
	if s.tests == nil {
		return runReaping(c.command(ctx, env, s.command...))
	}
	var all tally
	var problems []error
	for _, run := range s.tests {
		t, err := c.test(ctx, env, c.testCommand(s, run), dir)
		all.add(t)
		if err == nil && t.Passed == 0 {
			err = errors.New("no test ran")
		}
		problems = append(problems, err)
	}
	all.print(os.Stdout)
	r.Passed, r.Failed, r.Skipped, r.Failures = all.Passed, all.Failed, all.Skipped, all.failures
	return errors.Join(problems...)
}

// test runs "go test -json" under gotestsum and counts the tests. gotestsum prints each package as
// it ends and each failure, and writes all events to a file.
func (c *checker) test(ctx context.Context, env, goTest []string, dir string) (tally, error) {
	events := filepath.Join(dir, "events.json")
	defer func() { _ = os.Remove(events) }()
	runErr := runReaping(c.command(ctx, env, append([]string{os.Getenv("GOTESTSUM"), "--format", "pkgname", "--format-icons", "text",
		"--format-hide-empty-pkg", "--hide-summary", "skipped", "--jsonfile", events, "--raw-command", "--"}, goTest...)...))
	stream, err := os.Open(events)
	if err != nil {
		return tally{}, errors.Join(runErr, err)
	}
	defer stream.Close()
	t, err := read(stream)
	return t, errors.Join(runErr, err)
}

// testCommand returns the command line for tests of a step.
func (c *checker) testCommand(s step, run testRun) []string {
	command := []string{"go"}
	if run.module != "" {
		command = append(command, "-C", run.module)
	}
	command = append(command, "test", "-json", "-count=1")
	command = append(command, run.flags...)
	packages := run.packages
	if run.marked {
		named, pattern := c.marks.packages(s.name)
		packages, command = named, append(command, "-run", pattern)
	}
	return append(command, packages...)
}

// command returns a command in the checkout that shows its output.
func (c *checker) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir, command.Stdout, command.Stderr = c.root, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), env...)
	return command
}

// keep appends a record to the file.
func (c *checker) keep(r record) error {
	if c.log == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.log), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(c.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(file).Encode(r), file.Close())
}

// commitOf returns the commit of a checkout, or "" outside of git.
func commitOf(ctx context.Context, root string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty=+", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
