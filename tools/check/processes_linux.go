package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes descendants children of this process when their parents have ended, so that it
// can end and count them.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// reapOrphans waits at most grace until all children have ended, and kills the others. It returns
// the processes that it killed. No command of this process may run meanwhile.
func reapOrphans(ctx context.Context, grace time.Duration) (killed []string) {
	deadline := time.Now().Add(grace)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid == 0 {
				break // all children were reaped, or the others still run
			}
		}
		left := children(os.Getpid())
		if len(left) == 0 {
			return killed
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			for _, pid := range left {
				if line := describe(pid); !slices.Contains(killed, line) {
					killed = append(killed, line)
				}
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		<-tick.C
	}
}

// reapEnded reaps the children that have ended, except one.
func reapEnded(except int) {
	for _, pid := range children(os.Getpid()) {
		if pid != except {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// children returns the child processes of pid.
func children(pid int) (found []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// "pid (name) state ppid ...", where the name may hold anything.
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			found = append(found, id)
		}
	}
	return found
}

// describe names a process by its command line.
func describe(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	text := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	return fmt.Sprintf("%d %.100s", pid, text)
}
