package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-dev/carillon/dispatcher"
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
	return fmt.Errorf("%s is damaged: %s; restore a backup of it, or save what can be read with sqlite3's .recover", path, strings.Join(problems, "; "))
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

// where is what the lock file says: the node that used the database last, and how many heartbeats
// of it are in there.
func (s *sqlite) where(context.Context) (string, error) {
	if s.guard == nil || s.shared {
		return "", nil
	}
	said := make([]byte, 64)
	n, err := s.guard.ReadAt(said, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read lock file: %w", err)
	}
	return string(said[:n]), nil
}

// astray compares that with the database. A copy that was put into its place has less. A database
// that comes without its lock file may be a copy of any age.
func (s *sqlite) astray(ctx context.Context, t *tx, where string) (string, error) {
	if s.guard == nil || s.shared {
		return "", nil
	}
	latest, _, err := first(ctx, t, scanInt, `SELECT COALESCE(max(heartbeat_at), 0) FROM nodes`)
	if err != nil || latest == 0 {
		return "", err
	}
	until := "; the latest heartbeat in it is of " + instant(latest).Format(time.RFC3339)
	var id uint64
	var heartbeats int64
	if read, _ := fmt.Sscanf(where, markFormat, &id, &heartbeats); read < 2 {
		return "the file came without the lock file of its last use" + until, nil
	}
	node := dispatcher.NodeID(id)
	// $1 id
	stored, found, err := first(ctx, t, scanInt, `SELECT heartbeats FROM nodes WHERE id = $1`, node)
	switch {
	case err != nil:
		return "", err
	case !found:
		return fmt.Sprintf("node %s has used it last, and it does not know that node", node) + until, nil
	case stored < heartbeats:
		return fmt.Sprintf("node %s has sent %d heartbeats, and the database knows of %d", node, heartbeats, stored) + until, nil
	}
	return "", nil
}

// markFormat is the same number of bytes for each node and count, so that one mark overwrites
// another whole.
const markFormat = "%016x %019d\n"

// mark is made after the commit of what it speaks of, so that it never promises too much. One that
// fails, or that a loss of power takes away, leaves a rollback unnoticed, and no other harm.
func (s *sqlite) mark(node dispatcher.NodeID, heartbeats int64) {
	if s.guard != nil && !s.shared {
		_, _ = s.guard.WriteAt(fmt.Appendf(nil, markFormat, uint64(node), heartbeats), 0)
	}
}
