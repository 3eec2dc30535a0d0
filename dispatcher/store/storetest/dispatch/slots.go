package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// slotTests are those of jobs that bound how many runs there may be at once.
func slotTests() tests {
	return tests{
		"forbid skips runs while a slot is taken":               testSlotsForbid,
		"queue makes runs wait for a slot":                      testSlotsQueue,
		"replace cancels the run that has the slot":             testSlotsReplace,
		"replace skips nothing for a run that never asks":       testSlotsReplaceNone,
		"several slots are granted in order":                    testSlotsOfSeveral,
		"a dead node's slots are granted on":                    testSlotsOfTheDead,
		"a cancelled run keeps its slot until its request ends": testSlotsOfCancelled,
		"slots left behind are granted to waiting runs":         testSlotsLeftBehind,
		"fixed delays use slots":                                testSlotsOfDelays,
		"a retrying run keeps its slot":                         testSlotsOfRetries,
	}
}

// bounded stores a job "tick" of a policy that fires each minute from t0 on, and claims its next
// fires, each under a token of its own, by nodeA.
func (f *fixture) bounded(fires int, change func(*dispatcher.Job)) []run.HeldRun {
	f.Helper()
	j := job("tick", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))})
	change(&j)
	f.put(j, t0)
	held := make([]run.HeldRun, fires)
	for i := range held {
		held[i] = f.claimNext(run.Token(1000 + i))
	}
	return held
}

// claimNext claims the next fire of the only trigger for nodeA.
func (f *fixture) claimNext(token run.Token) run.HeldRun {
	f.Helper()
	a := f.nextAdvance()
	won, err := f.Claim(f.Context(), dispatcher.ClaimBatch{Node: nodeA, Token: token, Advances: []dispatcher.Advance{a}, Now: a.Next})
	f.must(err)
	if len(won) != 1 {
		f.Fatalf("claimed %v, want the next fire", won)
	}
	return won[0]
}

// acquire asks for slots and returns who got one, as minutes after t0.
func (f *fixture) acquire(runs ...run.HeldRun) []int {
	f.Helper()
	granted, err := f.Acquire(f.Context(), runs)
	f.must(err)
	return minutesOf(granted)
}

func minutesOf(runs []run.HeldRun) []int {
	at := []int{}
	for _, run := range runs {
		at = append(at, int(run.ScheduledAt.Sub(t0)/time.Minute))
	}
	slices.Sort(at)
	return at
}

// finish records a run of nodeA and gives its slot back.
func (f *fixture) finish(r run.HeldRun) {
	f.Helper()
	f.must(f.Record(f.Context(), []dispatcher.Record{record(r, outcome(r.ScheduledAt))}))
	f.must(f.ReleaseSlots(f.Context(), []run.HeldRun{r}))
}

// adopted adopts for a node what there is.
func (f *fixture) adopted(node run.NodeID, token run.Token) []run.HeldRun {
	f.Helper()
	runs, err := f.Adopt(f.Context(), dispatcher.AdoptQuery{Node: node, Token: token, Limit: 100, Now: t0.Add(time.Hour)})
	f.must(err)
	return runs
}

// holders returns the slots of the job "tick" as minutes after t0.
func (f *fixture) holders() []int {
	f.Helper()
	taken, err := f.Slots(f.Context(), "shop", "tick")
	f.must(err)
	at := []int{}
	for _, slot := range taken {
		key, err := run.ParseKey(slot.Run)
		f.must(err)
		at = append(at, int(key.ScheduledAt.Sub(t0)/time.Minute))
	}
	return at
}

