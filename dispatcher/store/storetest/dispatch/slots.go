package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// slotTests test jobs with a limit for simultaneous runs.
func slotTests() tests {
	return tests{
		"forbid skips runs while a slot is taken":               testSlotsForbid,
		"queue makes runs wait for a slot":                      testSlotsQueue,
		"replace cancels the run that has the slot":             testSlotsReplace,
		"replace skips no run for one that never asks":          testSlotsReplaceNone,
		"several slots are granted in order":                    testSlotsOfSeveral,
		"a dead node's slots are granted on":                    testSlotsOfTheDead,
		"a cancelled run keeps its slot until its request ends": testSlotsOfCancelled,
		"slots left behind are granted to waiting runs":         testSlotsLeftBehind,
		"fixed delays use slots":                                testSlotsOfDelays,
		"a retrying run keeps its slot":                         testSlotsOfRetries,
	}
}

// finish records a run of nodeA and releases its slot.
func (f *wing) finish(r run.HeldRun) {
	f.Helper()
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(r, fixture.Outcome(r.ScheduledAt))}))
	f.Must(f.ReleaseSlots(f.Context(), []run.HeldRun{r}))
}

// adopted adopts all idle runs for a node.
func (f *wing) adopted(node run.NodeID, token run.Token) []run.HeldRun {
	f.Helper()
	runs, err := f.Adopt(f.Context(), dispatcher.AdoptQuery{Node: node, Token: token, Limit: 100, Now: fixture.T0.Add(time.Hour)})
	f.Must(err)
	return runs
}

func (f *wing) slots() []dispatcher.Slot {
	f.Helper()
	taken, err := f.Slots(f.Context(), "shop", "tick")
	f.Must(err)
	return taken
}

// holders returns the slots of the job "tick" as minutes after T0.
func (f *wing) holders() []int {
	f.Helper()
	at := []int{}
	for _, slot := range f.slots() {
		key, err := run.ParseKey(slot.Run)
		f.Must(err)
		at = append(at, int(key.ScheduledAt.Sub(fixture.T0)/time.Minute))
	}
	return at
}

// states returns the states of runs.
func (f *wing) states(runs []run.HeldRun) (states []run.State) {
	f.Helper()
	for _, run := range runs {
		states = append(states, f.RunOf(run.Key).State)
	}
	return states
}

func testSlotsForbid(t *testing.T, f *wing) {
	runs := f.Bounded(3, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	// The later run asks first: the earlier one is only about to begin, and it is its turn.
	f.Expect("the second", f.AcquireSlots(runs[1]), []int{})
	f.Expect("the first", f.AcquireSlots(runs[0]), []int{1})
	f.Expect("the first once more", f.AcquireSlots(runs[0]), []int{1})
	f.Expect("the third", f.AcquireSlots(runs[2]), []int{})
	f.Expect("slots", f.holders(), []int{1})
	f.Expect("states", f.states(runs), []run.State{run.Claimed, run.Skipped, run.Skipped})
	skipped := f.RunOf(runs[2].Key)
	if want := fmt.Sprintf("run %s has the slot on node %s", runs[0], fixture.NodeA); skipped.Error != want ||
		skipped.Class != "" || skipped.EndedAt == nil || len(skipped.Attempts) != 0 {
		t.Errorf("skipped run %+v, want it ended without an attempt or a failure, and error %q", skipped, want)
	}
	f.finish(runs[0])
	f.Expect("slots at the end", f.holders(), []int{})
	f.Expect("the next", f.AcquireSlots(f.ClaimNext(fixture.Token1)), []int{4})
	if got := f.adopted(fixture.NodeA, fixture.Token2); len(got) != 0 {
		t.Errorf("adopted %v, want none: what was skipped is over", got)
	}
	// A node that no longer holds a run gets no slot for it.
	stranger := f.ClaimNext(fixture.Token1)
	stranger.Token = fixture.Token2
	f.Expect("a stranger", f.AcquireSlots(stranger), []int{})
}

func testSlotsQueue(t *testing.T, f *wing) {
	runs := f.Bounded(5, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.QueueLimit = run.ConcurrencyQueue, 2 })
	f.Expect("out of turn", f.AcquireSlots(runs[2], runs[1]), []int{})
	f.Expect("first", f.AcquireSlots(runs[0], runs[3], runs[4]), []int{1})
	f.Expect("states", f.states(runs), []run.State{
		run.Claimed, run.Queued, run.Queued, run.Skipped, run.Skipped,
	})
	f.Expect("place of the third", f.RunOf(runs[2].Key).Queue, &run.QueuePlace{Place: 2, Of: 2})
	f.Expect("place of the first", f.RunOf(runs[0].Key).Queue, (*run.QueuePlace)(nil))
	if got := f.RunOf(runs[4].Key).Error; !strings.HasPrefix(got, "2 runs wait already") || !strings.Contains(got, runs[0].String()) {
		t.Errorf("beyond the limit: error %q, want it to say so and to name the holder", got)
	}
	waits := f.RunOf(runs[1].Key)
	if waits.Node != nil || waits.Attempt != 0 || waits.ClaimedAt != nil {
		t.Errorf("a run that waits is %+v, want it with nobody, its attempt not consumed", waits)
	}
	f.Expect("why the run waits", waits.Waiting(), "waits for a slot of its job, which run "+runs[0].String()+
		" has had since "+input.FormatInstant(f.slots()[0].Since)+", as number 1 of 2")
	if got := f.adopted(fixture.NodeA, fixture.Token1); len(got) != 0 {
		t.Errorf("adopted %v, want none while they wait for the slot", got)
	}
	query := dispatcher.RunQuery{App: "shop", Job: "tick", State: run.Queued, Page: input.Page{Limit: 10}}
	if listed, err := f.Runs(t.Context(), query); err != nil || len(listed) != 2 || listed[0].Waiting() != "waits for a slot of its job" {
		t.Errorf("listed %+v, %v, want 2 that say that they wait for a slot", listed, err)
	}
	last := runs[0]
	for minute := 2; minute <= 3; minute++ {
		f.finish(last)
		next := f.adopted(fixture.NodeA, run.Token(minute))
		f.Expect("roused", fixture.MinutesOf(next), []int{minute})
		f.Expect("acquired in order", f.AcquireSlots(next...), []int{minute})
		f.Expect("slots", f.holders(), []int{minute})
		last = next[0]
	}
	f.finish(last)
	f.Expect("slots at the end", f.holders(), []int{})
}

