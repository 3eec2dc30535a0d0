// Package retention tests what a store removes, and when.
package retention

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// wing is the fixture with helpers for these tests.
type wing struct{ *fixture.Fixture }

// tests are some tests by name.
type tests = map[string]func(*testing.T, *wing)

// Tests returns the tests of the retention.
func Tests() fixture.Tests {
	return fixture.In(func(f *fixture.Fixture) *wing { return &wing{f} },
		retentionTests())
}

func retentionTests() tests {
	return tests{
		"retention removes old history by day":               testRetention,
		"a longer retention does not bring history back":     testRetentionChanges,
		"retention keeps live retries":                       testRetentionOfRetries,
		"retention removes old misfires":                     testRetentionOfMisfires,
		"fixed delays outlive the runs that they count from": testRetentionOfDelays,
		"completed jobs are deleted when their time is over": testDeleteAfterCompletion,
		"slots and waits for hosts go with a purged job":     testRetentionOfSlots,
	}
}
