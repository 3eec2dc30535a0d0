// Package storetest holds what a store must do over either database, as one suite of tests.
//
// Nothing in it sleeps: each call that depends on time is given its present.
package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
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
						test(t, newFixture(t, open(t)))
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

// tests are some tests of the suite, by name.
type tests = map[string]func(*testing.T, *fixture)

// wings returns the suite. A wing has the tests of one part of a store:
//
//   - dispatch: from a due trigger to the end of its run, on every node;
//   - definitions: what people declare and change, and who may;
//   - feeds: what is done in portions over time: backfills, bulk actions, alerts;
//   - reads: what is shown of the ledger;
//   - retention: what is removed, and when.
func wings() map[string]tests {
	return map[string]tests{
		"dispatch": join(dispatchTests(), claimTests(), dueTests(), inputTests(), retryTests(), misfireTests(), slotTests(), slotEndTests(),
			endpointSlotTests(), hostTests(), turnTests(), unfoldTests(), fleetTests(), broadcastTests(), callbackTests(), meetingTests(),
			followTests(), followBoundTests(), carriedStateTests()),
		"definitions": join(definitionTests(), boundTests(), tokenTests(), sessionTests(), calendarTests(), unusedCalendarTests(),
			auditTests(), importTests(), saltTests(), eventTests(), unchangedTests(), pendingTests(), renameTests(), switchTests(), appPauseTests(),
			groupTests()),
		"feeds": join(deadLetterTests(), alertTests(), alertObjectiveTests(), followMeetingTests(), bulkTests(), backfillTests(),
			backfillScheduleTests()),
		"reads": join(readTests(), historyTests(), objectiveTests(), stripTests(), overviewTests(), statisticsTests(),
			timelineTests()),
		"retention": retentionTests(),
	}
}

func join(parts ...tests) tests {
	all := tests{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// dispatchTests, definitionTests, readTests and retentionTests are those of files without a table of their own.
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
		"a due trigger tells the timeout of its job":             testDueTimeout,
		"a quarantined trigger does not fire":                    testQuarantine,
		"a record is fenced by token and idempotent":             testRecord,
		"responses are kept with their attempts":                 testResponses,
		"a record takes any text":                                testRecordAnyText,
		"a released run is queued and its attempt not consumed":  testRelease,
		"runs of dead nodes are adopted":                         testAdopt,
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
		"retries go on after their node died":                    testRetryOfTheDead,
		"a retrying run can be retried and cancelled by hand":    testRetryRequests,
		"a trigger is disabled by what its target answers":       testDisable,
		"a late 410 of an old revision disables nothing":         testLateGoneOfAnOldRevision,
		"a 410 of a run that is no longer held disables nothing": testGoneOfARunThatIsNoLongerHeld,
	}
}

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

func readTests() tests {
	return tests{
		"misfires are listed latest first":      testMisfires,
		"verify accounts for each fire":         testVerify,
		"verify agrees with a model":            testVerifyModel,
		"verify in pages gives the same result": testVerifyInParts,
		"verify counts a fire once":             testVerifyOwedTwice,
		"explain says what became of a fire":    testExplain,
		"explain says what the definition was":  testExplainDefinitions,
	}
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

// waitLimit is for how long a test waits for what another goroutine or the database must do.
const waitLimit = 5 * time.Minute

// t0 is the present of most tests.
var t0 = time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)

// The nodes and tokens of most tests.
const (
	nodeA  run.NodeID = 0x0a
	nodeB  run.NodeID = 0x0b
	nodeC  run.NodeID = 0x0c
	nodeD  run.NodeID = 0x0d
	token1 run.Token  = 101
	token2 run.Token  = 102
)

// inCheck leaves a test that takes long to "make check", whose step databases runs the whole suite.
func (f *fixture) inCheck() {
	f.Helper()
	if testing.Short() {
		f.Skip("SKIPPED: in make check, step databases") // also with CI=true
	}
}

// fixture is a store with an app "shop" and two active nodes.
type fixture struct {
	*testing.T
	*store.Store
	drawn atomic.Int64
}

