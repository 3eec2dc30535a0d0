// Package feeds holds the tests of what a store does with what is done in portions over time: backfills, bulk actions, alerts..
package feeds

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// wing is the fixture with what the tests of this wing do to it.
type wing struct{ *fixture.Fixture }

// tests are some tests of the wing, by name.
type tests = map[string]func(*testing.T, *wing)

// Tests returns the tests of the wing.
func Tests() fixture.Tests {
	return fixture.In(func(f *fixture.Fixture) *wing { return &wing{f} },
		deadLetterTests(), alertTests(), alertObjectiveTests(), followMeetingTests(), bulkTests(), backfillTests(),
		backfillScheduleTests())
}
