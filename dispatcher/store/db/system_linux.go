package db

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundUnacknowledged sets TCP_USER_TIMEOUT on a socket before it is connected.
func boundUnacknowledged(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return set
}

// FileSystem returns the type of the file system of a directory.
func FileSystem(dir string) (uint32, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, err
	}
	return uint32(stat.Type), nil //nolint:gosec // types have 32 bits, in fields of various sizes
}
