package dispatch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// Broadcasts combined with slots, fixed delays, dead nodes, verify, misfires, retention and pauses.

// One slot covers a whole broadcast, from before it is spread until its last shard has ended.
func testBroadcastSlot(t *testing.T, f *wing) {
	runs := f.Bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.Expect("acquired", f.AcquireSlots(runs[0]), []int{1})
	f.spread(runs[0], 3)
	f.Must(f.ReleaseSlots(t.Context(), runs[:1]))
	f.Expect("taken", f.holders(), []int{1})
	f.Expect("the next waits", f.AcquireSlots(runs[1]), []int{})
	held := f.adopted(fixture.NodeA, fixture.Token2)
	f.Expect("shards", len(held), 3)
	for _, shard := range held {
		f.Expect("taken", f.holders(), []int{1})
		f.finish(shard)
	}
	f.Expect("ended", f.endBroadcasts(runs[0].Key), 1)
	f.Expect("taken", f.holders(), []int{})
	next := f.adopted(fixture.NodeA, 55)
	f.Expect("the next is woken", fixture.MinutesOf(next), []int{2})
	f.Expect("acquired", f.AcquireSlots(next...), []int{2})
}

func testReplaceBroadcast(t *testing.T, f *wing) {
	runs := f.Bounded(1, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyReplace })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1})
	f.spread(runs[0], 2)
	f.Must(f.ReleaseSlots(t.Context(), runs[:1]))
	held := f.adopted(fixture.NodeA, fixture.Token2)
	notifications := f.Hear()
	newer := f.ClaimNext(fixture.Token1)
	f.Expect("the newer waits for the requests", f.AcquireSlots(newer), []int{})
	f.Expect("the older", f.RunOf(runs[0].Key).State, run.Cancelled)
	f.Expect("shards", f.shards(runs[0].Key), []string{"0/2 e0 cancelled #1", "1/2 e1 cancelled #1"})
	for _, shard := range held {
		notifications.Await(t, dispatcher.Notification{Run: shard.String(), Token: shard.Token, Attempt: 1})
	}
	f.finish(held[0])
	f.Expect("adopted while one request is in flight", fixture.MinutesOf(f.adopted(fixture.NodeA, 61)), []int{})
	f.finish(held[1])
	next := f.adopted(fixture.NodeA, 62)
	f.Expect("woken", fixture.MinutesOf(next), []int{2})
	f.Expect("acquired", f.AcquireSlots(next...), []int{2})
	f.Expect("taken", f.holders(), []int{2})
}

// A retried broadcast asks for a slot again. If it is skipped, its shards are skipped as well.
func testSkipRetriedBroadcast(t *testing.T, f *wing) {
	runs := f.Bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	f.Expect("acquired", f.AcquireSlots(runs[0]), []int{1})
	f.spread(runs[0], 2)
	f.Must(f.ReleaseSlots(t.Context(), runs[:1]))
	for _, shard := range f.adopted(fixture.NodeA, fixture.Token2) {
		f.finishShard(shard, run.Failed)
	}
	f.Expect("ended", f.endBroadcasts(runs[0].Key), 1)
	f.Expect("acquired", f.AcquireSlots(runs[1]), []int{2})
	f.Must(f.RetryRun(t.Context(), runs[0].String(), fixture.At(fixture.T0.Add(3*time.Minute))))
	f.Expect("skipped", f.AcquireSlots(f.adopted(fixture.NodeA, 71)...), []int{})
	f.Expect("the parent", f.summary(runs[0].Key), "skipped 2: 0 succeeded, 2 failed, 0 live")
}

