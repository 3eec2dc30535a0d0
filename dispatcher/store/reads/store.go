// Package reads answers what people look at: runs, dead letters, timelines, statistics, objectives, and what asks for attention.
package reads

import (
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// Store reads the ledger and the definitions.
type Store struct {
	dispatch    *dispatch.Store
	definitions *definitions.Store
	db          *db.DB
	Walks       Walks
}

// New returns a store over the database d.
func New(dispatch *dispatch.Store, definitions *definitions.Store, d *db.DB) *Store {
	return &Store{dispatch: dispatch, definitions: definitions, db: d, Walks: usualWalks(d.ByDay())}
}
