//go:build chaos && clockshift

package failpoint

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// WatchClock shifts the wall clock of this process by the duration in the first line of the file that CHAOS_CLOCK
// names, at the start and at each SIGUSR2. The monotonic clock does not change, as if somebody sets
// the clock of the machine. A second line is how long the monotonic clock has stood still, as while the machine was
// suspended. The program must be built with a package time that has ChaosShift and ChaosSuspended; test/chaos builds
// one.
func WatchClock() {
	file := os.Getenv("CHAOS_CLOCK")
	if file == "" {
		return
	}
	read := func() {
		text, _ := os.ReadFile(file) // without the file there is no shift
		first, second, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		if shift, err := time.ParseDuration(first); err == nil {
			time.ChaosShift.Store(int64(shift))
		}
		if suspended, err := time.ParseDuration(second); err == nil {
			time.ChaosSuspended.Store(int64(suspended))
		}
	}
	read()
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGUSR2)
	go func() {
		for range changed {
			read()
		}
	}()
}
