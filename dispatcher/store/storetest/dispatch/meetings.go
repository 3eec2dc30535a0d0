package dispatch

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// Runs that wait for a callback, combined with broadcasts and slots of endpoints.

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

func testCallbackOfShard(t *testing.T, f *wing) {
	runs := f.Bounded(1, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1})
	f.spread(runs[0], 2)
	f.Must(f.ReleaseSlots(t.Context(), runs))
	held := f.adopted(fixture.NodeA, fixture.Token2)
	for _, shard := range held {
		f.accept(shard, shard.ScheduledAt)
	}
	f.Expect("ended while shards wait", f.endBroadcasts(runs[0].Key), 0)
	f.Expect("shards", f.shards(runs[0].Key), []string{"0/2 e0 waiting_callback #1", "1/2 e1 waiting_callback #1"})
	f.Must(f.complete(held[0].Key, 1, fixture.T0.Add(2*time.Minute)))
	f.Expect("the parent while a shard waits", f.RunOf(runs[0].Key).State, run.WaitingShards)
	f.Expect("taken", f.holders(), []int{1})
	f.Must(f.complete(held[1].Key, 1, fixture.T0.Add(3*time.Minute)))
	f.Expect("the parent", f.RunOf(runs[0].Key).State, run.Succeeded)
	f.Expect("taken", f.holders(), []int{})
}

func testCancelWaitingShards(t *testing.T, f *wing) {
	runs := f.Bounded(1, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1})
	f.spread(runs[0], 2)
	held := f.adopted(fixture.NodeA, fixture.Token2)
	f.accept(held[0], held[0].ScheduledAt)
	f.Must(f.CancelRun(t.Context(), runs[0].String(), fixture.At(fixture.T0.Add(3*time.Minute))))
	f.Expect("shards", f.shards(runs[0].Key), []string{"0/2 e0 cancelled #1", "1/2 e1 cancelled #1"})
	if err := f.complete(held[0].Key, 1, fixture.T0.Add(4*time.Minute)); err == nil {
		t.Error("a cancelled shard was completed")
	}
}

func testCallbackKeepsEndpoint(t *testing.T, f *wing) {
	runs := f.perEndpoint(2, run.ConcurrencyQueue, nil)
	f.Expect("granted", f.occupy("a", runs[0]), []string{"1a"})
	f.accept(runs[0], runs[0].ScheduledAt)
	f.Must(f.ReleaseSlots(t.Context(), runs[:1])) // the attempt is over for its node
	f.Expect("occupied while the first waits", f.occupied(), []string{"1a"})
	f.Expect("granted while the first waits", f.occupy("a", runs[1]), []string{})
	f.Must(f.complete(runs[0].Key, 1, runs[1].ScheduledAt))
	next := f.AdoptIdle(fixture.NodeA, runs[1].ScheduledAt)
	f.Expect("runs to adopt when it is complete", len(next), 1)
}

func testCallbackReplacedAtEndpoint(t *testing.T, f *wing) {
	runs := f.perEndpoint(2, run.ConcurrencyReplace, nil)
	f.Expect("granted", f.occupy("a", runs[0]), []string{"1a"})
	f.accept(runs[0], runs[0].ScheduledAt)
	f.Must(f.ReleaseSlots(t.Context(), runs[:1]))
	f.Expect("granted in place of the first", f.occupy("a", runs[1]), []string{"2a"})
	f.Expect("the first run", f.RunOf(runs[0].Key).State, run.Cancelled)
}

func testShardAtEndpoint(t *testing.T, f *wing) {
	for _, policy := range []run.ConcurrencyPolicy{run.ConcurrencyReplace, run.ConcurrencyForbid} {
		runs := f.perEndpoint(1, run.ConcurrencyQueue, func(j *dispatcher.Job) { j.ConcurrencyPolicy = policy })
		f.Expect("acquired", len(f.AcquireSlots(runs...)), 1)
		f.spread(runs[0], 2)
		f.Must(f.ReleaseSlots(t.Context(), runs))
		held := f.adopted(fixture.NodeA, fixture.Token2)
		f.Expect("one is there", len(f.occupy("a", held[0])), 1)
		f.Expect("the other waits", len(f.occupy("a", held[1])), 0)
		f.Must(f.GrantWaiting(t.Context()))
		f.Expect("the parent", f.RunOf(runs[0].Key).State, run.WaitingShards)
		f.Expect("adopted while it waits", len(f.adopted(fixture.NodeA, 81)), 0)
		f.Must(f.DrainEndpoint(t.Context(), "shop", "workers", "a", true, fixture.At(fixture.T0)))
		f.Must(f.GrantWaiting(t.Context()))
		woken := f.adopted(fixture.NodeA, 82)
		f.Expect("woken when its endpoint drains", len(woken), 1)
		f.Must(f.DrainEndpoint(t.Context(), "shop", "workers", "a", false, fixture.At(fixture.T0)))
		f.Must(f.CancelRun(t.Context(), runs[0].String(), fixture.At(fixture.T0.Add(time.Hour))))
		f.Must(f.ReleaseSlots(t.Context(), held[:1]))
		f.Must(f.ReleaseSlots(t.Context(), woken))
	}
}

func testEndpointFromDNS(t *testing.T, f *wing) {
	runs := f.perEndpoint(2, run.ConcurrencyQueue, nil)
	f.DeclareGroup(fixture.Workers(), fixture.T0) // has endpoint names
	const endpoint = "10-0-0-1-8080"
	f.Expect("taken", f.occupy(endpoint, runs[0]), []string{"1" + endpoint})
	f.Expect("waits", f.occupy(endpoint, runs[1]), []string{})
	f.Must(f.GrantWaiting(t.Context()))
	f.Expect("waits for", f.RunOf(runs[1].Key).WaitsForEndpoint, endpoint)
	f.finish(runs[0])
	f.Expect("woken when it is free", fixture.MinutesOf(f.adopted(fixture.NodeA, fixture.Token2)), []int{2})
}
