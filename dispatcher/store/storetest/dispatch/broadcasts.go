package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// broadcastTests test runs that are spread over the endpoints of a group.
func broadcastTests() tests {
	return tests{
		"a broadcast has a shard for each endpoint":                  testBroadcast,
		"a broadcast is spread by the node that holds it":            testBroadcastFence,
		"shards are adopted in pages":                                testShardPages,
		"a retried shard goes alone":                                 testRetryShard,
		"a retried broadcast repeats the shards that failed":         testRetryBroadcast,
		"a cancelled broadcast cancels its shards":                   testCancelBroadcast,
		"a cancelled shard ends its broadcast if it was the last":    testCancelShard,
		"a broadcast has one slot":                                   testBroadcastSlot,
		"a replaced broadcast keeps its slot until its shards stop":  testReplaceBroadcast,
		"a skipped broadcast cancels the shards that a retry queued": testSkipRetriedBroadcast,
		"a fixed delay counts from the end of a broadcast":           testBroadcastDelay,
		"shards of a dead node continue":                             testShardsOfTheDead,
		"shards end with their broadcast":                            testOrphanedShards,
		"a broadcast counts as one fire":                             testVerifyBroadcast,
		"a catch-up is one broadcast":                                testBroadcastCatchUp,
		"shards are removed with their broadcast":                    testRetentionOfBroadcasts,
		"a broadcast with stale shards is superseded":                testSupersededShards,
		"a broadcast is ended once":                                  testEndBroadcastRace,
		"pauses hold retries of shards":                              testHeldShards,
	}
}

// spread spreads a run of nodeA over endpoints e0, e1 and so on.
func (f *wing) spread(run run.HeldRun, endpoints int) {
	f.Helper()
	held, err := f.Broadcast(f.Context(), run, endpointIDs(endpoints), run.ScheduledAt.Add(time.Second))
	f.Must(err)
	if !held {
		f.Fatalf("run %s was not spread", run)
	}
}

func endpointIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("e%d", i)
	}
	return ids
}

// shards lists the shards of a run as index, state, attempt.
func (f *wing) shards(parent run.Key) []string {
	f.Helper()
	runs, err := f.Runs(f.Context(), dispatcher.RunQuery{App: "shop", Parent: parent.String(), Page: input.Page{Limit: 1000}})
	f.Must(err)
	list := []string{}
	for _, run := range slices.Backward(runs) {
		list = append(list, fmt.Sprintf("%d/%d %s %s #%d", run.Shard.Index, run.Shard.Total, run.Shard.Endpoint, run.State, run.Attempt))
	}
	return list
}

// finishShard records a shard in a state.
func (f *wing) finishShard(r run.HeldRun, state run.State) {
	f.Helper()
	o := fixture.Outcome(r.ScheduledAt.Add(2 * time.Second))
	if o.State = state; state == run.Superseded {
		o = fixture.Superseded(o.StartedAt)
	} else if state != run.Succeeded {
		o.HTTPStatus, o.Class, o.Error = 500, run.ClassHTTP5xx, "the server responded 500"
	}
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(r, o)}))
}

// endBroadcasts ends finished broadcasts among some, or all.
func (f *wing) endBroadcasts(parents ...run.Key) int {
	f.Helper()
	n, err := f.EndBroadcasts(f.Context(), parents, fixture.T0.Add(time.Hour))
	f.Must(err)
	return n
}

// summary is the state of a run and the counts of its shards.
func (f *wing) summary(key run.Key) string {
	f.Helper()
	run := f.RunOf(key)
	text := string(run.State)
	if run.Shards != nil {
		text += fmt.Sprintf(" %d: %d succeeded, %d failed, %d live", run.Shards.Total, run.Shards.Succeeded, run.Shards.Failed, run.Shards.Live)
	}
	return text
}

