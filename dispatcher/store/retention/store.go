// Package retention removes what is older than its app keeps it, in small steps under a lock.
package retention

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/feeds"
)

// Store adds retention to all that can be kept.
type Store struct {
	*feeds.Store
	db        *db.DB
	auditKept time.Duration // the audit log
}

// New returns a store over the database d of below, which keeps entries of the audit log for auditKept.
func New(below *feeds.Store, d *db.DB, auditKept time.Duration) *Store {
	return &Store{Store: below, db: d, auditKept: auditKept}
}
