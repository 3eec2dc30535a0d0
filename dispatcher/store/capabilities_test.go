package store_test

import (
	"os"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// Without all that other databases may lack, the suite passes as with it.
func TestPostgreSQLWithoutCapabilities(t *testing.T) {
	t.Parallel()
	suiteWithout(t, store.AllCapabilities()...)
}

// Each capability is missed alone, too. This takes the suite once for each: make test-databases.
func TestPostgreSQLWithoutEachCapability(t *testing.T) {
	t.Parallel()
	if os.Getenv("CARILLON_EACH_CAPABILITY") == "" {
		t.Skip("make test-databases runs the suite without each capability")
	}
	for _, one := range store.AllCapabilities() {
		t.Run(string(one), func(t *testing.T) {
			t.Parallel()
			suiteWithout(t, one)
		})
	}
}

func suiteWithout(t *testing.T, without ...store.Capability) {
	t.Helper()
	storetest.Run(t, func(t *testing.T) dispatcher.Store {
		s := openAs(t, pgtest.New(t, pgtest.Without(without...)), store.Options{Without: without})
		for _, one := range without {
			if store.CapabilitiesOf(s).Has(one) {
				t.Errorf("the store uses %s", one)
			}
		}
		return s
	})
}

func TestPostgreSQLHasAllCapabilities(t *testing.T) {
	t.Parallel()
	if got := store.CapabilitiesOf(open(t, pgtest.New(t))); len(got) != len(store.AllCapabilities()) {
		t.Errorf("it has %s, want %s", got, store.AllCapabilities())
	}
}
