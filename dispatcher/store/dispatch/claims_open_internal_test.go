package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// A node searches for old claims only while it may have some: those it remembers, or those it cannot be sure about.
func TestOldClaimsAreSearchedOnlyIfSomeMayExist(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const age = 30 * time.Second
		o := newOpenClaims()
		want := func(want bool, when string) {
			t.Helper()
			if got := o.anyBefore(time.Now().Add(-age)); got != want {
				t.Errorf("%s: there may be old claims: %t, want %t", when, got, want)
			}
		}
		fire := func(trigger int64) run.HeldRun {
			r := run.HeldRun{Token: 7, ClaimedAt: time.Now()}
			r.TriggerID, r.ScheduledAt, r.Kind, r.Attempt = trigger, time.Unix(1, 0), run.KindSchedule, 1
			return r
		}
		record := func(run run.HeldRun) []dispatcher.Record {
			return []dispatcher.Record{{Key: run.Key, Token: run.Token, Attempt: 1}}
		}
		want(true, "at the start")
		time.Sleep(time.Hour)
		want(true, "an hour later without a look")
		o.looked(time.Now(), age)
		want(false, "after a look")
		first, second := fire(1), fire(2)
		o.add([]run.HeldRun{first, second}, false)
		want(false, "with a young claim")
		time.Sleep(time.Minute)
		want(true, "with an old claim")
		o.tokens(record(first))
		o.recorded(record(first))
		o.tokens(record(second))
		o.recorded(record(second))
		want(false, "when it is recorded and deleted")
		o.add([]run.HeldRun{first, second}, false)
		o.tokens(record(first)) // neither knows of the other
		o.tokens(record(second))
		o.recorded(record(first))
		o.recorded(record(second))
		want(true, "when neither of two records at once deleted it")
		time.Sleep(time.Hour)
		o.doubted()
		time.Sleep(time.Minute)
		o.looked(time.Now(), age)
		want(true, "a minute after a claim without a response, which may still be committed")
		time.Sleep(time.Minute + age)
		o.looked(time.Now(), age)
		want(false, "after a look when that must be over")
	})
}