func testBroadcast(t *testing.T, f *wing) {
	r := f.ClaimOne("tick") // in a claim, without its own row
	f.spread(r, 3)
	again, err := f.Broadcast(t.Context(), r, endpointIDs(5), fixture.T0)
	f.Must(err)
	f.Expect("held at the second call", again, false)
	f.Expect("the parent", f.summary(r.Key), "waiting_shards 3: 0 succeeded, 0 failed, 3 live")
	f.Expect("shards", f.shards(r.Key), []string{"0/3 e0 queued #0", "1/3 e1 queued #0", "2/3 e2 queued #0"})
	listed, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 10}})
	f.Must(err)
	if len(listed) != 1 || listed[0].ID != r.String() {
		t.Errorf("the list of runs is %+v, want the parent alone", listed)
	}
	held := f.adopted(fixture.NodeA, fixture.Token2)
	events := map[string]bool{f.RunOf(r.Key).EventID: true}
	for i, shard := range held {
		f.Expect("key", shard.Key, r.OfIndex(i))
		one := f.RunOf(shard.Key)
		events[one.EventID] = true
		f.Expect("its parent", one.Parent, r.String())
		f.Expect("which it is", *one.Shard, run.Shard{Index: i, Total: 3, Endpoint: fmt.Sprint("e", i)})
	}
	f.Expect("event ids", len(events), 4)
	f.finishShard(held[0], run.Succeeded)
	f.finishShard(held[2], run.Failed)
	f.Expect("ended while one is in flight", f.endBroadcasts(r.Key), 0)
	f.finishShard(held[1], run.TimedOut)
	f.Expect("ended", f.endBroadcasts(r.Key), 1)
	f.Expect("ended again", f.endBroadcasts(), 0)
	f.Expect("the parent", f.summary(r.Key), "failed 3: 1 succeeded, 2 failed, 0 live")
	parent := f.RunOf(r.Key)
	f.Expect("why", parent.Error,
		"2 of 3 shards failed: shard 1 timed_out: the server responded 500; shard 2 failed: the server responded 500")
	f.Expect("class", parent.Class, run.ClassHTTP5xx)
	if parent.Node != nil || parent.StartedAt == nil || parent.EndedAt == nil || len(parent.Attempts) != 0 {
		t.Errorf("the parent is %+v, want it without attempts of its own", parent)
	}
}

// A shard refused as stale has not failed. The broadcast has not succeeded either, and a retry repeats that shard.
func testSupersededShards(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	for _, tt := range []struct {
		ends []run.State
		want string
		live int // shards, once the broadcast is retried
	}{
		{[]run.State{run.Succeeded, run.Superseded}, "superseded 2: 1 succeeded, 0 failed, 0 live", 1},
		{[]run.State{run.Superseded, run.Superseded}, "superseded 2: 0 succeeded, 0 failed, 0 live", 2},
		{[]run.State{run.Superseded, run.Failed}, "failed 2: 0 succeeded, 1 failed, 0 live", 2},
	} {
		r := f.FireOf("tick")
		f.spread(r, 2)
		for i, shard := range f.adopted(fixture.NodeA, fixture.Token2) {
			f.finishShard(shard, tt.ends[i])
		}
		f.endBroadcasts(r.Key)
		f.Expect("the parent", f.summary(r.Key), tt.want)
		parent := f.RunOf(r.Key)
		if stale := parent.State == run.Superseded; stale != (parent.Class == "") || parent.Error == "" {
			t.Errorf("a parent that is %s has class %q and error %q", parent.State, parent.Class, parent.Error)
		}
		f.Must(f.RetryRun(t.Context(), r.String(), fixture.At(r.ScheduledAt)))
		f.Expect("live shards of the retry", f.RunOf(r.Key).Shards.Live, tt.live)
		f.Must(f.CancelRun(t.Context(), r.String(), fixture.At(r.ScheduledAt)))
	}
}

