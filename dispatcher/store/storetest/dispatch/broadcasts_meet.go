package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// How broadcasts meet slots, fixed delays, dead nodes, verify, misfires, retention and pauses.

// One slot is for a broadcast as a whole, from before it is spread until its last shard has ended.
func testBroadcastSlot(t *testing.T, f *fixture) {
	runs := f.bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.expect("acquired", f.acquire(runs[0]), []int{1})
	f.spread(runs[0], 3)
	f.must(f.ReleaseSlots(t.Context(), runs[:1]))
	f.expect("taken", f.holders(), []int{1})
	f.expect("the next waits", f.acquire(runs[1]), []int{})
	held := f.adopted(nodeA, token2)
	f.expect("shards", len(held), 3)
	for _, shard := range held {
		f.expect("taken", f.holders(), []int{1})
		f.finish(shard)
	}
	f.expect("ended", f.endBroadcasts(runs[0].Key), 1)
	f.expect("taken", f.holders(), []int{})
	next := f.adopted(nodeA, 55)
	f.expect("the next is woken", minutesOf(next), []int{2})
	f.expect("acquired", f.acquire(next...), []int{2})
}

func testReplaceBroadcast(t *testing.T, f *fixture) {
	runs := f.bounded(1, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyReplace })
	f.expect("acquired", f.acquire(runs...), []int{1})
	f.spread(runs[0], 2)
	f.must(f.ReleaseSlots(t.Context(), runs[:1]))
	held := f.adopted(nodeA, token2)
	notifications := f.listen()
	newer := f.claimNext(token1)
	f.expect("the newer waits for the requests", f.acquire(newer), []int{})
	f.expect("the older", f.run(runs[0].Key).State, run.Cancelled)
	f.expect("shards", f.shards(runs[0].Key), []string{"0/2 e0 cancelled #1", "1/2 e1 cancelled #1"})
	for _, shard := range held {
		notifications.await(t, dispatcher.Notification{Run: shard.String(), Token: shard.Token, Attempt: 1})
	}
	f.finish(held[0])
	f.expect("adopted while one request is in flight", minutesOf(f.adopted(nodeA, 61)), []int{})
	f.finish(held[1])
	next := f.adopted(nodeA, 62)
	f.expect("woken", minutesOf(next), []int{2})
	f.expect("acquired", f.acquire(next...), []int{2})
	f.expect("taken", f.holders(), []int{2})
}

// A retried broadcast asks for a slot again. If it is skipped, so are its shards.
func testSkipRetriedBroadcast(t *testing.T, f *fixture) {
	runs := f.bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	f.expect("acquired", f.acquire(runs[0]), []int{1})
	f.spread(runs[0], 2)
	f.must(f.ReleaseSlots(t.Context(), runs[:1]))
	for _, shard := range f.adopted(nodeA, token2) {
		f.finishShard(shard, run.Failed)
	}
	f.expect("ended", f.endBroadcasts(runs[0].Key), 1)
	f.expect("acquired", f.acquire(runs[1]), []int{2})
	f.must(f.RetryRun(t.Context(), runs[0].String(), at(t0.Add(3*time.Minute))))
	f.expect("skipped", f.acquire(f.adopted(nodeA, 71)...), []int{})
	f.expect("the parent", f.summary(runs[0].Key), "skipped 2: 0 succeeded, 2 failed, 0 live")
}

func testBroadcastDelay(t *testing.T, f *fixture) {
	f.putDelay("tick")
	r := f.claimNext(token1)
	f.spread(r, 2)
	held := f.adopted(nodeA, token2)
	f.finishShard(held[0], run.Succeeded)
	f.expect("delays while a shard is in flight", len(f.ended()), 0)
	f.finishShard(held[1], run.Succeeded)
	f.expect("delays before the parent has ended", len(f.ended()), 0)
	f.expect("ended", f.endBroadcasts(r.Key), 1)
	ended := f.ended()
	if len(ended) != 1 || !ended[0].EndedAt.Equal(t0.Add(time.Hour)) {
		t.Errorf("ended delays: %+v, want one, from the end of the broadcast", ended)
	}
}

