//go:build !linux

package db

import "syscall"

// boundUnacknowledged does nothing on systems without this option; keep-alive and the deadlines of calls remain.
func boundUnacknowledged(string, string, syscall.RawConn) error { return nil }

// FileSystem returns 0: only the types of Linux are known.
func FileSystem(string) (uint32, error) { return 0, nil }
