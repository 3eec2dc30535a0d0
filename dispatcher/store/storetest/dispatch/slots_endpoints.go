package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// endpointSlotTests are those of jobs of which one run at a time goes to an endpoint.
func endpointSlotTests() tests {
	return tests{
		"forbid skips runs that go to a busy endpoint":            testEndpointForbid,
		"queue makes runs wait for their endpoints, in order":     testEndpointQueue,
		"queue_limit counts the runs that wait for all endpoints": testEndpointQueueLimit,
		"replace cancels the run at the endpoint":                 testEndpointReplace,
		"an attempt has the slot of one endpoint":                 testEndpointMoves,
		"a run between attempts has no endpoint":                  testEndpointRetries,
		"a dead node's slot of an endpoint stays with its run":    testEndpointOfTheDead,
		"runs that wait for an endpoint that is gone are woken":   testEndpointGone,
		"only free endpoints are taken where others may be tried": testEndpointIfFree,
		"a job may bound its runs and those at each endpoint":     testEndpointAndJobSlots,
		"runs wait no more when endpoints have no slots":          testEndpointLifted,
		"cancelled runs leave their endpoints":                    testEndpointCancelled,
	}
}

// perEndpoint is bounded for a job of the group workers, which has the endpoints a and b.
func (f *fixture) perEndpoint(fires int, policy run.ConcurrencyPolicy, change func(*dispatcher.Job)) []run.HeldRun {
	f.Helper()
	group := workers()
	group.DNS = nil
	group.Endpoints["b"] = target.StaticEndpoint{URL: "https://b.example.com"}
	f.putGroup(group, t0)
	return f.bounded(fires, func(j *dispatcher.Job) {
		j.Target = target.Target{Group: &target.GroupTarget{
			Name: "workers", Method: "POST", Timeout: target.DefaultTimeout, EndpointConcurrency: policy,
		}}
		if change != nil {
			change(j)
		}
	})
}

// occupy asks for the slot of an endpoint for runs, and returns who got which, as minutes after t0 and endpoints.
func (f *fixture) occupy(endpoint string, runs ...run.HeldRun) []string {
	f.Helper()
	return f.occupyIf(false, endpoint, runs...)
}

func (f *fixture) occupyIf(free bool, endpoint string, runs ...run.HeldRun) []string {
	f.Helper()
	requests := make([]target.EndpointRequest, len(runs))
	for i, run := range runs {
		requests[i] = target.EndpointRequest{HeldRun: run, Endpoint: endpoint, IfFree: free}
	}
	grants, err := f.AcquireEndpoints(f.Context(), requests)
	f.must(err)
	got := []string{}
	for _, grant := range grants {
		text := fmt.Sprint(minutesOf([]run.HeldRun{grant.HeldRun})[0], grant.Endpoint)
		if grant.Busy != "" {
			text += "busy"
		}
		got = append(got, text)
	}
	slices.Sort(got)
	return got
}

// occupied returns the slots of endpoints of the job "tick" as minutes after t0 and endpoints.
func (f *fixture) occupied() []string {
	f.Helper()
	taken, err := f.Slots(f.Context(), "shop", "tick")
	f.must(err)
	got := []string{}
	for _, slot := range taken {
		key, err := run.ParseKey(slot.Run)
		f.must(err)
		if slot.Endpoint != "" {
			got = append(got, fmt.Sprint(int(key.ScheduledAt.Sub(t0)/time.Minute), slot.Endpoint))
		}
	}
	return got
}

// failAttempt records that an attempt failed and its run is attempted again, and gives its slots back.
func (f *fixture) failAttempt(one run.HeldRun) {
	f.Helper()
	r := record(one, outcome(one.ScheduledAt))
	r.Outcome.State, r.Outcome.Class = run.Failed, run.ClassHTTP5xx
	r.Next = &dispatcher.NextAttempt{At: t0.Add(30 * time.Minute), Until: t0.Add(24 * time.Hour), CountsAsFailure: true}
	f.must(f.Record(f.Context(), []dispatcher.Record{r}))
	f.must(f.ReleaseSlots(f.Context(), []run.HeldRun{one}))
}

// adoptAgain adopts the runs that are attempted again.
func (f *fixture) adoptAgain(token run.Token) []run.HeldRun {
	f.Helper()
	query := dispatcher.AdoptQuery{Node: nodeA, Token: token, Limit: 10, Now: t0.Add(time.Hour), Retries: true}
	runs, err := f.Adopt(f.Context(), query)
	f.must(err)
	return runs
}

