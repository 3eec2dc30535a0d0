package store_test

import (
	"cmp"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// waitLimit is how long a test waits for an expected event on a busy machine. It ends as soon as the event happens.
const waitLimit = 5 * time.Minute

func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) *store.Store {
		return open(t, sqlitetest.New(t))
	})
}

func TestPostgreSQL(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) *store.Store {
		return open(t, pgtest.New(t))
	})
}

func open(t testing.TB, database string) *store.Store {
	t.Helper()
	return openAs(t, database, store.Options{})
}

// openAs opens a store that logs to the test.
func openAs(t testing.TB, database string, o store.Options) *store.Store {
	t.Helper()
	o.Logger = cmp.Or(o.Logger, slog.New(slog.NewTextHandler(t.Output(), nil)))
	s, err := store.Open(t.Context(), database, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// adopt adopts the runs selected by query, like a node with free capacity.
func adopt(ctx context.Context, s dispatcher.Adoption, query dispatcher.AdoptQuery) ([]run.HeldRun, error) {
	found, err := s.Adoptable(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.Adopt(ctx, query, found)
}