// A claimed run may end before it asks for a slot. The previous run is not skipped in its favor, and goes after it.
func testSlotsReplaceNone(_ *testing.T, f *wing) {
	runs := f.Bounded(3, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyReplace })
	f.Expect("the first waits", f.AcquireSlots(runs[0]), []int{})
	f.Expect("so does the second", f.AcquireSlots(runs[1]), []int{})
	f.Expect("which replaces the first", f.states(runs), []run.State{run.Skipped, run.Queued,
		run.Claimed})
	if got := f.RunOf(runs[0].Key).Error; got != "replaced by run "+runs[1].String()+" before it began" {
		f.Errorf("the first run says %q, want the run that asked", got)
	}
	f.Must(f.CancelRun(f.Context(), runs[2].String(), fixture.At(runs[2].ScheduledAt)))
	f.Must(f.GrantWaiting(f.Context()))
	next := f.adopted(fixture.NodeA, 7)
	f.Expect("roused", fixture.MinutesOf(next), []int{2})
	f.Expect("acquired", f.AcquireSlots(next...), []int{2})
	f.finish(next[0])
	f.Expect("slots at the end", f.holders(), []int{})
}

func testSlotsReplace(t *testing.T, f *wing) {
	runs := f.Bounded(4, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyReplace })
	notifications := f.Hear()
	f.Expect("not while a later one is about to begin", f.AcquireSlots(runs[0]), []int{})
	f.Expect("it waits, for the later one may end before it asks", f.states(runs[:1]), []run.State{run.Queued})
	f.Expect("nor the next", f.AcquireSlots(runs[1], runs[2]), []int{})
	f.Expect("the latest", f.AcquireSlots(runs[3]), []int{4})
	f.Expect("states", f.states(runs), []run.State{run.Skipped, run.Skipped,
		run.Skipped, run.Claimed})
	newer := f.ClaimNext(fixture.Token1)
	f.Expect("a newer one waits", f.AcquireSlots(newer), []int{})
	replaced := f.RunOf(runs[3].Key)
	if replaced.State != run.Cancelled || replaced.Error != "replaced by run "+newer.String() || len(replaced.Attempts) != 1 {
		t.Errorf("the older run is %+v, want it cancelled, and to say by whom", replaced)
	}
	notifications.Await(t, dispatcher.Notification{Run: runs[3].String(), Token: runs[3].Token, Attempt: 1})
	f.Expect("the slot is not free before its request is given up", f.holders(), []int{4})
	newest := f.ClaimNext(fixture.Token2)
	f.Expect("an even newer one waits", f.AcquireSlots(newest), []int{})
	f.Expect("and the one between is over", f.states([]run.HeldRun{newer}), []run.State{run.Skipped})
	if got := f.adopted(fixture.NodeA, 7); len(got) != 0 {
		t.Errorf("adopted %v, want none while the request is in flight", got)
	}
	f.finish(runs[3])
	if late := f.RunOf(runs[3].Key).Attempts; len(late) != 1 || late[0].Late == nil {
		t.Errorf("attempts of the replaced run: %+v, want its result kept with it", late)
	}
	next := f.adopted(fixture.NodeA, 8)
	f.Expect("roused", fixture.MinutesOf(next), []int{6})
	f.Expect("acquired", f.AcquireSlots(next...), []int{6})
}