// Only the node that holds a run spreads it, in the attempt that it holds.
func testBroadcastFence(t *testing.T, f *wing) {
	run := f.ClaimOne("tick")
	other := run
	other.Token, other.Live = fixture.Token2, true
	held, err := f.Broadcast(t.Context(), other, endpointIDs(2), fixture.T0)
	f.Must(err)
	f.Expect("held under another token", held, false)
	other = run
	other.JobID++
	held, err = f.Broadcast(t.Context(), other, endpointIDs(2), fixture.T0)
	f.Must(err)
	f.Expect("held as a run of another job", held, false)
	f.Expect("shards", f.shards(run.Key), []string{})
	if _, err := f.BroadcastEndpoints(t.Context(), run.OfIndex(0)); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("endpoints of a run that was not spread: %v, want ErrNotFound", err)
	}
	f.spread(run, 2)
	endpoints, err := f.BroadcastEndpoints(t.Context(), run.OfIndex(1))
	f.Must(err)
	f.Expect("endpoints", endpoints, []string{"e0", "e1"})
}

// The shards of a run differ only in their kind, by which a page must continue.
func testShardPages(t *testing.T, f *wing) {
	r := f.ClaimOne("tick")
	f.spread(r, 7)
	query := dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 3, Now: fixture.T0.Add(time.Hour)}
	var found []int
	for range 4 {
		page, err := f.Adoptable(t.Context(), query)
		f.Must(err)
		for _, one := range page {
			found = append(found, one.Shard-1)
			query.After = map[int64]dispatcher.Adoptable{one.AppID: one}
		}
	}
	f.Expect("indexes", found, []int{0, 1, 2, 3, 4, 5, 6})
	// Retries of all of them are due at once.
	held := f.adopted(fixture.NodeA, fixture.Token2)
	next := dispatcher.NextAttempt{At: fixture.T0.Add(time.Minute), Until: fixture.T0.Add(time.Hour), CountsAsFailure: true}
	for _, shard := range held {
		one := fixture.Record(shard, run.Outcome{State: run.Failed, StartedAt: fixture.T0, EndedAt: fixture.T0, Class: run.ClassHTTP5xx})
		one.Next = &next
		f.Must(f.Record(t.Context(), []dispatcher.Record{one}))
	}
	query.Retries, query.After, query.Now, found = true, nil, fixture.T0.Add(2*time.Minute), nil
	for range 4 {
		page, err := f.Adoptable(t.Context(), query)
		f.Must(err)
		for _, one := range page {
			found = append(found, one.Shard-1)
			query.After = map[int64]dispatcher.Adoptable{one.AppID: one}
		}
	}
	f.Expect("indexes of retries", found, []int{0, 1, 2, 3, 4, 5, 6})
	f.Expect("the parent", f.summary(r.Key), "waiting_shards 7: 0 succeeded, 0 failed, 7 live")
}

// failedBroadcast returns a broadcast of three shards, the second of which failed.
func (f *wing) failedBroadcast() run.HeldRun {
	f.Helper()
	r := f.ClaimOne("tick")
	f.spread(r, 3)
	for i, shard := range f.adopted(fixture.NodeA, fixture.Token2) {
		f.finishShard(shard, []run.State{run.Succeeded, run.Failed, run.Succeeded}[i])
	}
	f.Expect("ended", f.endBroadcasts(r.Key), 1)
	return r
}

func testRetryShard(t *testing.T, f *wing) {
	r := f.failedBroadcast()
	retried, err := f.RetryRun(t.Context(), r.OfIndex(1).String(), fixture.At(fixture.T0.Add(time.Minute)))
	f.Must(err)
	f.Expect("the shard", retried.State, run.Queued)
	f.Expect("the parent", f.summary(r.Key), "queued 3: 2 succeeded, 0 failed, 1 live")
	f.goOn(r, run.Succeeded)
	f.Expect("the parent", f.summary(r.Key), "succeeded 3: 3 succeeded, 0 failed, 0 live")
	attempts := f.RunOf(r.OfIndex(1)).Attempts
	if len(attempts) != 2 || attempts[0].State != run.Failed || attempts[1].State != run.Succeeded {
		t.Errorf("attempts of the shard: %+v, want both", attempts)
	}
	f.Expect("of its neighbour", len(f.RunOf(r.OfIndex(0)).Attempts), 1)
}