func testBroadcastDelay(t *testing.T, f *wing) {
	f.putDelay("tick")
	r := f.ClaimNext(fixture.Token1)
	f.spread(r, 2)
	held := f.adopted(fixture.NodeA, fixture.Token2)
	f.finishShard(held[0], run.Succeeded)
	f.Expect("delays while a shard is in flight", len(f.DelaysToArm()), 0)
	f.finishShard(held[1], run.Succeeded)
	f.Expect("delays before the parent has ended", len(f.DelaysToArm()), 0)
	f.Expect("ended", f.endBroadcasts(r.Key), 1)
	ended := f.DelaysToArm()
	if len(ended) != 1 || !ended[0].EndedAt.Equal(fixture.T0.Add(time.Hour)) {
		t.Errorf("ended delays: %+v, want one, from the end of the broadcast", ended)
	}
}

// Shards of a dead node are attempted again, or lost if the job wants each at most once. The parent needs no node.
func testShardsOfTheDead(t *testing.T, f *wing) {
	f.Put(fixture.Job("once", nil), fixture.T0)
	j := fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	j.Delivery = dispatcher.AtMostOnce
	f.Put(j, fixture.T0)
	run := f.ClaimNext(fixture.Token1)
	f.spread(run, 3)
	held := f.adopted(fixture.NodeA, fixture.Token2)
	begun, err := f.Begin(t.Context(), held[:1])
	f.Must(err)
	f.Expect("begun", len(begun), 1)
	f.both()
	f.Must(f.Deregister(t.Context(), fixture.NodeA))
	lost, err := f.FailLostRuns(t.Context(), fixture.T0.Add(time.Hour))
	f.Must(err)
	f.Expect("lost", lost, 1)
	f.Expect("ended while two go on", f.endBroadcasts(), 0)
	taken := f.adopted(fixture.NodeB, 91)
	f.Expect("adopted", []int{taken[0].Shard, taken[1].Shard, len(taken)}, []int{2, 3, 2})
	for _, shard := range taken {
		one := fixture.Record(shard, fixture.Outcome(fixture.T0))
		one.Node = fixture.NodeB
		f.Must(f.Record(t.Context(), []dispatcher.Record{one}))
	}
	f.Expect("ended", f.endBroadcasts(), 1)
	f.Expect("the parent", f.summary(run.Key), "failed 3: 2 succeeded, 1 failed, 0 live")
}

// Shards do not continue after the end of their parent, however it ends.
func testOrphanedShards(t *testing.T, f *wing) {
	r := f.failedBroadcast()
	f.Must(f.RetryRun(t.Context(), r.String(), fixture.At(fixture.T0.Add(time.Minute))))
	again := f.adopted(fixture.NodeA, 77)
	f.finishShard(again[0], run.Failed) // as when its job has been deleted
	f.Expect("shards", f.shards(r.Key), []string{"0/3 e0 succeeded #1", "1/3 e1 queued #1", "2/3 e2 succeeded #1"})
	f.Expect("ended", f.endBroadcasts(), 0)
	f.Expect("shards", f.shards(r.Key), []string{"0/3 e0 succeeded #1", "1/3 e1 cancelled #1", "2/3 e2 succeeded #1"})
}

func testVerifyBroadcast(t *testing.T, f *wing) {
	run := f.failedBroadcast()
	now := fixture.T0.Add(90 * time.Second)
	f.Expect("verify", f.Audit(fixture.T0, now, now), map[string]string{"tick/tick": "1: 1 runs, 0 misfired, 0 open, 0 unexplained"})
	query := verify.ExplainQuery{App: "shop", Job: "tick", Trigger: "tick", At: run.ScheduledAt, Now: now}
	e, err := verify.Explain(t.Context(), f.Store, query)
	f.Must(err)
	f.Expect("verdict", e.Verdict, verify.VerdictRun)
	var steps []string
	for _, step := range e.Steps {
		steps = append(steps, step.What)
	}
	if text := strings.Join(steps, "\n"); !strings.Contains(text, "spread over 3 endpoints, a shard each") ||
		!strings.Contains(text, "2 of 3 shards succeeded; 1 of 3 shards failed: shard 1 failed: the server responded 500") {
		t.Errorf("steps:\n%s\nwant how many shards there were, and which failed", text)
	}
}

