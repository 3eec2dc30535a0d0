//go:build !linux

package db

import "syscall"

// boundUnacknowledged does nothing where the system has no such option; keep-alive and the
// deadlines of calls remain.
func boundUnacknowledged(string, string, syscall.RawConn) error { return nil }
