package storetest

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// How runs that wait for a callback, broadcasts and slots of endpoints meet.

func meetingTests() tests {
	return tests{
		"a broadcast ends with the callback of its last shard":           testCallbackOfShard,
		"a cancelled broadcast cancels shards that wait for callbacks":   testCancelWaitingShards,
		"a run that waits for a callback keeps the slot of its endpoint": testCallbackKeepsEndpoint,
		"replace at an endpoint cancels a run that waits for a callback": testCallbackReplacedAtEndpoint,
		"a shard that waits for its endpoint wants no slot of the job":   testShardAtEndpoint,
		"runs wait for endpoints that only name servers know":            testEndpointFromDNS,
	}
}

func testCallbackOfShard(t *testing.T, f *fixture) {
	runs := f.bounded(1, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	f.expect("acquired", f.acquire(runs...), []int{1})
	f.spread(runs[0], 2)
	f.must(f.ReleaseSlots(t.Context(), runs))
	held := f.adopted(nodeA, token2)
	for _, shard := range held {
		f.accept(shard, shard.ScheduledAt)
	}
	f.expect("ended while shards wait", f.endBroadcasts(runs[0].Key), 0)
	f.expect("shards", f.shards(runs[0].Key), []string{"0/2 e0 waiting_callback #1", "1/2 e1 waiting_callback #1"})
	f.must(f.complete(held[0].Key, 1, t0.Add(2*time.Minute)))
	f.expect("the parent while a shard waits", f.run(runs[0].Key).State, run.WaitingShards)
	f.expect("taken", f.holders(), []int{1})
	f.must(f.complete(held[1].Key, 1, t0.Add(3*time.Minute)))
	f.expect("the parent", f.run(runs[0].Key).State, run.Succeeded)
	f.expect("taken", f.holders(), []int{})
}

func testCancelWaitingShards(t *testing.T, f *fixture) {
	runs := f.bounded(1, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	f.expect("acquired", f.acquire(runs...), []int{1})
	f.spread(runs[0], 2)
	held := f.adopted(nodeA, token2)
	f.accept(held[0], held[0].ScheduledAt)
	f.must(f.CancelRun(t.Context(), runs[0].String(), at(t0.Add(3*time.Minute))))
	f.expect("shards", f.shards(runs[0].Key), []string{"0/2 e0 cancelled #1", "1/2 e1 cancelled #1"})
	if err := f.complete(held[0].Key, 1, t0.Add(4*time.Minute)); err == nil {
		t.Error("a cancelled shard was completed")
	}
}

func testCallbackKeepsEndpoint(t *testing.T, f *fixture) {
	runs := f.perEndpoint(2, run.ConcurrencyQueue, nil)
	f.expect("granted", f.occupy("a", runs[0]), []string{"1a"})
	f.accept(runs[0], runs[0].ScheduledAt)
	f.must(f.ReleaseSlots(t.Context(), runs[:1])) // the attempt is over for its node
	f.expect("occupied while the first waits", f.occupied(), []string{"1a"})
	f.expect("granted while the first waits", f.occupy("a", runs[1]), []string{})
	f.must(f.complete(runs[0].Key, 1, runs[1].ScheduledAt))
	next := f.adoptIdle(nodeA, runs[1].ScheduledAt)
	f.expect("runs to adopt when it is complete", len(next), 1)
}

func testCallbackReplacedAtEndpoint(t *testing.T, f *fixture) {
	runs := f.perEndpoint(2, run.ConcurrencyReplace, nil)
	f.expect("granted", f.occupy("a", runs[0]), []string{"1a"})
	f.accept(runs[0], runs[0].ScheduledAt)
	f.must(f.ReleaseSlots(t.Context(), runs[:1]))
	f.expect("granted in place of the first", f.occupy("a", runs[1]), []string{"2a"})
	f.expect("the first run", f.run(runs[0].Key).State, run.Cancelled)
}

func testShardAtEndpoint(t *testing.T, f *fixture) {
	for _, policy := range []run.ConcurrencyPolicy{run.ConcurrencyReplace, run.ConcurrencyForbid} {
		runs := f.perEndpoint(1, run.ConcurrencyQueue, func(j *dispatcher.Job) { j.ConcurrencyPolicy = policy })
		f.expect("acquired", len(f.acquire(runs...)), 1)
		f.spread(runs[0], 2)
		f.must(f.ReleaseSlots(t.Context(), runs))
		held := f.adopted(nodeA, token2)
		f.expect("one is there", len(f.occupy("a", held[0])), 1)
		f.expect("the other waits", len(f.occupy("a", held[1])), 0)
		f.must(f.GrantWaiting(t.Context()))
		f.expect("the parent", f.run(runs[0].Key).State, run.WaitingShards)
		f.expect("adopted while it waits", len(f.adopted(nodeA, 81)), 0)
		f.must(f.DrainEndpoint(t.Context(), "shop", "workers", "a", true, at(t0)))
		f.must(f.GrantWaiting(t.Context()))
		woken := f.adopted(nodeA, 82)
		f.expect("woken when its endpoint drains", len(woken), 1)
		f.must(f.DrainEndpoint(t.Context(), "shop", "workers", "a", false, at(t0)))
		f.must(f.CancelRun(t.Context(), runs[0].String(), at(t0.Add(time.Hour))))
		f.must(f.ReleaseSlots(t.Context(), held[:1]))
		f.must(f.ReleaseSlots(t.Context(), woken))
	}
}

func testEndpointFromDNS(t *testing.T, f *fixture) {
	runs := f.perEndpoint(2, run.ConcurrencyQueue, nil)
	f.putGroup(workers(), t0) // which has names
	const endpoint = "10-0-0-1-8080"
	f.expect("taken", f.occupy(endpoint, runs[0]), []string{"1" + endpoint})
	f.expect("waits", f.occupy(endpoint, runs[1]), []string{})
	f.must(f.GrantWaiting(t.Context()))
	f.expect("waits for", f.run(runs[1].Key).WaitsForEndpoint, endpoint)
	f.finish(runs[0])
	f.expect("woken when it is free", minutesOf(f.adopted(nodeA, token2)), []int{2})
}