func testBroadcastCatchUp(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	a := f.NextAdvance()
	s := dispatcher.Settlement{Advance: a, To: a.Next, Count: 3, Decision: dispatcher.DecisionFireOnce, Reason: "test", CatchUp: a.Next}
	held, err := f.Settle(t.Context(), dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token1,
		Settlements: []dispatcher.Settlement{s},
		Now:         a.Next.Add(time.Hour)})
	f.Must(err)
	f.spread(held[0], 2)
	shards := f.adopted(fixture.NodeA, fixture.Token2)
	f.Expect("shards", len(shards), 2)
	for _, shard := range shards {
		r := f.RunOf(shard.Key)
		f.Expect("kind", r.Kind, run.KindCatchUp)
		if r.Missed == nil || r.Missed.Count != 3 {
			t.Errorf("a shard of a catch-up stands for %+v, want the three fires", r.Missed)
		}
		f.finishShard(shard, run.Succeeded)
	}
	f.Expect("ended", f.endBroadcasts(), 1)
	now := fixture.T0.Add(90 * time.Second)
	f.Expect("verify", f.Audit(fixture.T0, now, now), map[string]string{"tick/tick": "1: 0 runs, 1 misfired, 0 open, 0 unexplained"})
}

func testRetentionOfBroadcasts(t *testing.T, f *wing) {
	r := f.failedBroadcast()
	f.PurgeAll(fixture.ShopEnd.Add(-time.Second))
	f.Expect("the day before", f.summary(r.Key), "failed 3: 2 succeeded, 1 failed, 0 live")
	f.PurgeAll(fixture.ShopEnd.Add(48 * time.Hour))
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
func testEndBroadcastRace(t *testing.T, f *wing) {
	r := f.ClaimOne("tick")
	const shards = 8
	f.spread(r, shards)
	held := f.adopted(fixture.NodeA, fixture.Token2)
	ended := make(chan int, shards)
	for _, shard := range held {
		go func() {
			n, err := 0, f.Record(t.Context(), []dispatcher.Record{fixture.Record(shard, fixture.Outcome(fixture.T0))})
			if err == nil {
				n, err = f.EndBroadcasts(t.Context(), []run.Key{r.Key}, fixture.T0.Add(time.Hour))
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
	f.Expect("ended", total, 1)
	f.Expect("the parent", f.summary(r.Key), "succeeded 8: 8 succeeded, 0 failed, 0 live")
}

// A pause holds the retries of shards like those of other runs, but not those of a manual run.
func testHeldShards(t *testing.T, f *wing) {
	fire := f.ClaimOne("tick")
	f.Must(f.RequestRun(t.Context(), "shop", "tick", nil, fixture.At(fixture.T0.Add(time.Minute))))
	manual := f.adopted(fixture.NodeA, 31)[0]
	for i, r := range []run.HeldRun{fire, manual} {
		f.spread(r, 1)
		one := fixture.Record(f.adopted(fixture.NodeA, run.Token(40+i))[0],
			run.Outcome{State: run.Failed, StartedAt: fixture.T0, EndedAt: fixture.T0})
		one.Next = &dispatcher.NextAttempt{At: fixture.T0.Add(time.Minute), Until: fixture.T0.Add(time.Hour), CountsAsFailure: true}
		f.Must(f.Record(t.Context(), []dispatcher.Record{one}))
	}
	f.Must(f.PauseJob(t.Context(), "shop", "tick", "", true, fixture.At(fixture.T0)))
	due, err := f.Adoptable(t.Context(), dispatcher.AdoptQuery{Node: fixture.NodeA, Limit: 10, Now: fixture.T0.Add(5 * time.Minute),
		Retries: true})
	f.Must(err)
	if len(due) != 1 || due[0].Key != manual.OfIndex(0) {
		t.Errorf("retries of a paused job: %v, want the shard of the manual run", due)
	}
}
