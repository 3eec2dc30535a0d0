// Package reads answers what people look at: runs, dead letters, timelines, statistics, objectives, and what asks for attention.
package reads

import (
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
)

// Store adds what is read of the ledger to the definitions.
type Store struct {
	*definitions.Store
	db    *db.DB
	Walks Walks
}

// New returns a store over the database d of below.
func New(below *definitions.Store, d *db.DB) *Store {
	return &Store{Store: below, db: d, Walks: usualWalks(d.ByDay())}
}
