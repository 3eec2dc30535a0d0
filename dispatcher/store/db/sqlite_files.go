package db

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// createFile makes the file of a new database for its owner only, whatever the umask. SQLite gives its log and its index
// the mode of the database. An existing file is left alone, and not even opened: to close it would give up the locks that
// another store of this process has on it.
// created tells whether there was none.
func createFile(path string) (created bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// checkKind refuses a path that leads to something else than a file, before anything is made next to it.
func checkKind(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it is made
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory; name a file in it, such as %s", path, filepath.Join(path, "carillon.db"))
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file (%s); name the file of a database, or one that does not exist yet", path, info.Mode().Type())
	}
	return nil
}

// removeEmpty removes the file of a database that could not be made, as on a full disk: the next start would take it for a
// database of which everything was lost.
func removeEmpty(path string) error {
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		return os.Remove(path)
	}
	return nil
}

// ExposedFiles lists the files of a SQLite database that others than their owner may read or write; nil for any other.
func ExposedFiles(database string) (exposed []string) {
	a, err := ParseAddress(database)
	if err != nil || a.Path == "" {
		return nil
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(a.Path + suffix); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			exposed = append(exposed, a.Path+suffix)
		}
	}
	return exposed
}
