package store_test

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A pooler that gives each transaction another connection changes nothing, but for notifications. Statements that are
// prepared, locks and notifications are all in dispatch; the other wings send plain statements in transactions.
func TestPooledPostgreSQL(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	storetest.Run(t, func(t *testing.T) *store.Store {
		database := pgtest.New(t)
		return openAs(t, pgtest.NewPooler(t, database).URL(), store.Options{Options: db.Options{Notify: database}})
	}, "dispatch/")
}
