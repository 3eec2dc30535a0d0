//go:build chaos && clockshift

package failpoint

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// WatchClock shifts the wall clock of this process by the duration in the file that CHAOS_CLOCK
// names, at the start and at each SIGUSR2. The monotonic clock does not change, as if somebody sets
// the clock of the machine. The program must be built with a package time that has ChaosShift;
// test/chaos builds one.
func WatchClock() {
	file := os.Getenv("CHAOS_CLOCK")
	if file == "" {
		return
	}
	read := func() {
		text, _ := os.ReadFile(file) // without the file there is no shift
		if shift, err := time.ParseDuration(strings.TrimSpace(string(text))); err == nil {
			time.ChaosShift.Store(int64(shift))
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
