// Package storetest is one suite of tests for stores over either database. Its parts are separate packages on one
// fixture.
//
// Nothing in it sleeps: each call that depends on time gets its own now.
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

// Run runs the suite, part by part: "go test -run TestSQLite/dispatch" runs one alone. open returns a store over a new,
// migrated database, and removes both after the test.
//
// With words it runs only the tests that have one of them in their name, which is "part/name".
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

// wings returns the suite by part of the store.
func wings() map[string]fixture.Tests {
	return map[string]fixture.Tests{
		"dispatch":    dispatch.Tests(),
		"definitions": definitions.Tests(),
		"feeds":       feeds.Tests(),
		"reads":       reads.Tests(),
		"retention":   retention.Tests(),
	}
}
