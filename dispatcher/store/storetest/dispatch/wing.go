// Package dispatch tests how a store handles everything from a due trigger to the end of its run, on every node.
package dispatch

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// wing is the fixture with helpers for these tests.
type wing struct{ *fixture.Fixture }

// tests are some tests by name.
type tests = map[string]func(*testing.T, *wing)

// Tests returns the tests of the dispatch.
func Tests() fixture.Tests {
	return fixture.In(func(f *fixture.Fixture) *wing { return &wing{f} },
		dispatchTests(), claimTests(), dueTests(), inputTests(), retryTests(), misfireTests(), slotTests(), slotEndTests(),
		endpointSlotTests(), hostTests(), turnTests(), unfoldTests(), fleetTests(), broadcastTests(), callbackTests(),
		meetingTests(), followTests(), followBoundTests(), carriedStateTests())
}

// dispatchTests are the tests of files without their own table.
func dispatchTests() tests {
	return tests{
		"a fixed delay counts from the end of its run":           testDelays,
		"a fixed delay ends with its bounds":                     testDelayEnds,
		"jitter delays when a fire is due":                       testJitter,
		"a lock has one holder until it expires":                 testLocks,
		"job states follow triggers and runs":                    testStates,
		"overdue apps are found by app and labels":               testOverdueApps,
		"concurrent nodes never share a lock":                    testLockRace,
		"listeners are notified of changes":                      testListen,
		"the window poll returns due triggers in order":          testDue,
		"a due trigger has the timeout of its job":               testDueTimeout,
		"a quarantined trigger does not fire":                    testQuarantine,
		"a record is fenced by token and idempotent":             testRecord,
		"responses are kept with their attempts":                 testResponses,
		"a record takes any text":                                testRecordAnyText,
		"a released run is queued and its attempt not consumed":  testRelease,
		"runs of dead nodes are adopted":                         testAdopt,
		"runs of a deleted job are adopted by no revision":       testAdoptOfDeletedJob,
		"a run that has begun stays with its node":               testBegin,
		"an attempt that was not sent is made again":             testAdoptUnsent,
		"adoption takes the oldest runs first":                   testAdoptFairly,
		"a requested run is queued":                              testManualRun,
		"a cancelled run ends and keeps late results":            testCancel,
		"a finished run can be retried by hand":                  testRetry,
		"a batch of records mixes ends and retries":              testRetryBatch,
		"a deferred attempt consumes no attempt":                 testDeferredAttempts,
		"the next fire ends the retries":                         testStopAtNextFire,
		"retries end when their time is over":                    testGiveUp,
		"pauses hold retries":                                    testHeldRetries,
		"retries continue after their node died":                 testRetryOfTheDead,
		"a retrying run can be retried and cancelled by hand":    testRetryRequests,
		"a target's response disables its trigger":               testDisable,
		"a late 410 of an old revision disables nothing":         testLateGoneOfAnOldRevision,
		"a 410 of a run that is no longer held disables nothing": testGoneOfARunThatIsNoLongerHeld,
	}
}

// both registers nodeB too and reports whether nodeA lives on.
func (f *wing) both() bool {
	f.Helper()
	f.AddNode(fixture.NodeB)
	_, err := f.Heartbeat(f.Context(), fixture.NodeA, dispatcher.NodeReport{}, fixture.T0)
	return err == nil
}