func testEndpointForbid(t *testing.T, f *fixture) {
	runs := f.perEndpoint(4, run.ConcurrencyForbid, nil)
	f.expect("the later asks first", f.occupy("a", runs[1]), []string{"2a"})
	f.expect("once more", f.occupy("a", runs[1]), []string{"2a"})
	f.expect("the same endpoint", f.occupy("a", runs[0], runs[2]), []string{})
	f.expect("another endpoint", f.occupy("b", runs[3]), []string{"4b"})
	f.expect("states", f.states(runs), []run.State{
		run.Skipped, run.Claimed, run.Skipped, run.Claimed,
	})
	skipped := f.run(runs[2].Key)
	if want := fmt.Sprintf("endpoint a runs run %s already on node %s", runs[1], nodeA); skipped.Error != want || len(skipped.Attempts) != 0 {
		t.Errorf("skipped run %+v, want no attempt and error %q", skipped, want)
	}
	f.expect("slots", f.occupied(), []string{"2a", "4b"})
	f.finish(runs[1])
	f.finish(runs[3])
	f.expect("slots at the end", f.occupied(), []string{})
	f.expect("the next", f.occupy("a", f.claimNext(token1)), []string{"5a"})
}

func testEndpointQueue(t *testing.T, f *fixture) {
	runs := f.perEndpoint(5, run.ConcurrencyQueue, nil)
	f.expect("first come", f.occupy("a", runs[1]), []string{"2a"})
	f.expect("others wait", f.occupy("a", runs[3]), []string{})
	f.expect("others wait", f.occupy("a", runs[0]), []string{})
	f.expect("the other endpoint is free", f.occupy("b", runs[2]), []string{"3b"})
	waits := f.run(runs[0].Key)
	if waits.State != run.Queued || waits.WaitsForEndpoint != "a" || waits.Node != nil || waits.Attempt != 0 {
		t.Errorf("a run that waits is %+v, want it to say so and to be with nobody", waits)
	}
	if got := f.adopted(nodeA, token1); len(got) != 0 {
		t.Errorf("adopted %v, want none while they wait", got)
	}
	f.finish(runs[2])
	if got := f.adopted(nodeA, token1); len(got) != 0 {
		t.Errorf("adopted %v, want none when another endpoint is free", got)
	}
	f.finish(runs[1])
	first := f.adopted(nodeA, 11)
	f.expect("woken", minutesOf(first), []int{1})
	f.expect("the place of the woken run is kept", f.occupy("a", runs[4]), []string{})
	f.expect("it goes where it waited", f.occupy("b", first...), []string{"1a"})
	f.finish(first[0])
	for _, minute := range []int{4, 5} {
		next := f.adopted(nodeA, run.Token(20+minute))
		f.expect("woken in order", minutesOf(next), []int{minute})
		f.expect("granted in order", f.occupy("a", next...), []string{fmt.Sprint(minute, "a")})
		f.finish(next[0])
	}
	f.expect("slots at the end", f.occupied(), []string{})
}

func testEndpointQueueLimit(t *testing.T, f *fixture) {
	runs := f.perEndpoint(6, run.ConcurrencyQueue, func(j *dispatcher.Job) { j.QueueLimit = 2 })
	f.expect("taken", append(f.occupy("a", runs[0]), f.occupy("b", runs[1])...), []string{"1a", "2b"})
	f.expect("one waits for each", append(f.occupy("a", runs[2]), f.occupy("b", runs[3])...), []string{})
	f.expect("beyond the limit", append(f.occupy("a", runs[4]), f.occupy("b", runs[5])...), []string{})
	f.expect("states", f.states(runs[2:]), []run.State{
		run.Queued, run.Queued, run.Skipped, run.Skipped,
	})
	want := fmt.Sprintf("2 runs wait already, the most that queue_limit allows; endpoint b runs run %s already", runs[1])
	if got := f.run(runs[5].Key).Error; !strings.HasPrefix(got, want) {
		t.Errorf("error %q, want %q", got, want)
	}
}

func testEndpointReplace(t *testing.T, f *fixture) {
	runs := f.perEndpoint(4, run.ConcurrencyReplace, nil)
	notifications := f.listen()
	f.expect("taken", append(f.occupy("a", runs[0]), f.occupy("b", runs[1])...), []string{"1a", "2b"})
	f.expect("a newer one waits for the end of the request", f.occupy("a", runs[2]), []string{})
	notifications.await(t, dispatcher.Notification{Run: runs[0].String(), Token: runs[0].Token, Attempt: 1})
	f.expect("states", f.states(runs[:3]), []run.State{run.Cancelled, run.Claimed, run.Queued})
	if got := f.run(runs[0].Key).Error; got != "replaced by run "+runs[2].String() {
		t.Errorf("error of the replaced run: %q", got)
	}
	f.expect("slots", f.occupied(), []string{"1a", "2b"})
	f.finish(runs[0])
	next := f.adopted(nodeA, token1)
	f.expect("woken", minutesOf(next), []int{3})
	f.expect("goes on", f.occupy("a", next...), []string{"3a"})
}

