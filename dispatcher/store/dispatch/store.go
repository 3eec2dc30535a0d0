// Package dispatch moves runs on: it claims, begins, records and ends them, gives them slots, adopts those of dead
// nodes, and sets aside the rows that make a batch fail.
//
// Package store describes the statements of a run. The packages that change definitions and read the ledger build on
// this one, which does not import them.
package dispatch

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// Store is the part of the store that the dispatch uses.
type Store struct {
	db        *db.DB
	Rollbacks *rollbackDetector
	Claims    *openClaims
	Hot       Statements
	audits    *AuditState
	skips     *skips
	Asides    *Asides
}

// New returns a store without a database. log gets a line for each row that is set aside.
func New(log *slog.Logger) *Store {
	s := &Store{Rollbacks: &rollbackDetector{}, Claims: newOpenClaims(), audits: &AuditState{}, skips: newSkips(), Asides: newAsides(log)}
	s.audits.ids.Store(drawAuditID())
	return s
}

// Over returns a store with the state of s over a database.
func (s *Store) Over(d *db.DB) *Store {
	own := *s
	own.db, own.Hot = d, StatementsOf(d.Flavor)
	return &own
}

// Watch returns the callbacks for connections of the database.
func (s *Store) Watch() db.ConnectionWatch {
	return db.ConnectionWatch{Opened: s.Claims.forgetPartial, Whole: s.Rollbacks.whole}
}

// Metrics returns the counts of skipped runs and of rows set aside.
func (s *Store) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.skips.total, s.Asides.total}
}
