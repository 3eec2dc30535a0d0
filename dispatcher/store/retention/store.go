// Package retention removes history past the retention of its app, in small steps under a lock.
package retention

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// Store removes expired history.
type Store struct {
	dispatch    *dispatch.Store
	definitions *definitions.Store
	db          *db.DB
	auditKept   time.Duration // the retention of the audit log
}

// New returns a store over the database d, which keeps entries of the audit log for auditKept.
func New(dispatch *dispatch.Store, definitions *definitions.Store, d *db.DB, auditKept time.Duration) *Store {
	return &Store{dispatch: dispatch, definitions: definitions, db: d, auditKept: auditKept}
}