// expect compares what a test found.
func (f *fixture) expect(what string, got, want any) {
	f.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// states returns the states of runs.
func (f *fixture) states(runs []run.HeldRun) (states []run.State) {
	f.Helper()
	for _, run := range runs {
		states = append(states, f.run(run.Key).State)
	}
	return states
}

func testSlotsForbid(t *testing.T, f *fixture) {
	runs := f.bounded(3, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	// The later asks first: the earlier is only about to begin, and it is its turn.
	f.expect("the second", f.acquire(runs[1]), []int{})
	f.expect("the first", f.acquire(runs[0]), []int{1})
	f.expect("the first once more", f.acquire(runs[0]), []int{1})
	f.expect("the third", f.acquire(runs[2]), []int{})
	f.expect("slots", f.holders(), []int{1})
	f.expect("states", f.states(runs), []run.State{run.Claimed, run.Skipped, run.Skipped})
	skipped := f.run(runs[2].Key)
	if want := fmt.Sprintf("run %s has the slot on node %s", runs[0], nodeA); skipped.Error != want ||
		skipped.Class != "" || skipped.EndedAt == nil || len(skipped.Attempts) != 0 {
		t.Errorf("skipped run %+v, want it ended without an attempt or a failure, and error %q", skipped, want)
	}
	f.finish(runs[0])
	f.expect("slots at the end", f.holders(), []int{})
	f.expect("the next", f.acquire(f.claimNext(token1)), []int{4})
	if got := f.adopted(nodeA, token2); len(got) != 0 {
		t.Errorf("adopted %v, want none: what was skipped is over", got)
	}
	// Who does not hold its run any more gets no slot for it.
	stranger := f.claimNext(token1)
	stranger.Token = token2
	f.expect("a stranger", f.acquire(stranger), []int{})
}

func testSlotsQueue(t *testing.T, f *fixture) {
	runs := f.bounded(5, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.QueueLimit = run.ConcurrencyQueue, 2 })
	f.expect("out of turn", f.acquire(runs[2], runs[1]), []int{})
	f.expect("first", f.acquire(runs[0], runs[3], runs[4]), []int{1})
	f.expect("states", f.states(runs), []run.State{
		run.Claimed, run.Queued, run.Queued, run.Skipped, run.Skipped,
	})
	if got := f.run(runs[4].Key).Error; !strings.HasPrefix(got, "2 runs wait already") || !strings.Contains(got, runs[0].String()) {
		t.Errorf("beyond the limit: error %q, want it to say so and to name the holder", got)
	}
	if waits := f.run(runs[1].Key); waits.Node != nil || waits.Attempt != 0 || waits.ClaimedAt != nil {
		t.Errorf("a run that waits is %+v, want it with nobody, its attempt not consumed", waits)
	}
	if got := f.adopted(nodeA, token1); len(got) != 0 {
		t.Errorf("adopted %v, want none while they wait for the slot", got)
	}
	query := dispatcher.RunQuery{App: "shop", Job: "tick", State: run.Queued, Page: input.Page{Limit: 10}}
	if listed, err := f.Runs(t.Context(), query); err != nil || len(listed) != 2 {
		t.Errorf("listed %d that wait, %v, want 2", len(listed), err)
	}
	last := runs[0]
	for minute := 2; minute <= 3; minute++ {
		f.finish(last)
		next := f.adopted(nodeA, run.Token(minute))
		f.expect("roused", minutesOf(next), []int{minute})
		f.expect("acquired in order", f.acquire(next...), []int{minute})
		f.expect("slots", f.holders(), []int{minute})
		last = next[0]
	}
	f.finish(last)
	f.expect("slots at the end", f.holders(), []int{})
}

// A run that was claimed may end before it asks for a slot. The run before it is not skipped in its favor, and goes once it is gone.
func testSlotsReplaceNone(_ *testing.T, f *fixture) {
	runs := f.bounded(3, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyReplace })
	f.expect("the first waits", f.acquire(runs[0]), []int{})
	f.expect("so does the second", f.acquire(runs[1]), []int{})
	f.expect("which replaces the first", f.states(runs), []run.State{run.Skipped, run.Queued,
		run.Claimed})
	if got := f.run(runs[0].Key).Error; got != "replaced by run "+runs[1].String()+" before it began" {
		f.Errorf("the first run says %q, want the run that asked", got)
	}
	f.must(f.CancelRun(f.Context(), runs[2].String(), at(runs[2].ScheduledAt)))
	f.must(f.GrantWaiting(f.Context()))
	next := f.adopted(nodeA, 7)
	f.expect("roused", minutesOf(next), []int{2})
	f.expect("acquired", f.acquire(next...), []int{2})
	f.finish(next[0])
	f.expect("slots at the end", f.holders(), []int{})
}

