// Package definitions holds the tests of what a store does with what people declare and change, and who may..
package definitions

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
		definitionTests(), boundTests(), tokenTests(), sessionTests(), calendarTests(), unusedCalendarTests(), auditTests(),
		importTests(), saltTests(), eventTests(), unchangedTests(), pendingTests(), renameTests(), switchTests(),
		appPauseTests(), groupTests(), attributeTests())
}

// definitionTests are those of files without a table of their own.
func definitionTests() tests {
	return tests{
		"apps are created, replaced, listed and deleted":                  testApps,
		"jobs are created, replaced, listed and deleted":                  testJobs,
		"jobs are found by their labels":                                  testJobLabels,
		"a job's revision never comes twice":                              testRevisions,
		"an edit keeps what it does not change and records what it drops": testEdits,
		"pauses hold fires and outlive edits":                             testPause,
		"schedules read back as they were written":                        testSchedules,
		"revisions of triggers and calendars are kept":                    testRecords,
	}
}