// token returns a token for one claim: token1 first, and then others than token1 and token2.
func (f *fixture) token() run.Token {
	if n := f.drawn.Add(1); n > 1 {
		return 1000 + run.Token(n)
	}
	return token1
}

func newFixture(t *testing.T, s *store.Store) *fixture {
	f := &fixture{T: t, Store: s}
	f.putApp("shop")
	f.register(nodeA)
	return f
}

// must fails the test on an error, whatever else a call returned.
func (f *fixture) must(results ...any) {
	f.Helper()
	if err, _ := results[len(results)-1].(error); err != nil {
		f.Fatal(err)
	}
}

// at is an unconditional change.
func at(now time.Time) input.Change { return input.Change{Actor: "test", Now: now} }

func (f *fixture) putApp(name string) {
	f.Helper()
	f.must(f.PutApp(f.Context(), access.App{Name: name, AppSpec: access.AppSpec{Enabled: true}}, at(t0)))
}

// register adds a node. Where a store serves one process, the nodes before it die, so a test
// that needs two asks for them with both.
func (f *fixture) register(id run.NodeID) {
	f.Helper()
	f.must(f.Register(f.Context(), dispatcher.Node{ID: id, Name: "host", Version: "v1"}, t0))
}

// both registers nodeB too and tells whether nodeA lives on.
func (f *fixture) both() bool {
	f.Helper()
	f.register(nodeB)
	_, err := f.Heartbeat(f.Context(), nodeA, dispatcher.NodeReport{}, t0)
	return err == nil
}

// every returns a trigger that fires each interval, from start on.
func every(interval time.Duration, start time.Time) dispatcher.Trigger {
	return dispatcher.Trigger{
		TriggerSpec: dispatcher.TriggerSpec{
			Schedule:     dispatcher.Schedule{Expression: fmt.Sprintf("rate(%s)", interval), StartAt: &start},
			MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true,
		},
	}
}

// job returns a webhook job of the app "shop".
func job(name string, triggers map[string]dispatcher.Trigger) dispatcher.Job {
	return dispatcher.Job{
		App: "shop", Name: name, JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: triggers,
			Target: target.Target{Webhook: &target.Webhook{
				URL: "https://example.com/hook", Method: "POST", Timeout: target.DefaultTimeout,
				Headers: map[string]string{"x-team": "shop"},
			}},
			Payload: []byte(`{"n": 1}`)},
	}
}

// put stores a job, and checks that it reads back as the PUT returned it.
func (f *fixture) put(j dispatcher.Job, now time.Time) dispatcher.Job {
	f.Helper()
	stored, _, err := f.PutJob(f.Context(), j, at(now))
	f.must(err)
	read, err := f.Job(f.Context(), j.App, j.Name)
	f.must(err)
	if diff := cmp.Diff(read, stored); diff != "" {
		f.Error("the job as PutJob returned it (-read back +got):\n" + diff)
	}
	return stored
}

// putEvery stores a job with one trigger "tick" whose first fire is at t0 plus a minute.
func (f *fixture) putEvery(name string, interval time.Duration) dispatcher.Job {
	f.Helper()
	return f.put(job(name, map[string]dispatcher.Trigger{"tick": every(interval, t0.Add(time.Minute))}), t0)
}

// editEvery changes the description of the job that putEvery stores.
func (f *fixture) editEvery(name string, interval time.Duration) dispatcher.Job {
	f.Helper()
	edited := job(name, map[string]dispatcher.Trigger{"tick": every(interval, t0.Add(time.Minute))})
	edited.Description = "edited"
	return f.put(edited, t0)
}

// dueAll returns what is due by until, overdue or not.
func (f *fixture) dueAll(until time.Time) []dispatcher.DueTrigger {
	f.Helper()
	due, err := f.Due(f.Context(), dispatcher.DueQuery{Until: until, Now: t0, Limit: 1000})
	f.must(err)
	return due
}