// The shards of a dead node are attempted again, or lost if the job wants each at most once. The parent outlives any node.
func testShardsOfTheDead(t *testing.T, f *fixture) {
	f.put(job("once", nil), t0)
	j := job("tick", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))})
	j.Delivery = dispatcher.AtMostOnce
	f.put(j, t0)
	run := f.claimNext(token1)
	f.spread(run, 3)
	held := f.adopted(nodeA, token2)
	begun, err := f.Begin(t.Context(), held[:1])
	f.must(err)
	f.expect("begun", len(begun), 1)
	f.both()
	f.must(f.Deregister(t.Context(), nodeA))
	lost, err := f.FailLostRuns(t.Context(), t0.Add(time.Hour))
	f.must(err)
	f.expect("lost", lost, 1)
	f.expect("ended while two go on", f.endBroadcasts(), 0)
	taken := f.adopted(nodeB, 91)
	f.expect("adopted", []int{taken[0].Shard, taken[1].Shard, len(taken)}, []int{2, 3, 2})
	for _, shard := range taken {
		one := record(shard, outcome(t0))
		one.Node = nodeB
		f.must(f.Record(t.Context(), []dispatcher.Record{one}))
	}
	f.expect("ended", f.endBroadcasts(), 1)
	f.expect("the parent", f.summary(run.Key), "failed 3: 2 succeeded, 1 failed, 0 live")
}

// However a parent ends, its shards do not go on.
func testOrphanedShards(t *testing.T, f *fixture) {
	r := f.failedBroadcast()
	f.must(f.RetryRun(t.Context(), r.String(), at(t0.Add(time.Minute))))
	again := f.adopted(nodeA, 77)
	f.finishShard(again[0], run.Failed) // as when its job has been deleted
	f.expect("shards", f.shards(r.Key), []string{"0/3 e0 succeeded #1", "1/3 e1 queued #1", "2/3 e2 succeeded #1"})
	f.expect("ended", f.endBroadcasts(), 0)
	f.expect("shards", f.shards(r.Key), []string{"0/3 e0 succeeded #1", "1/3 e1 cancelled #1", "2/3 e2 succeeded #1"})
}

func testVerifyBroadcast(t *testing.T, f *fixture) {
	run := f.failedBroadcast()
	now := t0.Add(90 * time.Second)
	f.expect("verify", f.audit(t0, now, now), map[string]string{"tick/tick": "1: 1 runs, 0 misfired, 0 open, 0 unexplained"})
	query := verify.ExplainQuery{App: "shop", Job: "tick", Trigger: "tick", At: run.ScheduledAt, Now: now}
	e, err := verify.Explain(t.Context(), f.Store, query)
	f.must(err)
	f.expect("verdict", e.Verdict, verify.VerdictRun)
	var steps []string
	for _, step := range e.Steps {
		steps = append(steps, step.What)
	}
	if text := strings.Join(steps, "\n"); !strings.Contains(text, "spread over 3 endpoints, a shard each") ||
		!strings.Contains(text, "2 of 3 shards succeeded; 1 of 3 shards failed: shard 1 failed: the server responded 500") {
		t.Errorf("steps:\n%s\nwant how many shards there were, and which failed", text)
	}
}

