package db

import "golang.org/x/sys/unix"

// FileSystem returns the type of the file system of a directory.
func FileSystem(dir string) (uint32, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, err
	}
	return uint32(stat.Type), nil //nolint:gosec // types have 32 bits, in fields of various sizes
}
