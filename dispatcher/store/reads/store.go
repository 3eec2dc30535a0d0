// Package reads answers the queries of users: runs, dead letters, timelines, statistics, objectives, and attention.
package reads

import (
	"time"

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
	s := &Store{dispatch: dispatch, definitions: definitions, db: d,
		Walks: Walks{Jobs: 2_000, CountedJobs: 2_000, Rows: 10_000, Counted: 100_000, Span: 3 * 24 * time.Hour}}
	if d.ByDay() { // PostgreSQL searches the index of each day for each job, SQLite one for all days
		s.Walks.Jobs, s.Walks.CountedJobs = 200, 200
	}
	return s
}
