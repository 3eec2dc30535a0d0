// Package definitions tests how a store handles the definitions of users, their changes and permissions.
package definitions

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// wing is the fixture with helpers for these tests.
type wing struct{ *fixture.Fixture }

// tests are some tests by name.
type tests = map[string]func(*testing.T, *wing)

// Tests returns the tests of definitions.
func Tests() fixture.Tests {
	return fixture.In(func(f *fixture.Fixture) *wing { return &wing{f} },
		definitionTests(), boundTests(), tokenTests(), sessionTests(), calendarTests(), unusedCalendarTests(), auditTests(),
		importTests(), saltTests(), eventTests(), unchangedTests(), pendingTests(), renameTests(), switchTests(),
		appPauseTests(), groupTests(), attributeTests())
}

// definitionTests are the tests of files without their own table.
func definitionTests() tests {
	return tests{
		"apps are created, replaced, listed and deleted":             testApps,
		"jobs are created, replaced, listed and deleted":             testJobs,
		"jobs are found by their labels":                             testJobLabels,
		"a job's revision never repeats":                             testRevisions,
		"an edit keeps unchanged triggers and records dropped fires": testEdits,
		"pauses hold fires and outlive edits":                        testPause,
		"schedules read back as they were written":                   testSchedules,
		"revisions of triggers and calendars are kept":               testRecords,
	}
}
