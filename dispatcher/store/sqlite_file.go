package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// checkTime bounds the check of a file, so that a large one does not keep a node from its work:
// what is read within it is checked.
const checkTime = 3 * time.Second

// checkFile looks after a crash whether the file is sound. A ledger that is not, as after a disk
// that lied about what it had written, must not fire.
func checkFile(ctx context.Context, db *sql.DB, path string) error {
	within, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	problems, err := collect(within, db, scanText, `PRAGMA quick_check(10)`)
	switch {
	case within.Err() != nil && ctx.Err() == nil:
		return nil
	case err != nil: // what is beyond listing
		problems = []string{err.Error()}
	case len(problems) == 1 && problems[0] == "ok":
		return nil
	}
	return fmt.Errorf("%s is damaged: %s; restore a backup of it, or save what can be read with sqlite3's .recover",
		path, strings.Join(problems, "; "))
}

// lockFile makes and locks a file, or says which one is in the way.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = errors.Join(err, f.Close())
		return nil, fmt.Errorf("%s is locked: another process uses this database; stop it, or use PostgreSQL for several nodes: %w", path, err)
	}
	return f, nil
}
