//go:build !linux

package pgtest

// memory returns "": other systems have no such directory.
func memory() string { return "" }
