package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// identity is what the lock file says: the node that used the database last, and how many heartbeats
// of it are in there.
func (s *sqlite) identity(context.Context) (string, error) {
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

// mismatch compares that with the database. A copy that was put into its place has less. A database
// that comes without its lock file may be a copy of any age.
func (s *sqlite) mismatch(ctx context.Context, t *tx, identity string) (string, error) {
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
	if read, _ := fmt.Sscanf(identity, markFormat, &id, &heartbeats); read < 2 {
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

// mark writes the lock file after the commit of what it says, so that it never promises too much.
// One that fails, or that a loss of power takes away, leaves a rollback unnoticed, and does no
// other harm.
func (s *sqlite) mark(node dispatcher.NodeID, heartbeats int64) {
	if s.guard != nil && !s.shared {
		_, _ = s.guard.WriteAt(fmt.Appendf(nil, markFormat, uint64(node), heartbeats), 0)
	}
}
