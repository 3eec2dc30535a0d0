// Package definitions keeps what people declare: apps, jobs, triggers, calendars, groups, alerts, tokens and secrets. Each change
// leaves its entry in the audit log, and the triggers, followers and alerts that it concerns follow it in the same transaction.
package definitions

import (
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// Store keeps the definitions over the dispatch.
type Store struct {
	dispatch *dispatch.Store
	db       *db.DB
	keys     *seal.Keys
}

// New returns a store over the database d. keys encrypt the values of secrets; nil: none can be stored.
func New(dispatch *dispatch.Store, d *db.DB, keys *seal.Keys) *Store {
	return &Store{dispatch: dispatch, db: d, keys: keys}
}
