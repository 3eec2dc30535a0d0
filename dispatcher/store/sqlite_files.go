package store

import (
	"errors"
	"io/fs"
	"os"
)

// createFile makes the file of a new database for its owner only, whatever the umask. SQLite gives its log and its index
// the mode of the database. An existing file is left alone, and not even opened: to close it would give up the locks that
// another store of this process has on it.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// ExposedFiles lists the files of a SQLite database that others than their owner may read or write; nil for any other.
func ExposedFiles(database string) (exposed []string) {
	a, err := parse(database)
	if err != nil || a.path == "" {
		return nil
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(a.path + suffix); err == nil && info.Mode().Perm()&0o077 != 0 {
			exposed = append(exposed, a.path+suffix)
		}
	}
	return exposed
}
