package platform

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MemoryLimit is how much memory a process may use before the kernel kills it.
type MemoryLimit struct {
	Bytes  int64
	Source string // the file with the limit
}

// noLimit is the smallest value that means no limit: version 1 of control groups writes the largest
// multiple of a page.
const noLimit = math.MaxInt64 / 2

// ContainerMemory returns the smallest memory limit of the control groups of this process, of
// version 1 or 2. A container, a unit of systemd and a pod are such groups. root is the root
// directory, "/". ok is false without a limit.
//
// Limits of groups outside the container's view are not visible, except with version 1, which
// reports the smallest of them.
func ContainerMemory(root string) (limit MemoryLimit, ok bool) {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return MemoryLimit{}, false // no control groups
	}
	smallest := MemoryLimit{Bytes: noLimit}
	note := func(bytes int64, source string) {
		if bytes > 0 && bytes < smallest.Bytes {
			smallest = MemoryLimit{bytes, source}
		}
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path; version 2 names no controllers
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		mount, files := "/sys/fs/cgroup", []string{"memory.max"}
		if fields[1] != "" {
			mount, files = "/sys/fs/cgroup/memory", []string{"memory.limit_in_bytes", "memory.stat"}
			if !slices.Contains(strings.Split(fields[1], ","), "memory") {
				continue
			}
		}
		// A container may see its own group as the root, under a path that exists only on the host,
		// so missing groups are skipped.
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			for _, file := range files {
				source := path.Join(mount, group, file)
				if text, err := os.ReadFile(filepath.Join(root, source)); err == nil {
					note(limitIn(string(text)), source)
				}
			}
			if group == "/" {
				break
			}
		}
	}
	return smallest, smallest.Bytes < noLimit
}

// limitIn parses the limit in a file of a control group: a number, "max", or the line of
// memory.stat with the smallest limit up to the root. It returns 0 without a limit.
func limitIn(text string) int64 {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, "hierarchical_memory_limit "); found {
			text = value
			break
		}
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return limit
}
