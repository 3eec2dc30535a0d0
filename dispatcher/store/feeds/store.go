// Package feeds makes runs that no schedule makes: those that follow others, backfills, bulk actions, notifications of alerts, and
// what people and targets ask for.
package feeds

import (
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/reads"
)

// Store adds what makes further runs to what is read of the ledger.
type Store struct {
	*reads.Store
	db *db.DB
}

// New returns a store over the database d of below.
func New(below *reads.Store, d *db.DB) *Store { return &Store{Store: below, db: d} }