// With several slots all policies count up to that number; allow with a bound waits like queue.
func testSlotsOfSeveral(t *testing.T, f *wing) {
	for policy, want := range map[run.ConcurrencyPolicy][]run.State{
		run.ConcurrencyAllow:   {run.Claimed, run.Claimed, run.Queued, run.Queued},
		run.ConcurrencyQueue:   {run.Claimed, run.Claimed, run.Queued, run.Queued},
		run.ConcurrencyForbid:  {run.Claimed, run.Claimed, run.Skipped, run.Skipped},
		run.ConcurrencyReplace: {run.Skipped, run.Skipped, run.Claimed, run.Claimed},
	} {
		runs := f.Bounded(4, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = policy, 2 })
		f.AcquireSlots(runs...)
		f.Expect("states with "+string(policy), f.states(runs), want)
		if n := len(f.holders()); n != 2 {
			t.Errorf("%s: %d slots are taken, want 2", policy, n)
		}
		for round := 0; len(f.holders()) > 0 && round < 4; round++ {
			for _, run := range runs {
				f.finish(run)
			}
			runs = f.adopted(fixture.NodeA, run.Token(10*round+50))
			f.AcquireSlots(runs...)
		}
		f.Expect("slots at the end of "+string(policy), f.holders(), []int{})
	}
}

// A slot moves with its run, and the slots of runs lost with their node are free.
func testSlotsOfTheDead(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.Bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1})
	f.both()
	f.Must(f.Deregister(ctx, fixture.NodeA))
	taken := f.adopted(fixture.NodeB, fixture.Token1)
	f.Expect("adopted", fixture.MinutesOf(taken), []int{1})
	f.Expect("goes on with its slot", f.AcquireSlots(taken...), []int{1})
	if slots, err := f.Slots(ctx, "shop", "tick"); err != nil || len(slots) != 1 || slots[0].Node == nil || *slots[0].Node != fixture.NodeB {
		t.Errorf("slots %+v, %v, want one, with the second node", slots, err)
	}
	// The first node was only slow. Its record of the attempt does not affect the slot.
	f.finish(runs[0])
	f.Expect("slots after a late result", f.holders(), []int{1})
	// The second node dies when the request of a job that wants it at most once may have been sent.
	f.Must(f.Begin(ctx, taken))
	f.AddNode(fixture.NodeC)
	f.Must(f.Deregister(ctx, fixture.NodeB))
	f.Must(f.FailLostRuns(ctx, fixture.T0.Add(time.Hour)))
	f.Must(f.GrantWaiting(ctx))
	next := f.adopted(fixture.NodeC, fixture.Token2)
	f.Expect("roused", fixture.MinutesOf(next), []int{2})
	f.Expect("acquired by the third", f.AcquireSlots(next...), []int{2})
}

// A cancelled run keeps its slot while its request may be in flight, even if the slot is requested again.
func testSlotsOfCancelled(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.Bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1})
	f.Must(f.CancelRun(ctx, runs[0].String(), fixture.At(fixture.T0)))
	f.Must(f.GrantWaiting(ctx))
	f.Expect("slots", f.holders(), []int{1})
	f.Must(f.RetryRun(ctx, runs[0].String(), fixture.At(fixture.T0)))
	again := f.adopted(fixture.NodeA, fixture.Token1)
	f.Expect("adopted again", fixture.MinutesOf(again), []int{1})
	f.Expect("not while the first attempt may be in flight", f.AcquireSlots(again...), []int{})
	f.finish(runs[0])
	again = f.adopted(fixture.NodeA, fixture.Token2)
	f.Expect("roused", fixture.MinutesOf(again), []int{1})
	f.Expect("acquired", f.AcquireSlots(again...), []int{1})
	f.finish(again[0])
	f.Expect("then the other", fixture.MinutesOf(f.adopted(fixture.NodeA, 9)), []int{2})
}

