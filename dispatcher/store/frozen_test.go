package store_test

import (
	"context"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A machine may be suspended in the middle of a transaction, for hours. Nobody waits for its locks that long.
func TestSuspendedNodeLosesItsLocks(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	database := pgtest.New(t)
	suspended, s := open(t, database), open(t, database)
	change := input.Change{Actor: "test", Now: may1}
	if _, _, err := s.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, change); err != nil {
		t.Fatal(err)
	}
	end, err := store.Freeze(t.Context(), suspended, `SELECT id FROM apps FOR UPDATE`)
	must(t, err)
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for {
		_, _, err := s.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: false}}, change) // waits for the lock
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the lock is still held: %v", err)
		}
	}
}
