// Package feeds makes the runs that no schedule makes: followers, backfills, bulk actions, notifications of alerts, and
// requests by users and targets.
package feeds

import (
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/reads"
)

// Store makes further runs from the ledger and the definitions.
type Store struct {
	dispatch    *dispatch.Store
	definitions *definitions.Store
	reads       *reads.Store
	db          *db.DB
}

// New returns a store over the database d.
func New(dispatch *dispatch.Store, definitions *definitions.Store, reads *reads.Store, d *db.DB) *Store {
	return &Store{dispatch: dispatch, definitions: definitions, reads: reads, db: d}
}
