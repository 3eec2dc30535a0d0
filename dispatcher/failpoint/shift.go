//go:build chaos && clockshift

package failpoint

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// WatchClock moves this process's wall clock by the duration in the file that CHAOS_CLOCK
// names: at the start, and whenever SIGUSR2 comes. The monotonic clock goes on as it was, as
// when somebody sets a machine's clock. Only a program built over a package time that knows
// ChaosShift can do it; tools/chaos makes one.
func WatchClock() {
	file := os.Getenv("CHAOS_CLOCK")
	if file == "" {
		return
	}
	read := func() {
		text, _ := os.ReadFile(file) // none: no shift
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
