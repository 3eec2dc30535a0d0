//go:build !clockshift

package failpoint

// WatchClock does nothing in this program, which uses the wall clock of the machine.
func WatchClock() {}
