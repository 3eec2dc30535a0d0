// Package definitions stores what users declare: apps, jobs, triggers, calendars, groups, alerts, tokens and secrets. A
// change writes to the audit log and updates the affected triggers, followers and alerts in the same transaction.
package definitions

import (
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// Store stores the definitions on top of the dispatch.
type Store struct {
	dispatch *dispatch.Store
	db       *db.DB
	keys     *seal.Keys
}

// New returns a store over the database d. keys encrypt the values of secrets; nil: secrets cannot be stored.
func New(dispatch *dispatch.Store, d *db.DB, keys *seal.Keys) *Store {
	return &Store{dispatch: dispatch, db: d, keys: keys}
}
