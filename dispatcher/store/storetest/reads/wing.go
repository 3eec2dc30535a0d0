// Package reads tests how a store shows the ledger.
package reads

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// wing is the fixture with helpers for these tests.
type wing struct{ *fixture.Fixture }

// tests are some tests by name.
type tests = map[string]func(*testing.T, *wing)

// Tests returns the tests of the reads.
func Tests() fixture.Tests {
	return fixture.In(func(f *fixture.Fixture) *wing { return &wing{f} },
		readTests(), historyTests(), objectiveTests(), stripTests(), overviewTests(), statisticsTests(), timelineTests())
}

// readTests are the tests of files without their own table.
func readTests() tests {
	return tests{
		"misfires are listed latest first":      testMisfires,
		"verify accounts for each fire":         testVerify,
		"verify agrees with a model":            testVerifyModel,
		"verify in pages gives the same result": testVerifyInParts,
		"verify counts a fire once":             testVerifyOwedTwice,
		"explain says what became of a fire":    testExplain,
		"explain remembers what held a fire":    testExplainHolds,
		"a pause of some missed fires":          testExplainPauseOfSomeFires,
		"explain finds a time without its ms":   testExplainWithinTheSecond,
		"explain fires that a calendar moves":   testExplainMovedFires,
		"explain says what the definition was":  testExplainDefinitions,
	}
}