// A request that an endpoint refused goes to the next one.
func testEndpointMoves(t *testing.T, f *fixture) {
	runs := f.perEndpoint(3, run.ConcurrencyQueue, nil)
	f.expect("taken", append(f.occupy("a", runs[0]), f.occupy("b", runs[1])...), []string{"1a", "2b"})
	f.expect("waits", f.occupy("a", runs[2]), []string{})
	f.expect("moves to a busy one", f.occupy("b", runs[0]), []string{})
	f.expect("slots", f.occupied(), []string{"2b"})
	next := f.adopted(nodeA, token1)
	f.expect("woken by the move", minutesOf(next), []int{3})
	f.expect("takes the place", f.occupy("a", next...), []string{"3a"})
	f.finish(runs[1])
	next = f.adopted(nodeA, token2)
	f.expect("woken", minutesOf(next), []int{1})
	f.expect("has moved", f.occupy("a", next...), []string{"1b"})
}

func testEndpointRetries(t *testing.T, f *fixture) {
	runs := f.perEndpoint(3, run.ConcurrencyReplace, nil)
	f.expect("taken", f.occupy("a", runs[0]), []string{"1a"})
	f.failAttempt(runs[0])
	f.expect("slots between two attempts", f.occupied(), []string{})
	f.expect("a newer one takes it", f.occupy("a", runs[1]), []string{"2a"})
	again := f.adoptAgain(token1)
	f.expect("adopted", minutesOf(again), []int{1})
	f.expect("chooses another", f.occupy("b", again...), []string{"1b"})
	f.failAttempt(again[0])
	again = f.adoptAgain(token2)
	f.expect("too old for the same", f.occupy("a", again...), []string{})
	if got := f.run(runs[0].Key); got.State != run.Cancelled ||
		!strings.HasPrefix(got.Error, "replaced by run "+runs[1].String()) || len(got.Attempts) != 3 {
		t.Errorf("a run that was attempted and gets no slot is %+v, want it cancelled and to say why", got)
	}
}

func testEndpointOfTheDead(t *testing.T, f *fixture) {
	ctx := t.Context()
	runs := f.perEndpoint(3, run.ConcurrencyQueue, nil)
	f.expect("taken", append(f.occupy("a", runs[0]), f.occupy("a", runs[1])...), []string{"1a"})
	f.both()
	f.must(f.Deregister(ctx, nodeA))
	f.must(f.GrantWaiting(ctx))
	taken := f.adopted(nodeB, token1)
	f.expect("adopted", minutesOf(taken), []int{1, 3})
	f.expect("no other takes its place", f.occupy("a", taken[1]), []string{})
	f.expect("goes to its endpoint again", f.occupy("b", taken[0]), []string{"1a"})
	f.finish(runs[0])
	f.expect("slots after a late result", f.occupied(), []string{"1a"})
	f.must(f.Begin(ctx, taken[:1]))
	f.register(nodeC)
	f.must(f.Deregister(ctx, nodeB))
	f.must(f.FailLostRuns(ctx, t0.Add(time.Hour)))
	f.must(f.GrantWaiting(ctx))
	next := f.adopted(nodeC, token2)
	f.expect("woken after the lost run", minutesOf(next), []int{2})
	f.expect("taken by the third node", f.occupy("a", next...), []string{"2a"})
}

func testEndpointGone(t *testing.T, f *fixture) {
	ctx := t.Context()
	runs := f.perEndpoint(4, run.ConcurrencyQueue, nil)
	f.expect("taken", f.occupy("a", runs[0]), []string{"1a"})
	f.expect("wait", f.occupy("a", runs[1], runs[2]), []string{})
	f.must(f.GrantWaiting(ctx))
	if got := f.adopted(nodeA, token1); len(got) != 0 {
		t.Errorf("adopted %v, want none while the endpoint is there", got)
	}
	f.must(f.DrainEndpoint(ctx, "shop", "workers", "a", true, at(t0)))
	f.must(f.GrantWaiting(ctx))
	woken := f.adopted(nodeA, token1)
	f.expect("woken", minutesOf(woken), []int{2, 3})
	f.expect("routed again", f.occupy("b", woken...), []string{"2b"})
	f.must(f.DrainEndpoint(ctx, "shop", "workers", "a", false, at(t0)))
	f.expect("waits for another", f.run(woken[1].Key).WaitsForEndpoint, "b")
	group := workers() // without b
	group.DNS = nil
	f.putGroup(group, t0)
	f.must(f.GrantWaiting(ctx))
	f.expect("woken when it is removed", minutesOf(f.adopted(nodeA, token2)), []int{3})
	f.expect("slots", f.occupied(), []string{"1a", "2b"})
}

