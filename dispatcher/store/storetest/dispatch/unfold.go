package dispatch

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// unfoldTests test claims with several fires that lose their row before all fires have ended.
func unfoldTests() tests {
	return tests{
		"a claim is deleted with its last record":                 testClaimGoes,
		"an old claim is unfolded and its node continues":         testUnfold,
		"a failed fire leaves the others in their claim":          testRetryLeavesClaim,
		"a cancelled fire does not affect the others":             testCancelLeavesClaim,
		"a released fire does not affect the others":              testReleaseLeavesClaim,
		"only open fires of a dead node's claim are adopted":      testAdoptOpenFires,
		"a record that may have been stored is stored once":       testRecordAfterError,
		"a repeated record of a claim does not bring a run back":  testRepeatedRecord,
		"a run that is retried by hand leaves its claim":          testRetryLeavesClaimByHand,
		"a claim mixes fires with rows of their own":              testMixedClaim,
		"the runs of a claim with a lost response are found once": testHeldAfterError,
		"a late result of a claim is kept":                        testLateResultOfClaim,
	}
}

// claimMany stores a job with some triggers, and claims their first fires by one claim of nodeA.
func (f *wing) claimMany(name string, fires int) []run.HeldRun {
	f.Helper()
	triggers := map[string]dispatcher.Trigger{}
	for i := range fires {
		triggers[string(rune('a'+i))] = fixture.Every(time.Minute, fixture.Minutes(1))
	}
	f.Put(fixture.Job(name, triggers), fixture.T0)
	var advances []dispatcher.Advance
	for _, d := range f.DueAll(fixture.Minutes(1)) {
		if a := f.Advance(d); a.JobID == run.JobID("shop", name) {
			advances = append(advances, a)
		}
	}
	held := f.ClaimAll(advances...)
	if len(held) != fires {
		f.Fatalf("claimed %d fires, want %d", len(held), fires)
	}
	return held
}

// unfold unfolds the claims of a node older than a minute at now, and compares their number.
func (f *wing) unfold(node run.NodeID, now time.Time, want int) {
	f.Helper()
	if got, err := f.UnfoldClaims(f.Context(), node, time.Minute, now); err != nil || got != want {
		f.Errorf("unfolded %d claims, %v, want %d", got, err, want)
	}
}

// noneOpen expects that no fire of a job is open in a claim of nodeA. The record of its last fire deletes a claim. But
// a node that has made a new connection meanwhile forgets its records, so the claim may stay, and unfolds to no runs.
func (f *wing) noneOpen(job string) {
	f.Helper()
	before := f.listed(job)
	_, err := f.UnfoldClaims(f.Context(), fixture.NodeA, time.Minute, fixture.Minutes(60))
	f.Must(err)
	f.Expect("after all claims are unfolded", f.listed(job), before)
	held, err := f.Held(f.Context(), fixture.NodeA, 0)
	f.Must(err)
	f.Expect("fires that nodeA holds", len(held), 0)
}

// records returns a success of each run.
func records(runs ...run.HeldRun) (all []dispatcher.Record) {
	for _, run := range runs {
		all = append(all, fixture.Record(run, fixture.Outcome(run.ScheduledAt)))
	}
	return all
}

// listed counts the runs of a job by state, as a list shows them.
func (f *wing) listed(name string) map[run.State]int {
	f.Helper()
	runs, err := f.Runs(f.Context(), dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 1000}})
	f.Must(err)
	states := map[run.State]int{}
	for _, run := range runs {
		states[run.State]++
	}
	return states
}

func testClaimGoes(t *testing.T, f *wing) {
	runs := f.claimMany("tick", 4)
	f.Must(f.Record(t.Context(), records(runs[:2]...)))
	f.Expect("while two are open", f.listed("tick"), map[run.State]int{run.Succeeded: 2, run.Claimed: 2})
	f.Must(f.Record(t.Context(), records(runs[2:]...)))
	f.Expect("at the end", f.listed("tick"), map[run.State]int{run.Succeeded: 4})
	f.noneOpen("tick")
}

