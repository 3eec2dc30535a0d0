package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// sampleEvery is the number of allocated bytes between two samples of an allocation profile. A node
// allocates so much that this costs little.
const sampleEvery = 16 << 10

// profile writes profiles of this process until end into a directory: NAME.cpu and NAME.allocs, with the base
// NAME.allocs.before. Each round overwrites them. With an empty directory it does nothing.
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
	runtime.GC() // the profile covers allocations before the last collection
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}