func testSlotsReplace(t *testing.T, f *fixture) {
	runs := f.bounded(4, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyReplace })
	notifications := f.listen()
	f.expect("not while a later one is about to begin", f.acquire(runs[0]), []int{})
	f.expect("it waits, for the later one may end before it asks", f.states(runs[:1]), []run.State{run.Queued})
	f.expect("nor the next", f.acquire(runs[1], runs[2]), []int{})
	f.expect("the latest", f.acquire(runs[3]), []int{4})
	f.expect("states", f.states(runs), []run.State{run.Skipped, run.Skipped,
		run.Skipped, run.Claimed})
	newer := f.claimNext(token1)
	f.expect("a newer one waits", f.acquire(newer), []int{})
	replaced := f.run(runs[3].Key)
	if replaced.State != run.Cancelled || replaced.Error != "replaced by run "+newer.String() || len(replaced.Attempts) != 1 {
		t.Errorf("the older run is %+v, want it cancelled, and to say by whom", replaced)
	}
	notifications.await(t, dispatcher.Notification{Run: runs[3].String(), Token: runs[3].Token, Attempt: 1})
	f.expect("the slot is not free before its request is given up", f.holders(), []int{4})
	newest := f.claimNext(token2)
	f.expect("an even newer one waits", f.acquire(newest), []int{})
	f.expect("and the one between is over", f.states([]run.HeldRun{newer}), []run.State{run.Skipped})
	if got := f.adopted(nodeA, 7); len(got) != 0 {
		t.Errorf("adopted %v, want none while the request is in flight", got)
	}
	f.finish(runs[3])
	if late := f.run(runs[3].Key).Attempts; len(late) != 1 || late[0].Late == nil {
		t.Errorf("attempts of the replaced run: %+v, want its result kept with it", late)
	}
	next := f.adopted(nodeA, 8)
	f.expect("roused", minutesOf(next), []int{6})
	f.expect("acquired", f.acquire(next...), []int{6})
}

// With several slots all policies count to that; allow with a bound waits as queue does.
func testSlotsOfSeveral(t *testing.T, f *fixture) {
	for policy, want := range map[run.ConcurrencyPolicy][]run.State{
		run.ConcurrencyAllow:   {run.Claimed, run.Claimed, run.Queued, run.Queued},
		run.ConcurrencyQueue:   {run.Claimed, run.Claimed, run.Queued, run.Queued},
		run.ConcurrencyForbid:  {run.Claimed, run.Claimed, run.Skipped, run.Skipped},
		run.ConcurrencyReplace: {run.Skipped, run.Skipped, run.Claimed, run.Claimed},
	} {
		runs := f.bounded(4, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = policy, 2 })
		f.acquire(runs...)
		f.expect("states with "+string(policy), f.states(runs), want)
		if n := len(f.holders()); n != 2 {
			t.Errorf("%s: %d slots are taken, want 2", policy, n)
		}
		for round := 0; len(f.holders()) > 0 && round < 4; round++ {
			for _, run := range runs {
				f.finish(run)
			}
			runs = f.adopted(nodeA, run.Token(10*round+50))
			f.acquire(runs...)
		}
		f.expect("slots at the end of "+string(policy), f.holders(), []int{})
	}
}

// A slot passes on with its run, and what is lost with its node is free.
func testSlotsOfTheDead(t *testing.T, f *fixture) {
	ctx := t.Context()
	runs := f.bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.expect("acquired", f.acquire(runs...), []int{1})
	f.both()
	f.must(f.Deregister(ctx, nodeA))
	taken := f.adopted(nodeB, token1)
	f.expect("adopted", minutesOf(taken), []int{1})
	f.expect("goes on with its slot", f.acquire(taken...), []int{1})
	if slots, err := f.Slots(ctx, "shop", "tick"); err != nil || len(slots) != 1 || slots[0].Node == nil || *slots[0].Node != nodeB {
		t.Errorf("slots %+v, %v, want one, with the second node", slots, err)
	}
	// The first node was only slow. What it says of its attempt is not about the slot.
	f.finish(runs[0])
	f.expect("slots after a late result", f.holders(), []int{1})
	// The second dies when the request of a job that wants it at most once may have been sent.
	f.must(f.Begin(ctx, taken))
	f.register(nodeC)
	f.must(f.Deregister(ctx, nodeB))
	f.must(f.FailLostRuns(ctx, t0.Add(time.Hour)))
	f.must(f.GrantWaiting(ctx))
	next := f.adopted(nodeC, token2)
	f.expect("roused", minutesOf(next), []int{2})
	f.expect("acquired by the third", f.acquire(next...), []int{2})
}

// A run that is cancelled keeps its slot while its request may be in flight, also where it is asked for again.
func testSlotsOfCancelled(t *testing.T, f *fixture) {
	ctx := t.Context()
	runs := f.bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.expect("acquired", f.acquire(runs...), []int{1})
	f.must(f.CancelRun(ctx, runs[0].String(), at(t0)))
	f.must(f.GrantWaiting(ctx))
	f.expect("slots", f.holders(), []int{1})
	f.must(f.RetryRun(ctx, runs[0].String(), at(t0)))
	again := f.adopted(nodeA, token1)
	f.expect("adopted again", minutesOf(again), []int{1})
	f.expect("not while the first attempt may be in flight", f.acquire(again...), []int{})
	f.finish(runs[0])
	again = f.adopted(nodeA, token2)
	f.expect("roused", minutesOf(again), []int{1})
	f.expect("acquired", f.acquire(again...), []int{1})
	f.finish(again[0])
	f.expect("then the other", minutesOf(f.adopted(nodeA, 9)), []int{2})
}

