package store_test

import (
	"os"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// Without all that other databases may lack, the suite passes as with it.
func TestPostgreSQLWithoutCapabilities(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	suiteWithout(t, db.AllCapabilities())
}

// touched are words of the tests that each capability has to do with.
var touched = map[db.Capability][]string{
	db.Notifications:   {"listeners", "replace", "cancelled"},
	db.DayPartitions:   {"retention", "listed", "kept from", "over", "misfires"},
	db.SkipLocked:      {"dead", "adopt", "retr", "slots", "concurrent"},
	db.SessionSettings: {"retention", "claim"},
	db.Identity:        {"rollback", "register"},
}

// Each capability is missed alone, too. Step capabilities of make check runs the whole suite without each.
func TestPostgreSQLWithoutEachCapability(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	for one, words := range touched {
		if os.Getenv("CARILLON_EACH_CAPABILITY") != "" {
			words = nil
		}
		t.Run(string(one), func(t *testing.T) {
			t.Parallel()
			suiteWithout(t, db.Capabilities{one}, words...)
		})
	}
}

func suiteWithout(t *testing.T, without db.Capabilities, words ...string) {
	t.Helper()
	storetest.Run(t, func(t *testing.T) *store.Store {
		s := openAs(t, pgtest.New(t, pgtest.Without(without...)), store.Options{Options: db.Options{Without: without}})
		for _, one := range without {
			if s.Capabilities().Has(one) {
				t.Errorf("the store uses %s", one)
			}
		}
		return s
	}, words...)
}

func TestPostgreSQLHasAllCapabilities(t *testing.T) {
	t.Parallel()
	if missing := db.AllCapabilities().Without(open(t, pgtest.New(t)).Capabilities()); len(missing) > 0 {
		t.Errorf("it lacks %s", missing)
	}
}

// The first migration decides, whatever later ones and the nodes are told.
func TestFirstMigrationDecidesAboutPartitions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first, then db.Capabilities
		want        bool
	}{
		"without, then with": {first: db.Capabilities{db.DayPartitions}, want: false},
		"with, then without": {then: db.Capabilities{db.DayPartitions}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := pgtest.New(t, pgtest.Without(tt.first...))
			must(t, store.MigrateAs(t.Context(), database, db.Login{}, tt.then...))
			s := openAs(t, database, store.Options{Options: db.Options{Without: tt.then}})
			if got := s.Capabilities().Has(db.DayPartitions); got != tt.want {
				t.Errorf("partitions: got %v, want %v", got, tt.want)
			}
			purge(t, s, time.Now())
			const partitioned = `SELECT count(*) FROM pg_class WHERE relname IN ('runs', 'attempts', 'responses') AND relkind = 'p'`
			if got := count(t, s, partitioned) > 0; got != tt.want {
				t.Errorf("the tables have partitions: %v, want %v", got, tt.want)
			}
		})
	}
}

// What nodes leave for each other does not pile up.
func TestLeftNotificationsAreRemoved(t *testing.T) {
	t.Parallel()
	s := openAs(t, pgtest.New(t), store.Options{Options: db.Options{Without: db.Capabilities{db.Notifications}}})
	_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, input.Change{Actor: "test"})
	must(t, err)
	if got := count(t, s, `SELECT count(*) FROM notifications`); got != 1 {
		t.Errorf("%d notifications are left, want 1", got)
	}
	must(t, store.Exec(t.Context(), s, `UPDATE notifications SET at = at - 61000`))
	must(t, store.RemoveNotifications(t.Context(), s))
	if got := count(t, s, `SELECT count(*) FROM notifications`); got != 0 {
		t.Errorf("%d notifications stay for longer than a minute", got)
	}
}