// advance returns the claim of a due trigger's next fire.
func (f *fixture) advance(d dispatcher.DueTrigger) dispatcher.Advance {
	f.Helper()
	v := f.version(d.ID)
	s, err := schedule.Parse(v.Spec)
	f.must(err)
	then, _ := s.Next(d.NextFireTime)
	return dispatcher.Advance{
		TriggerID: d.ID, JobID: v.JobID, Revision: d.Revision, CalendarRevision: d.CalendarRevision,
		Prev: d.PrevFireTime, Next: d.NextFireTime, Then: then, Live: f.live(v.JobID, s),
	}
}

// version returns what was declared of a trigger.
func (f *fixture) version(trigger int64) dispatcher.TriggerVersion {
	f.Helper()
	all, err := f.TriggersByID(f.Context(), []int64{trigger})
	f.must(err)
	if len(all) != 1 {
		f.Fatalf("got %d triggers of id %d, want one", len(all), trigger)
	}
	return all[0]
}

// live tells whether the runs of a job's schedule are claimed as live runs, as the engine does.
func (f *fixture) live(job int64, s *schedule.Schedule) bool {
	f.Helper()
	jobs, err := f.JobsByID(f.Context(), []int64{job})
	f.must(err)
	_, delayed := s.FixedDelay()
	return delayed || len(jobs) == 1 && (jobs[0].Delivery == dispatcher.AtMostOnce || jobs[0].Slots() > 0)
}

// nextAdvance returns the claim of the next fire of the only trigger there is.
func (f *fixture) nextAdvance() dispatcher.Advance {
	f.Helper()
	due := f.dueAll(t0.Add(24 * time.Hour))
	if len(due) != 1 {
		f.Fatalf("got %d due triggers, want 1", len(due))
	}
	return f.advance(due[0])
}

// claim claims for nodeA, exactly at the latest of the instants.
func (f *fixture) claim(advances ...dispatcher.Advance) []run.HeldRun {
	f.Helper()
	now := t0
	for _, a := range advances {
		if a.Next.After(now) {
			now = a.Next
		}
	}
	held, err := f.Claim(f.Context(), dispatcher.ClaimBatch{Node: nodeA, Token: f.token(), Advances: advances, Now: now})
	f.must(err)
	return held
}

// claimOne stores a job and claims its first fire.
func (f *fixture) claimOne(name string) run.HeldRun {
	f.Helper()
	f.putEvery(name, time.Minute)
	for _, d := range f.dueAll(t0.Add(time.Hour)) {
		if d.ID == run.TriggerID("shop", name, "tick") {
			if held := f.claim(f.advance(d)); len(held) == 1 {
				return held[0]
			}
		}
	}
	f.Fatal("the first fire was not claimed")
	return run.HeldRun{}
}

// outcome is a success that took a second.
func outcome(start time.Time) run.Outcome {
	return run.Outcome{State: run.Succeeded, StartedAt: start, EndedAt: start.Add(time.Second), HTTPStatus: 200}
}

// superseded is the outcome of an attempt that its target refused as stale, a second after it began.
func superseded(start time.Time) run.Outcome {
	o := run.SupersededOutcome()
	o.StartedAt, o.EndedAt, o.HTTPStatus = start, start.Add(time.Second), 409
	return o
}

// record returns the record of an attempt by nodeA.
func record(held run.HeldRun, o run.Outcome) dispatcher.Record {
	return dispatcher.Record{
		Key: held.Key, JobID: held.JobID, Revision: held.Revision, ClaimedAt: held.ClaimedAt, Node: nodeA,
		Token: held.Token, Attempt: held.Attempt, Outcome: o,
	}
}

// run reads the run of a key.
func (f *fixture) run(key run.Key) run.Run {
	f.Helper()
	run, err := f.Store.Run(f.Context(), key.String())
	f.must(err)
	return run
}

// Adopt adopts what query selects, as a node does that has a place for everything.
func (f *fixture) Adopt(ctx context.Context, query dispatcher.AdoptQuery) ([]run.HeldRun, error) {
	found, err := f.Adoptable(ctx, query)
	if err != nil {
		return nil, err
	}
	return f.Store.Adopt(ctx, query, found)
}