func testBroadcastCatchUp(t *testing.T, f *fixture) {
	f.putEvery("tick", time.Minute)
	a := f.nextAdvance()
	s := dispatcher.Settlement{Advance: a, To: a.Next, Count: 3, Decision: dispatcher.DecisionFireOnce, Reason: "test", CatchUp: a.Next}
	held, err := f.Settle(t.Context(), dispatcher.SettleBatch{Node: nodeA, Token: token1, Settlements: []dispatcher.Settlement{s},
		Now: a.Next.Add(time.Hour)})
	f.must(err)
	f.spread(held[0], 2)
	shards := f.adopted(nodeA, token2)
	f.expect("shards", len(shards), 2)
	for _, shard := range shards {
		r := f.run(shard.Key)
		f.expect("kind", r.Kind, run.KindCatchUp)
		if r.Missed == nil || r.Missed.Count != 3 {
			t.Errorf("a shard of a catch-up stands for %+v, want the three fires", r.Missed)
		}
		f.finishShard(shard, run.Succeeded)
	}
	f.expect("ended", f.endBroadcasts(), 1)
	now := t0.Add(90 * time.Second)
	f.expect("verify", f.audit(t0, now, now), map[string]string{"tick/tick": "1: 0 runs, 1 misfired, 0 open, 0 unexplained"})
}

func testRetentionOfBroadcasts(t *testing.T, f *fixture) {
	r := f.failedBroadcast()
	f.purge(shopEnd.Add(-time.Second))
	f.expect("the day before", f.summary(r.Key), "failed 3: 2 succeeded, 1 failed, 0 live")
	f.purge(shopEnd.Add(48 * time.Hour))
	for _, key := range []run.Key{r.Key, r.OfIndex(0), r.OfIndex(1), r.OfIndex(2)} {
		if _, err := f.Store.Run(t.Context(), key.String()); !errors.Is(err, dispatcher.ErrNotFound) {
			t.Errorf("run %s: %v, want it gone", key, err)
		}
	}
	if _, err := f.BroadcastEndpoints(t.Context(), r.Key); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("endpoints: %v, want them gone", err)
	}
}

// The nodes that record shards end the parent, all at the same time.
func testEndBroadcastRace(t *testing.T, f *fixture) {
	r := f.claimOne("tick")
	const shards = 8
	f.spread(r, shards)
	held := f.adopted(nodeA, token2)
	ended := make(chan int, shards)
	for _, shard := range held {
		go func() {
			n, err := 0, f.Record(t.Context(), []dispatcher.Record{record(shard, outcome(t0))})
			if err == nil {
				n, err = f.EndBroadcasts(t.Context(), []run.Key{r.Key}, t0.Add(time.Hour))
			}
			if err != nil {
				t.Error(err)
			}
			ended <- n
		}()
	}
	total := 0
	for range shards {
		total += <-ended
	}
	f.expect("ended", total, 1)
	f.expect("the parent", f.summary(r.Key), "succeeded 8: 8 succeeded, 0 failed, 0 live")
}

// A pause holds the retries of shards as those of other runs, and not those of a manual run.
func testHeldShards(t *testing.T, f *fixture) {
	fire := f.claimOne("tick")
	f.must(f.RequestRun(t.Context(), "shop", "tick", nil, at(t0.Add(time.Minute))))
	manual := f.adopted(nodeA, 31)[0]
	for i, r := range []run.HeldRun{fire, manual} {
		f.spread(r, 1)
		one := record(f.adopted(nodeA, run.Token(40+i))[0], run.Outcome{State: run.Failed, StartedAt: t0, EndedAt: t0})
		one.Next = &dispatcher.NextAttempt{At: t0.Add(time.Minute), Until: t0.Add(time.Hour), CountsAsFailure: true}
		f.must(f.Record(t.Context(), []dispatcher.Record{one}))
	}
	f.must(f.PauseJob(t.Context(), "shop", "tick", "", true, at(t0)))
	due, err := f.Adoptable(t.Context(), dispatcher.AdoptQuery{Node: nodeA, Limit: 10, Now: t0.Add(5 * time.Minute), Retries: true})
	f.must(err)
	if len(due) != 1 || due[0].Key != manual.OfIndex(0) {
		t.Errorf("retries of a paused job: %v, want the shard of the manual run", due)
	}
}
