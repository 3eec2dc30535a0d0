package program_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/carillon-dev/carillon/test/program"
)

// Many programs are written and run at once, so that some forks happen during writes.
func TestProgramRunsWhileOthersAreForked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var writers sync.WaitGroup
	for writer := range 8 {
		writers.Go(func() {
			for i := range 40 {
				path := filepath.Join(dir, strconv.Itoa(writer)+"-"+strconv.Itoa(i))
				if err := program.Write(path, []byte("#!/bin/sh\n")); err != nil {
					t.Error(err)
					return
				}
				if err := exec.CommandContext(t.Context(), path).Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}
