// Package storetest holds what a store must do over either database, as one suite of tests. Its wings stand in packages of their
// own, on one fixture.
//
// Nothing in it sleeps: each call that depends on time is given its present.
package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/feeds"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/reads"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/retention"
)

// Run runs the suite, wing by wing: "go test -run TestSQLite/dispatch" runs one alone. open returns a store over a new,
// migrated database, and sees to it that both are gone after the test.
//
// With words it runs only the tests that have one of them in their name, which is "wing/name".
func Run(t *testing.T, open func(t *testing.T) *store.Store, words ...string) {
	for wing, tests := range wings() {
		t.Run(wing, func(t *testing.T) {
			t.Parallel()
			for name, test := range tests {
				if named(wing+"/"+name, words) {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(t, fixture.New(t, open(t)))
					})
				}
			}
		})
	}
}

// named reports whether a name has one of some words, if there are any.
func named(name string, words []string) bool {
	return len(words) == 0 || slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}

// wings returns the suite. A wing has the tests of one part of a store.
func wings() map[string]fixture.Tests {
	return map[string]fixture.Tests{
		"dispatch":    dispatch.Tests(),
		"definitions": definitions.Tests(),
		"feeds":       feeds.Tests(),
		"reads":       reads.Tests(),
		"retention":   retention.Tests(),
	}
}
