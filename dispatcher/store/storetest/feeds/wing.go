// Package feeds tests how a store handles work done in portions over time: backfills, bulk actions, alerts.
package feeds

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// wing is the fixture with helpers for these tests.
type wing struct{ *fixture.Fixture }

// tests are some tests by name.
type tests = map[string]func(*testing.T, *wing)

// Tests returns the tests of the feeds.
func Tests() fixture.Tests {
	return fixture.In(func(f *fixture.Fixture) *wing { return &wing{f} },
		deadLetterTests(), alertTests(), missedTests(), alertObjectiveTests(), followMeetingTests(), bulkTests(), backfillTests(),
		backfillScheduleTests())
}
