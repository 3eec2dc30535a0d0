//go:build !clockshift

package failpoint

// WatchClock does nothing in this program: its wall clock is the machine's.
func WatchClock() {}