// Slots of recorded runs that a node did not release before it died are passed on.
func testSlotsLeftBehind(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.Bounded(3, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1})
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(runs[0], fixture.Outcome(fixture.T0))}))
	f.Expect("slots after the record", f.holders(), []int{})
	f.Must(f.GrantWaiting(ctx))
	next := f.adopted(fixture.NodeA, fixture.Token1)
	f.Expect("roused", fixture.MinutesOf(next), []int{2})
	f.Expect("acquired", f.AcquireSlots(next...), []int{2})
	// Without the bound no run waits.
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))}), fixture.T0)
	f.Must(f.GrantWaiting(ctx))
	f.Expect("roused by the change", fixture.MinutesOf(f.adopted(fixture.NodeA, fixture.Token2)), []int{3})
}

// A fixed delay continues from a skipped run.
func testSlotsOfDelays(t *testing.T, f *wing) {
	ctx := t.Context()
	j := fixture.Job("tick", map[string]dispatcher.Trigger{"tick": {
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1m)"}, MisfireAfter: dispatcher.DefaultMisfireAfter,
			Enabled: true},
	}})
	j.ConcurrencyPolicy = run.ConcurrencyForbid
	f.Put(j, fixture.T0)
	requested, err := f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0))
	f.Must(err)
	manual := f.adopted(fixture.NodeA, fixture.Token1)
	f.Expect("acquired by hand", len(f.AcquireSlots(manual...)), 1)
	a := f.NextAdvance()
	a.Then = time.Time{}
	held := f.ClaimAll(a)
	f.Expect("the fire", f.AcquireSlots(held...), []int{})
	if got := f.RunOf(held[0].Key); got.State != run.Skipped || !strings.Contains(got.Error, requested.ID) {
		t.Errorf("the fire is %+v, want it skipped for the run by hand", got)
	}
	ended, err := f.EndedDelays(ctx, nil, 10)
	f.Must(err)
	if len(ended) != 1 || ended[0].DueTrigger.ID != a.TriggerID {
		t.Errorf("ended delays %+v, want the one that was skipped", ended)
	}
}

// A retried run keeps its slot in between, and continues with it; a newer run that replaces it then has nothing to wait
// for.
func testSlotsOfRetries(t *testing.T, f *wing) {
	ctx := t.Context()
	failAgain := func(one run.HeldRun, at time.Time) {
		t.Helper()
		r := fixture.Record(one, fixture.Outcome(one.ScheduledAt))
		r.Outcome.State, r.Outcome.Class = run.Failed, run.ClassHTTP5xx
		r.Next = &dispatcher.NextAttempt{At: at, Until: fixture.T0.Add(24 * time.Hour), CountsAsFailure: true}
		f.Must(f.Record(ctx, []dispatcher.Record{r}))
		f.Must(f.ReleaseSlots(ctx, []run.HeldRun{one}))
	}
	runs := f.Bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1})
	failAgain(runs[0], fixture.T0.Add(2*time.Minute))
	if slots, err := f.Slots(ctx, "shop", "tick"); err != nil || len(slots) != 1 || slots[0].Run != runs[0].String() || slots[0].Node != nil {
		t.Errorf("slots between two attempts: %+v, %v, want the run's, with no node", slots, err)
	}
	if got := f.adopted(fixture.NodeA, fixture.Token1); len(got) != 0 {
		t.Errorf("adopted %v, want none to be roused", got)
	}
	again, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token1, Limit: 10, Now: fixture.T0.Add(time.Hour),
		Retries: true})
	f.Must(err)
	f.Expect("attempted again", fixture.MinutesOf(again), []int{1})
	f.Expect("goes on", f.AcquireSlots(again...), []int{1})
	failAgain(again[0], fixture.T0.Add(3*time.Hour))

	j, err := f.Job(ctx, "shop", "tick")
	f.Must(err)
	j.ConcurrencyPolicy = run.ConcurrencyReplace
	f.Put(j, fixture.T0)
	newer := f.ClaimNext(fixture.Token2)
	f.Expect("replaces at once", f.AcquireSlots(newer), []int{3})
	f.Expect("states", f.states(append(runs, newer)),
		[]run.State{run.Cancelled, run.Skipped, run.Claimed})
	if got := f.RunOf(runs[0].Key); len(got.Attempts) != 2 || got.NextAttemptAt != nil {
		t.Errorf("the replaced run is %+v, want its two attempts and none to come", got)
	}
}