// What a node recorded and did not give back, because it died then, is passed on.
func testSlotsLeftBehind(t *testing.T, f *fixture) {
	ctx := t.Context()
	runs := f.bounded(3, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.expect("acquired", f.acquire(runs...), []int{1})
	f.must(f.Record(ctx, []dispatcher.Record{record(runs[0], outcome(t0))}))
	f.expect("slots after the record", f.holders(), []int{})
	f.must(f.GrantWaiting(ctx))
	next := f.adopted(nodeA, token1)
	f.expect("roused", minutesOf(next), []int{2})
	f.expect("acquired", f.acquire(next...), []int{2})
	// Where the bound is lifted, nobody waits on.
	f.put(job("tick", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))}), t0)
	f.must(f.GrantWaiting(ctx))
	f.expect("roused by the change", minutesOf(f.adopted(nodeA, token2)), []int{3})
}

// A fixed delay goes on from a run that was skipped.
func testSlotsOfDelays(t *testing.T, f *fixture) {
	ctx := t.Context()
	j := job("tick", map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1m)"}, MisfireAfter: dispatcher.DefaultMisfireAfter,
			Enabled: true},
	}})
	j.ConcurrencyPolicy = run.ConcurrencyForbid
	f.put(j, t0)
	requested, err := f.RequestRun(ctx, "shop", "tick", nil, at(t0))
	f.must(err)
	manual := f.adopted(nodeA, token1)
	f.expect("acquired by hand", len(f.acquire(manual...)), 1)
	a := f.nextAdvance()
	a.Then = time.Time{}
	held := f.claim(a)
	f.expect("the fire", f.acquire(held...), []int{})
	if got := f.run(held[0].Key); got.State != run.Skipped || !strings.Contains(got.Error, requested.ID) {
		t.Errorf("the fire is %+v, want it skipped for the run by hand", got)
	}
	ended, err := f.EndedDelays(ctx, nil, 10)
	f.must(err)
	if len(ended) != 1 || ended[0].DueTrigger.ID != a.TriggerID {
		t.Errorf("ended delays %+v, want the one that was skipped", ended)
	}
}

// A run that is attempted again keeps its slot in between, and goes on with it; a newer one that
// replaces it then has nothing to wait for.
func testSlotsOfRetries(t *testing.T, f *fixture) {
	ctx := t.Context()
	failAgain := func(one run.HeldRun, at time.Time) {
		t.Helper()
		r := record(one, outcome(one.ScheduledAt))
		r.Outcome.State, r.Outcome.Class = run.Failed, run.ClassHTTP5xx
		r.Next = &dispatcher.NextAttempt{At: at, Until: t0.Add(24 * time.Hour), CountsAsFailure: true}
		f.must(f.Record(ctx, []dispatcher.Record{r}))
		f.must(f.ReleaseSlots(ctx, []run.HeldRun{one}))
	}
	runs := f.bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.expect("acquired", f.acquire(runs...), []int{1})
	failAgain(runs[0], t0.Add(2*time.Minute))
	if slots, err := f.Slots(ctx, "shop", "tick"); err != nil || len(slots) != 1 || slots[0].Run != runs[0].String() || slots[0].Node != nil {
		t.Errorf("slots between two attempts: %+v, %v, want the run's, with no node", slots, err)
	}
	if got := f.adopted(nodeA, token1); len(got) != 0 {
		t.Errorf("adopted %v, want none to be roused", got)
	}
	again, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeA, Token: token1, Limit: 10, Now: t0.Add(time.Hour), Retries: true})
	f.must(err)
	f.expect("attempted again", minutesOf(again), []int{1})
	f.expect("goes on", f.acquire(again...), []int{1})
	failAgain(again[0], t0.Add(3*time.Hour))

	j, err := f.Job(ctx, "shop", "tick")
	f.must(err)
	j.ConcurrencyPolicy = run.ConcurrencyReplace
	f.put(j, t0)
	newer := f.claimNext(token2)
	f.expect("replaces at once", f.acquire(newer), []int{3})
	f.expect("states", f.states(append(runs, newer)),
		[]run.State{run.Cancelled, run.Skipped, run.Claimed})
	if got := f.run(runs[0].Key); len(got.Attempts) != 2 || got.NextAttemptAt != nil {
		t.Errorf("the replaced run is %+v, want its two attempts and none to come", got)
	}
}