func testUnfold(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.claimMany("tick", 3)
	f.Must(f.Record(ctx, records(runs[0])))
	f.unfold(fixture.NodeA, fixture.Minutes(2).Add(-time.Millisecond), 0)
	f.unfold(fixture.NodeB, fixture.Minutes(2), 0)
	f.unfold(fixture.NodeA, fixture.Minutes(2), 1)
	f.unfold(fixture.NodeA, fixture.Minutes(2), 0)
	held, err := f.Held(ctx, fixture.NodeA, 0)
	f.Must(err)
	want := slices.Clone(runs[1:])
	for i := range want {
		want[i].Live = true
	}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("held as live runs, under the same token (-want +got):\n%s", diff)
	}
	if got := f.AdoptIdle(fixture.NodeA, fixture.Minutes(5)); len(got) != 0 {
		t.Errorf("adopted %v, want none: the node goes on with them", got)
	}
	// The node does not know that its claim is gone.
	f.Must(f.Record(ctx, records(runs...)))
	f.Expect("recorded", f.listed("tick"), map[run.State]int{run.Succeeded: 3})
	if run := f.RunOf(runs[2].Key); run.Node == nil || *run.Node != fixture.NodeA ||
		run.Attempt != 1 || !run.ClaimedAt.Equal(fixture.Minutes(1)) {
		t.Errorf("recorded after its claim was unfolded: %+v, want the first attempt of its node", run)
	}
}

func testRetryLeavesClaim(t *testing.T, f *wing) {
	runs := f.claimMany("tick", 3)
	f.Again(runs[1], fixture.Failure(fixture.Minutes(1)), fixture.FailedUntil(fixture.Minutes(2)))
	f.Expect("after a failure", f.listed("tick"), map[run.State]int{run.Retrying: 1, run.Claimed: 2})
	second := f.AdoptRetries(fixture.Minutes(2))
	if len(second) != 1 || second[0].Attempt != 2 {
		t.Fatalf("adopted %+v, want the second attempt", second)
	}
	f.Must(f.Record(t.Context(), records(runs[0], runs[2], second[0])))
	f.Expect("at the end", f.listed("tick"), map[run.State]int{run.Succeeded: 3})
	f.noneOpen("tick")
}

func testCancelLeavesClaim(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.claimMany("tick", 3)
	notifications := f.Hear()
	cancelled, err := f.CancelRun(ctx, runs[1].String(), fixture.At(fixture.Minutes(1).Add(time.Second)))
	f.Must(err)
	if cancelled.State != run.Cancelled || len(cancelled.Attempts) != 1 {
		t.Errorf("cancelled: %+v, want it ended with its attempt", cancelled)
	}
	notifications.Await(t, dispatcher.Notification{Run: runs[1].String(), Token: runs[1].Token, Attempt: 1})
	f.Expect("after it", f.listed("tick"), map[run.State]int{run.Cancelled: 1, run.Claimed: 2})
	if got := f.AdoptIdle(fixture.NodeA, fixture.Minutes(5)); len(got) != 0 {
		t.Errorf("adopted %v, want none", got)
	}
	f.Must(f.Record(ctx, records(runs...)))
	f.Expect("at the end", f.listed("tick"), map[run.State]int{run.Cancelled: 1, run.Succeeded: 2})
	if late := f.RunOf(runs[1].Key).Attempts; len(late) != 1 || late[0].Late == nil {
		t.Errorf("attempts of the cancelled run %+v, want its result kept as late", late)
	}
}

func testReleaseLeavesClaim(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.claimMany("tick", 3)
	f.Must(f.Release(ctx, runs[:1]))
	f.Expect("released", f.listed("tick"), map[run.State]int{run.Queued: 1, run.Claimed: 2})
	again := f.AdoptIdle(fixture.NodeA, fixture.Minutes(1))
	if len(again) != 1 || again[0].Key != runs[0].Key || again[0].Attempt != 1 {
		t.Fatalf("adopted %+v, want the first attempt of what was released", again)
	}
	f.Must(f.Record(ctx, records(again[0], runs[1], runs[2])))
	f.Expect("at the end", f.listed("tick"), map[run.State]int{run.Succeeded: 3})
}

