package main

import (
	"os"
	"strings"
	"syscall"
	"time"
)

// load returns the load of the last minute, or "" if the machine does not report it.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// processorSeconds returns the processor seconds of this process and of the children that it has waited for.
func processorSeconds() float64 {
	var total time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return total.Seconds()
}
