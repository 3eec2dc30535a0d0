// Package dispatch moves runs on: it claims, begins, records and ends them, gives them slots, adopts those of dead nodes, and sets
// aside the rows that make a batch fail.
//
// The statements of a run are described in package store. Wings above this one change definitions and read the ledger; nothing here
// knows of them.
package dispatch

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// Store is a store as the dispatch knows it.
type Store struct {
	db        *db.DB
	Rollbacks *rollbackDetector
	Claims    *openClaims
	Hot       Statements
	audits    *AuditState
	skips     *skips
	Asides    *Asides
}

// New returns a store that has no database yet. log gets a line for each row that is set aside.
func New(log *slog.Logger) *Store {
	s := &Store{Rollbacks: &rollbackDetector{}, Claims: newOpenClaims(), audits: &AuditState{}, skips: newSkips(), Asides: newAsides(log)}
	s.audits.ids.Store(drawAuditID())
	return s
}

// Over returns a store that knows what s knows, over a database.
func (s *Store) Over(d *db.DB) *Store {
	own := *s
	own.db, own.Hot = d, StatementsOf(d.Flavor)
	return &own
}

// Watch returns what is told of the connections of the database.
func (s *Store) Watch() db.ConnectionWatch {
	return db.ConnectionWatch{Opened: s.Claims.forgetPartial, Whole: s.Rollbacks.whole}
}

// Metrics returns the counts of runs that were skipped and of rows that were set aside.
func (s *Store) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.skips.total, s.Asides.total}
}
