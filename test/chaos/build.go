package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/carillon-dev/carillon/test/program"
)

// buildNode builds carillon with failpoints and an adjustable wall clock. edits are source files
// that replace those of the repository.
func buildNode(ctx context.Context, to, dir string, edits map[string]string) error {
	clock, err := shiftableClock(ctx)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for file, text := range edits {
		if file, err = filepath.Abs(file); err != nil {
			return err
		}
		clock[file] = text
	}
	for file, text := range clock {
		copied := filepath.Join(dir, strings.ReplaceAll(strings.Trim(file, "/"), "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return err
		}
		replace[file] = copied
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	return program.Build(ctx, "", to, "-overlay", file, "-tags", "chaos,clockshift", "./dispatcher/cmd/carillon")
}

// shiftableClock returns the source of package time with a wall clock that ChaosShift offsets and a
// monotonic clock that ChaosSuspended holds back. Libraries that fake time have no effect on a Go
// program, because it asks the kernel directly.
func shiftableClock(ctx context.Context) (map[string]string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	source := string(text)
	for _, edit := range [][2]string{
		{"\t\"math/bits\"\n", "\t\"math/bits\"\n\t\"sync/atomic\"\n"},
		{"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
			"// ChaosShift is how many nanoseconds the wall clock is off, in whole seconds, and ChaosSuspended how many the\n" +
				"// monotonic clock has stood still.\nvar ChaosShift, ChaosSuspended atomic.Int64\n\n" +
				"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += ChaosShift.Load() / 1e9\n\tmono -= ChaosSuspended.Load()\n"},
		{"subMono(runtimeNano()-startNano, t.ext)", "subMono(runtimeNano()-startNano-ChaosSuspended.Load(), t.ext)"},
		{"subMono(t.ext, runtimeNano()-startNano)", "subMono(t.ext, runtimeNano()-startNano-ChaosSuspended.Load())"},
	} {
		if strings.Count(source, edit[0]) != 1 {
			return nil, fmt.Errorf("%s is not as this tool knows it; a wall clock cannot be built into it", file)
		}
		source = strings.Replace(source, edit[0], edit[1], 1)
	}
	return map[string]string{file: source}, nil
}
