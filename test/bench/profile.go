package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// sampleEvery is how many bytes are allocated from one sample of an allocation profile to the next. A node allocates
// so much that this costs little.
const sampleEvery = 16 << 10

// profile writes profiles of what this process does until end into a directory: NAME.cpu, and NAME.allocs, of which
// NAME.allocs.before is the base. Each round overwrites them. With an empty directory it does nothing.
func profile(dir, name string) (end func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	path := filepath.Join(dir, name)
	if err := writeAllocations(path + ".allocs.before"); err != nil {
		return nil, err
	}
	file, err := os.Create(path + ".cpu")
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return errors.Join(file.Close(), writeAllocations(path+".allocs"))
	}, nil
}

func writeAllocations(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	runtime.GC() // the profile is of what was allocated before the last collection
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}