func testAdoptOpenFires(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.claimMany("tick", 4)
	f.Must(f.Record(ctx, records(runs[0])))
	f.Again(runs[1], fixture.Failure(fixture.Minutes(1)), fixture.FailedUntil(fixture.Minutes(30)))
	f.AddNode(fixture.NodeB)
	f.Must(f.Deregister(ctx, fixture.NodeA))
	adopted := f.AdoptIdle(fixture.NodeB, fixture.Minutes(5))
	if len(adopted) != 2 || adopted[0].Attempt != 2 || adopted[1].Attempt != 2 {
		t.Fatalf("adopted %+v, want the second attempts of the two that are open", adopted)
	}
	f.Expect("adopted", f.listed("tick"),
		map[run.State]int{run.Succeeded: 1, run.Retrying: 1, run.Claimed: 2})
	// The first node was only slow. It has lost the whole claim.
	f.Must(f.Record(ctx, records(runs[2:]...)))
	for _, r := range adopted {
		got := f.RunOf(r.Key)
		if lost := got.Attempts[0]; got.State != run.Claimed || lost.State != run.Lost || lost.Late == nil {
			t.Errorf("after a late result: %+v, want it with the second node", got)
		}
	}
	ours := records(adopted...)
	for i := range ours {
		ours[i].Node = fixture.NodeB
	}
	f.Must(f.Record(ctx, ours))
	f.Expect("at the end", f.listed("tick"), map[run.State]int{run.Succeeded: 3, run.Retrying: 1})
}

// A node with a failed record does not know whether it was stored, and repeats it.
func testRecordAfterError(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.claimMany("tick", 4)
	over, end := context.WithCancel(ctx)
	end()
	some := records(runs[:3]...)
	some[1].Next = &dispatcher.NextAttempt{At: fixture.Minutes(2), Until: fixture.Minutes(60), CountsAsFailure: true}
	if err := f.Record(over, some); err == nil {
		t.Fatal("a record whose context has ended succeeded")
	}
	f.Must(f.Record(ctx, some))
	f.Expect("recorded", f.listed("tick"),
		map[run.State]int{run.Succeeded: 2, run.Retrying: 1, run.Claimed: 1})
	f.Must(f.Record(ctx, records(runs[3])))
	f.Expect("at the end", f.listed("tick"), map[run.State]int{run.Succeeded: 3, run.Retrying: 1})
}

// The failed run has ended since, while its claim still exists because of another fire.
func testRepeatedRecord(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.claimMany("tick", 2)
	f.Again(runs[0], fixture.Failure(fixture.Minutes(1)), fixture.FailedUntil(fixture.Minutes(2)))
	second := f.AdoptRetries(fixture.Minutes(2))
	f.Must(f.Record(ctx, records(second...)))
	want := map[run.State]int{run.Succeeded: 1, run.Claimed: 1}
	for _, forgets := range []bool{false, true} {
		if forgets { // its knowledge of the claim
			over, end := context.WithCancel(ctx)
			end()
			if err := f.Record(over, records(runs[1])); err == nil {
				t.Fatal("a record whose context has ended succeeded")
			}
		}
		f.Again(runs[0], fixture.Failure(fixture.Minutes(1)), fixture.FailedUntil(fixture.Minutes(2)))
		f.Expect("the first failure, once more", f.listed("tick"), want)
		if got := f.AdoptRetries(fixture.Minutes(3)); len(got) != 0 {
			t.Errorf("adopted %v, want none: the run is over", got)
		}
	}
}

