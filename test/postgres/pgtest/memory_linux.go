package pgtest

import "golang.org/x/sys/unix"

// memory returns a directory that Linux keeps in memory, or "" if it is too small for the databases
// of many tests, as in some containers.
func memory() string {
	const dir, room = "/dev/shm", 4 << 30
	var found unix.Statfs_t
	if err := unix.Statfs(dir, &found); err != nil || found.Type != unix.TMPFS_MAGIC || found.Bavail*uint64(found.Bsize) < room {
		return ""
	}
	return dir
}