func testEndpointIfFree(t *testing.T, f *fixture) {
	runs := f.perEndpoint(5, run.ConcurrencyQueue, nil)
	f.expect("of two, one is first", f.occupyIf(true, "a", runs[0], runs[1]), []string{"1a", "2busy"})
	f.expect("once more", f.occupyIf(true, "a", runs[0]), []string{"1a"})
	f.expect("the next candidate", f.occupyIf(true, "b", runs[1]), []string{"2b"})
	f.expect("all are busy", append(f.occupyIf(true, "a", runs[2]), f.occupyIf(true, "b", runs[2])...), []string{"3busy", "3busy"})
	f.expect("it is still its node's", f.states(runs[2:3]), []run.State{run.Claimed})
	f.expect("one waits", f.occupy("a", runs[3]), []string{})
	f.finish(runs[0])
	f.expect("free, but another has waited", f.occupyIf(true, "a", runs[2]), []string{"3busy"})
}

func testEndpointAndJobSlots(t *testing.T, f *fixture) {
	runs := f.perEndpoint(4, run.ConcurrencyQueue, func(j *dispatcher.Job) {
		j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 3
	})
	f.expect("three of the job", f.acquire(runs...), []int{1, 2, 3})
	f.expect("one at each endpoint", append(f.occupy("a", runs[0], runs[1]), f.occupy("b", runs[2])...), []string{"1a", "3b"})
	f.must(f.ReleaseSlots(t.Context(), runs[1:2])) // as its node does when it lets go of the run
	if got := f.adopted(nodeA, token1); len(got) != 0 {
		t.Errorf("adopted %v, want none: the run that waits for the endpoint has its slot of the job", got)
	}
	f.expect("slots", append(f.occupied(), fmt.Sprint(f.holders())), []string{"1a", "3b", "[1 1 2 3 3]"})
	f.finish(runs[0])
	next := f.adopted(nodeA, token2)
	f.expect("both go on", minutesOf(next), []int{2, 4})
	f.expect("slots of the job", f.acquire(next...), []int{2, 4})
	f.expect("slots of the endpoint", f.occupy("a", next...), []string{"2a"})
}

func testEndpointLifted(t *testing.T, f *fixture) {
	runs := f.perEndpoint(3, run.ConcurrencyQueue, nil)
	f.expect("taken", f.occupy("a", runs...), []string{"1a"})
	j, err := f.Job(t.Context(), "shop", "tick")
	f.must(err)
	j.Target.Group.EndpointConcurrency = ""
	f.put(j, t0)
	f.must(f.GrantWaiting(t.Context()))
	f.expect("woken", minutesOf(f.adopted(nodeA, token1)), []int{2, 3})
}

func testEndpointCancelled(t *testing.T, f *fixture) {
	ctx := t.Context()
	runs := f.perEndpoint(3, run.ConcurrencyQueue, nil)
	f.expect("taken", f.occupy("a", runs...), []string{"1a"})
	f.must(f.CancelRun(ctx, runs[1].String(), at(t0)))
	f.must(f.CancelRun(ctx, runs[0].String(), at(t0)))
	f.must(f.GrantWaiting(ctx))
	if got := f.adopted(nodeA, token1); len(got) != 0 {
		t.Errorf("adopted %v, want none while the request of the cancelled run may be in flight", got)
	}
	f.must(f.RetryRun(ctx, runs[0].String(), at(t0)))
	again := f.adopted(nodeA, token1)
	f.expect("requested again", minutesOf(again), []int{1})
	f.expect("not to another endpoint while it may be in flight", f.occupy("b", again...), []string{})
	f.finish(runs[0])
	again = f.adopted(nodeA, token2)
	f.expect("woken, and not the one that was cancelled", minutesOf(again), []int{1})
	f.expect("goes on", f.occupy("b", again...), []string{"1a"})
	f.finish(again[0])
	f.expect("then the next", minutesOf(f.adopted(nodeA, 9)), []int{3})
}
