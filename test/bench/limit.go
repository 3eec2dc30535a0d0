package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// limit is the processor and memory limit of a task.
type limit struct {
	cpus float64
	mib  int
}

func (l limit) String() string { return fmt.Sprintf("%g vCPU, %s MiB", l.cpus, readable(l.mib)) }

// parseLimit parses CPUS:MIB, such as 0.25:512.
func parseLimit(text string) (l limit, err error) {
	cpus, mib, _ := strings.Cut(text, ":")
	l.cpus, err = strconv.ParseFloat(cpus, 64)
	if err == nil {
		l.mib, err = strconv.Atoi(mib)
	}
	if err != nil || l.cpus < 0.05 || l.cpus > 64 || l.mib < 64 {
		return l, fmt.Errorf("--task: %q is not CPUS:MIB with 0.05 to 64 processors and at least 64 MiB, such as 0.25:512", text)
	}
	return l, nil
}

// cgroup limits one process. The kernel offers one of two interfaces, and a container platform uses either.
type cgroup struct {
	dirs []string // version 2: one; version 1: for processor and memory
}

// period is the time, in µs, for which a cgroup gets its share of the processor; it is the kernel's default.
const period = 100_000

// newCgroup makes a cgroup with a limit. It needs root.
func newCgroup(l limit) (*cgroup, error) {
	const root = "/sys/fs/cgroup"
	name := fmt.Sprintf("carillon-size-%d", os.Getpid())
	g := &cgroup{}
	quota, bytes := int(l.cpus*period), l.mib<<20
	files := map[string]string{}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		dir := filepath.Join(root, name)
		g.dirs = []string{dir}
		files[filepath.Join(dir, "cpu.max")] = fmt.Sprint(quota, " ", period)
		files[filepath.Join(dir, "memory.max")] = strconv.Itoa(bytes)
	} else {
		cpu, memory := filepath.Join(root, "cpu", name), filepath.Join(root, "memory", name)
		g.dirs = []string{cpu, memory}
		files[filepath.Join(cpu, "cpu.cfs_period_us")] = strconv.Itoa(period)
		files[filepath.Join(cpu, "cpu.cfs_quota_us")] = strconv.Itoa(quota)
		files[filepath.Join(memory, "memory.limit_in_bytes")] = strconv.Itoa(bytes)
	}
	for _, dir := range g.dirs {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("make a cgroup, which needs root: %w", err)
		}
	}
	for file, value := range files {
		if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("limit the node to %s: %w", l, err), g.remove())
		}
	}
	return g, nil
}

// command returns a command that runs in the cgroup from its first instruction on.
func (g *cgroup) command(program string, args ...string) *exec.Cmd {
	enter := ""
	for _, dir := range g.dirs {
		enter += "echo $$ >" + dir + "/cgroup.procs && "
	}
	return exec.Command("sh", append([]string{"-c", enter + `exec "$0" "$@"`, program}, args...)...) //nolint:noctx // its caller ends it
}

// throttled returns the number of periods in which the process wanted more than its share, and the number of periods.
func (g *cgroup) throttled() (times, periods int) {
	stat, err := os.ReadFile(filepath.Join(g.dirs[0], "cpu.stat"))
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(stat) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		n, _ := strconv.Atoi(value) // 0 for lines of another form
		switch name {
		case "nr_throttled":
			times = n
		case "nr_periods":
			periods = n
		}
	}
	return times, periods
}

// remove removes the cgroup after its process has ended.
func (g *cgroup) remove() error {
	var problems []error
	for _, dir := range g.dirs {
		problems = append(problems, os.Remove(dir))
	}
	return errors.Join(problems...)
}

// peakMiB returns the peak resident memory of a process, or 0 if the kernel does not report it.
func peakMiB(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if value, ok := strings.CutPrefix(string(line), "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kib / 1024
		}
	}
	return 0
}

// cpuOf returns the processor seconds of a process, or 0 if the kernel does not report them.
func cpuOf(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in brackets may contain blanks; user and system time are the 12th and 13th field after it.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // USER_HZ
}