// goOn spreads a retried broadcast over other endpoints, and ends its second shard.
func (f *wing) goOn(run run.HeldRun, state run.State) {
	f.Helper()
	again := f.adopted(fixture.NodeA, 77)
	if len(again) != 1 || again[0].Key != run.Key {
		f.Fatalf("adopted %v, want the parent alone, for its shard waits for it", again)
	}
	f.spread(again[0], 9)
	f.Expect("shards", f.shards(run.Key), []string{"0/3 e0 succeeded #1", "1/3 e1 queued #1", "2/3 e2 succeeded #1"})
	shards := f.adopted(fixture.NodeA, 78)
	if len(shards) != 1 || shards[0].Key != run.OfIndex(1) || shards[0].Attempt != 2 {
		f.Fatalf("adopted %+v, want the second attempt of the second shard", shards)
	}
	f.finishShard(shards[0], state)
	f.Expect("ended", f.endBroadcasts(run.Key), 1)
}

func testRetryBroadcast(t *testing.T, f *wing) {
	r := f.failedBroadcast()
	f.Must(f.RetryRun(t.Context(), r.String(), fixture.At(fixture.T0.Add(time.Minute))))
	f.Expect("the parent", f.summary(r.Key), "queued 3: 2 succeeded, 0 failed, 1 live")
	f.goOn(r, run.Succeeded)
	// No shard failed, so all of them are repeated. While it waits for its shards, it cannot be retried.
	f.Must(f.RetryRun(t.Context(), r.String(), fixture.At(fixture.T0.Add(time.Minute))))
	f.Expect("the parent", f.summary(r.Key), "queued 3: 0 succeeded, 0 failed, 3 live")
	f.spread(f.adopted(fixture.NodeA, 80)[0], 1)
	f.Expect("adopted", len(f.adopted(fixture.NodeA, 81)), 3)
	if _, err := f.RetryRun(t.Context(), r.String(), fixture.At(fixture.T0)); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("retry of a broadcast under way: %v, want ErrConflict", err)
	}
}

func testCancelBroadcast(t *testing.T, f *wing) {
	r := f.ClaimOne("tick")
	f.spread(r, 3)
	held := f.adopted(fixture.NodeA, fixture.Token2)
	f.finishShard(held[0], run.Succeeded)
	notifications := f.Hear()
	cancelled, err := f.CancelRun(t.Context(), r.String(), fixture.At(fixture.T0.Add(2*time.Minute)))
	f.Must(err)
	f.Expect("the parent", cancelled.State, run.Cancelled)
	f.Expect("shards", f.shards(r.Key), []string{"0/3 e0 succeeded #1", "1/3 e1 cancelled #1", "2/3 e2 cancelled #1"})
	for _, shard := range held[1:] {
		notifications.Await(t, dispatcher.Notification{Run: shard.String(), Token: shard.Token, Attempt: 1})
	}
	f.finishShard(held[1], run.Succeeded)
	if late := f.RunOf(held[1].Key).Attempts; len(late) != 1 || late[0].Late == nil {
		t.Errorf("attempts of a cancelled shard: %+v, want its late result", late)
	}
	f.Expect("ended", f.endBroadcasts(), 0)
}

func testCancelShard(t *testing.T, f *wing) {
	run := f.ClaimOne("tick")
	f.spread(run, 2)
	held := f.adopted(fixture.NodeA, fixture.Token2)
	f.Must(f.CancelRun(t.Context(), held[1].String(), fixture.At(fixture.T0.Add(2*time.Minute))))
	f.Expect("the parent", f.summary(run.Key), "waiting_shards 2: 0 succeeded, 1 failed, 1 live")
	f.Must(f.CancelRun(t.Context(), held[0].String(), fixture.At(fixture.T0.Add(2*time.Minute))))
	f.Expect("the parent", f.summary(run.Key), "failed 2: 0 succeeded, 2 failed, 0 live")
	f.Expect("why", f.RunOf(run.Key).Error,
		"2 of 2 shards failed: shard 0 cancelled: cancelled on request; shard 1 cancelled: cancelled on request")
}