func testRetryLeavesClaimByHand(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.claimMany("tick", 2)
	first := records(runs[0])
	f.Must(f.Record(ctx, first))
	f.Must(f.RetryRun(ctx, runs[0].String(), fixture.At(fixture.Minutes(2))))
	f.Must(f.Record(ctx, first)) // as after an unknown outcome
	f.Expect("retried by hand", f.listed("tick"), map[run.State]int{run.Queued: 1, run.Claimed: 1})
	again := f.AdoptIdle(fixture.NodeA, fixture.Minutes(2))
	if len(again) != 1 || again[0].Attempt != 2 {
		t.Fatalf("adopted %+v, want the second attempt", again)
	}
	f.Must(f.Record(ctx, records(again[0], runs[1])))
	f.Expect("at the end", f.listed("tick"), map[run.State]int{run.Succeeded: 2})
	if got := f.RunOf(runs[0].Key); len(got.Attempts) != 2 || got.Attempts[0].Late != nil {
		t.Errorf("attempts %+v, want two and no late result", got.Attempts)
	}
}

func testMixedClaim(t *testing.T, f *wing) {
	ctx := t.Context()
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"a": fixture.Every(time.Minute, fixture.Minutes(1)),
		"b": fixture.Every(time.Minute, fixture.Minutes(1))}), fixture.T0)
	once := fixture.Job("once", map[string]dispatcher.Trigger{"c": fixture.Every(time.Minute, fixture.Minutes(1))})
	once.Delivery = dispatcher.AtMostOnce
	f.Put(once, fixture.T0)
	var advances []dispatcher.Advance
	for _, d := range f.DueAll(fixture.Minutes(1)) {
		advances = append(advances, f.Advance(d))
	}
	runs := f.ClaimAll(advances...)
	live := map[bool]int{}
	for _, r := range runs {
		live[r.Live]++
		if own := r.JobID == run.JobID("shop", "once"); r.Live != own {
			t.Errorf("run %s is live: %t, want %t", r, r.Live, own)
		}
	}
	f.Expect("claimed", live, map[bool]int{false: 2, true: 1})
	held, err := f.Held(ctx, fixture.NodeA, runs[0].Token)
	f.Must(err)
	if diff := cmp.Diff(runs, held); diff != "" {
		t.Errorf("held under the token (-want +got):\n%s", diff)
	}
	f.Must(f.Record(ctx, records(runs...)))
	f.Expect("at the end", f.listed("tick"), map[run.State]int{run.Succeeded: 2})
	f.Expect("at the end", f.listed("once"), map[run.State]int{run.Succeeded: 1})
	f.noneOpen("tick")
}

func testHeldAfterError(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.claimMany("tick", 3)
	token := runs[0].Token
	f.Must(f.Record(ctx, records(runs[0])))
	f.Again(runs[1], fixture.Failure(fixture.Minutes(1)), fixture.FailedUntil(fixture.Minutes(2)))
	held, err := f.Held(ctx, fixture.NodeA, token)
	f.Must(err)
	if diff := cmp.Diff(runs[2:], held); diff != "" {
		t.Errorf("held under the token (-want +got):\n%s", diff)
	}
	f.Must(f.Record(ctx, records(runs[2])))
	f.noneOpen("tick")
}

// The record of a node that has lost its claim is kept with the lost attempt.
func testLateResultOfClaim(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.claimMany("tick", 2)
	for _, run := range runs {
		f.Must(f.CancelRun(ctx, run.String(), fixture.At(fixture.Minutes(2))))
	}
	failed := records(runs...)
	failed[1].Next = &dispatcher.NextAttempt{At: fixture.Minutes(2), Until: fixture.Minutes(60), CountsAsFailure: true}
	f.Must(f.Record(ctx, failed))
	f.Expect("cancelled", f.listed("tick"), map[run.State]int{run.Cancelled: 2})
	late := map[run.Key]bool{}
	for _, run := range runs {
		attempts := f.RunOf(run.Key).Attempts
		late[run.Key] = len(attempts) == 1 && attempts[0].Late != nil
	}
	if slices.Contains(slices.Collect(maps.Values(late)), false) {
		t.Errorf("late results: %v, want one of each", late)
	}
}
