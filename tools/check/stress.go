package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stress runs tests repeatedly next to processes that spin.
type stress struct {
	root     string
	rounds   int
	spinning int
	short    bool
	pattern  string // of test names, as -run takes it
	atOnce   int    // packages
}

// testProgram is the test binary of a package, and the folder in which it runs.
type testProgram struct{ name, folder, binary string }

// run runs the tests of packages and prints how often each failed. It returns an error if any failed.
func (s stress) run(ctx context.Context, packages []string) error {
	dir, err := os.MkdirTemp("", "stress-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // servers of the tests run as another user
		return err
	}
	programs, err := s.build(ctx, dir, packages)
	if err != nil {
		return err
	}
	fmt.Printf("%d packages, %d times, next to %d spinning processes\n", len(programs), s.rounds, s.spinning)
	stop, err := spin(ctx, s.spinning)
	if err != nil {
		return err
	}
	defer stop()
	failures := map[string]int{}
	tests := 0
	for round := range s.rounds {
		begun := time.Now()
		passed, failed, err := s.round(ctx, dir, programs)
		if err != nil {
			return err
		}
		for _, name := range failed {
			failures[name]++
		}
		tests += passed + len(failed)
		fmt.Printf("round %d of %d: %d passed, %d failed in %.0f s, load %s\n", round+1, s.rounds, passed, len(failed),
			time.Since(begun).Seconds(), load())
	}
	return conclude(failures, tests, s.rounds)
}

// conclude prints how often each test failed.
func conclude(failures map[string]int, tests, rounds int) error {
	fmt.Printf("\n%d tests run in %d rounds\n", tests, rounds)
	names := slices.SortedFunc(maps.Keys(failures), func(a, b string) int {
		return cmp.Or(cmp.Compare(failures[b], failures[a]), cmp.Compare(a, b))
	})
	total := 0
	for _, name := range names {
		fmt.Printf("  failed %d of %d: %s\n", failures[name], rounds, name)
		total += failures[name]
	}
	fmt.Printf("\n%d passed, %d failed\n", tests-total, total)
	if total > 0 {
		return errors.New("some tests fail under load")
	}
	return nil
}

// build builds the test binaries of packages, once for all rounds.
func (s stress) build(ctx context.Context, dir string, packages []string) ([]testProgram, error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f",
		"{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, packages...)...)
	list.Dir, list.Stderr = s.root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", packages, err)
	}
	var programs []testProgram
	for n, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		name, folder, ok := strings.Cut(line, " ")
		if !ok {
			continue
		}
		p := testProgram{name: strings.TrimPrefix(name, module+"/"), folder: folder, binary: filepath.Join(dir, strconv.Itoa(n)+".test")}
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.binary, name)
		build.Dir, build.Stdout, build.Stderr = s.root, os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w", name, err)
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// round runs each program once, several at a time, and returns how many tests passed and which failed.
func (s stress) round(ctx context.Context, dir string, programs []testProgram) (passed int, failed []string, err error) {
	work := make(chan testProgram)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range s.atOnce {
		all.Go(func() {
			for p := range work {
				t, runErr := s.one(ctx, dir, p)
				mu.Lock()
				passed, failed, err = passed+t.Passed, append(failed, t.failures...), errors.Join(err, runErr)
				mu.Unlock()
			}
		})
	}
	for _, p := range programs {
		work <- p
	}
	close(work)
	all.Wait()
	return passed, failed, errors.Join(err, ctx.Err())
}

// one runs one program, and prints its output if a test failed.
func (s stress) one(ctx context.Context, dir string, p testProgram) (tally, error) {
	temporary, err := os.MkdirTemp(dir, "t-")
	if err != nil {
		return tally{}, err
	}
	if err := os.Chmod(temporary, 0o777|os.ModeSticky); err != nil { //nolint:gosec // as /tmp, for servers of another user
		return tally{}, err
	}
	args := []string{"tool", "test2json", "-p", p.name, p.binary, "-test.v=test2json", "-test.timeout=60m", "-test.parallel=6"}
	if s.short {
		args = append(args, "-test.short")
	}
	if s.pattern != "" {
		args = append(args, "-test.run="+s.pattern)
	}
	run := exec.CommandContext(ctx, "go", args...)
	run.Dir, run.Env = p.folder, append(os.Environ(), "TMPDIR="+temporary)
	out, runErr := run.Output()
	t, err := read(bytes.NewReader(out))
	if err != nil {
		return t, err
	}
	if runErr != nil && len(t.failures) == 0 {
		t.failures = append(t.failures, p.name+" (no test of its own failed)")
	}
	if len(t.failures) > 0 {
		printOutput(out, t.failures)
	}
	return t, os.RemoveAll(temporary)
}

// printOutput prints the output of some tests of a package.
func printOutput(events []byte, tests []string) {
	for line := range bytes.Lines(events) {
		var e event
		if json.Unmarshal(line, &e) == nil && e.Action == "output" && slices.Contains(tests, nameOf(e)) {
			fmt.Print(e.Output)
		}
	}
}

// spin starts processes that keep the processors busy until stop is called.
func spin(ctx context.Context, count int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var started []*exec.Cmd
	stop = func() {
		cancel()
		for _, one := range started {
			_ = one.Wait()
		}
	}
	for range count {
		one := exec.CommandContext(ctx, self, "spin")
		// The pipe closes when this process ends, which also ends the child.
		if _, err = one.StdinPipe(); err == nil {
			err = one.Start()
		}
		if err != nil {
			stop()
			return nil, err
		}
		started = append(started, one)
	}
	return stop, nil
}

// keepBusy keeps one processor busy until standard input ends.
func keepBusy() {
	var ended atomic.Bool
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // the end of input is an error
		ended.Store(true)
	}()
	for !ended.Load() {
	}
}
