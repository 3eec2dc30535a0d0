package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// endpointSlotTests test jobs that run once at a time on each endpoint.
func endpointSlotTests() tests {
	return tests{
		"forbid skips runs that go to a busy endpoint":            testEndpointForbid,
		"queue makes runs wait for their endpoints, in order":     testEndpointQueue,
		"queue_limit counts the runs that wait for all endpoints": testEndpointQueueLimit,
		"replace cancels the run at the endpoint":                 testEndpointReplace,
		"an attempt has the slot of one endpoint":                 testEndpointMoves,
		"a run between attempts has no endpoint":                  testEndpointRetries,
		"a dead node's slot of an endpoint stays with its run":    testEndpointOfTheDead,
		"runs that wait for a removed endpoint are woken":         testEndpointGone,
		"only free endpoints are taken where others may be tried": testEndpointIfFree,
		"a job may bound its runs and those at each endpoint":     testEndpointAndJobSlots,
		"runs stop waiting when endpoints have no slots":          testEndpointLifted,
		"cancelled runs leave their endpoints":                    testEndpointCancelled,
	}
}

// perEndpoint is Bounded for a job of the group workers, which has the endpoints a and b.
func (f *wing) perEndpoint(fires int, policy run.ConcurrencyPolicy, change func(*dispatcher.Job)) []run.HeldRun {
	f.Helper()
	group := fixture.Workers()
	group.DNS = nil
	group.Endpoints["b"] = target.StaticEndpoint{URL: "https://b.example.com"}
	f.DeclareGroup(group, fixture.T0)
	return f.Bounded(fires, func(j *dispatcher.Job) {
		j.Target = target.Target{Group: &target.GroupTarget{
			Name: "workers", Method: "POST", Timeout: target.DefaultTimeout, EndpointConcurrency: policy,
		}}
		if change != nil {
			change(j)
		}
	})
}

// occupy requests the slot of an endpoint for runs, and returns the grants as minutes after T0 and endpoints.
func (f *wing) occupy(endpoint string, runs ...run.HeldRun) []string {
	f.Helper()
	return f.occupyIf(false, endpoint, runs...)
}

func (f *wing) occupyIf(free bool, endpoint string, runs ...run.HeldRun) []string {
	f.Helper()
	requests := make([]target.EndpointRequest, len(runs))
	for i, run := range runs {
		requests[i] = target.EndpointRequest{HeldRun: run, Endpoint: endpoint, IfFree: free}
	}
	grants, err := f.AcquireEndpoints(f.Context(), requests)
	f.Must(err)
	got := []string{}
	for _, grant := range grants {
		text := fmt.Sprint(fixture.MinutesOf([]run.HeldRun{grant.HeldRun})[0], grant.Endpoint)
		if grant.Busy != "" {
			text += "busy"
		}
		got = append(got, text)
	}
	slices.Sort(got)
	return got
}

// occupied returns the slots of endpoints of the job "tick" as minutes after T0 and endpoints.
func (f *wing) occupied() []string {
	f.Helper()
	taken, err := f.Slots(f.Context(), "shop", "tick")
	f.Must(err)
	got := []string{}
	for _, slot := range taken {
		key, err := run.ParseKey(slot.Run)
		f.Must(err)
		if slot.Endpoint != "" {
			got = append(got, fmt.Sprint(int(key.ScheduledAt.Sub(fixture.T0)/time.Minute), slot.Endpoint))
		}
	}
	return got
}

// failAttempt records a failed attempt of a run that will be retried, and releases its slots.
func (f *wing) failAttempt(one run.HeldRun) {
	f.Helper()
	r := fixture.Record(one, fixture.Outcome(one.ScheduledAt))
	r.Outcome.State, r.Outcome.Class = run.Failed, run.ClassHTTP5xx
	r.Next = &dispatcher.NextAttempt{At: fixture.T0.Add(30 * time.Minute), Until: fixture.T0.Add(24 * time.Hour), CountsAsFailure: true}
	f.Must(f.Record(f.Context(), []dispatcher.Record{r}))
	f.Must(f.ReleaseSlots(f.Context(), []run.HeldRun{one}))
}

// adoptAgain adopts the runs to retry.
func (f *wing) adoptAgain(token run.Token) []run.HeldRun {
	f.Helper()
	query := dispatcher.AdoptQuery{Node: fixture.NodeA, Token: token, Limit: 10, Now: fixture.T0.Add(time.Hour), Retries: true}
	runs, err := f.Adopt(f.Context(), query)
	f.Must(err)
	return runs
}

func testEndpointForbid(t *testing.T, f *wing) {
	runs := f.perEndpoint(4, run.ConcurrencyForbid, nil)
	f.Expect("the later asks first", f.occupy("a", runs[1]), []string{"2a"})
	f.Expect("once more", f.occupy("a", runs[1]), []string{"2a"})
	f.Expect("the same endpoint", f.occupy("a", runs[0], runs[2]), []string{})
	f.Expect("another endpoint", f.occupy("b", runs[3]), []string{"4b"})
	f.Expect("states", f.states(runs), []run.State{
		run.Skipped, run.Claimed, run.Skipped, run.Claimed,
	})
	skipped := f.RunOf(runs[2].Key)
	if want := fmt.Sprintf("endpoint a runs run %s already on node %s", runs[1],
		fixture.NodeA); skipped.Error != want || len(skipped.Attempts) != 0 {
		t.Errorf("skipped run %+v, want no attempt and error %q", skipped, want)
	}
	f.Expect("slots", f.occupied(), []string{"2a", "4b"})
	f.finish(runs[1])
	f.finish(runs[3])
	f.Expect("slots at the end", f.occupied(), []string{})
	f.Expect("the next", f.occupy("a", f.ClaimNext(fixture.Token1)), []string{"5a"})
}

func testEndpointQueue(t *testing.T, f *wing) {
	runs := f.perEndpoint(5, run.ConcurrencyQueue, nil)
	f.Expect("first come", f.occupy("a", runs[1]), []string{"2a"})
	f.Expect("others wait", f.occupy("a", runs[3]), []string{})
	f.Expect("others wait", f.occupy("a", runs[0]), []string{})
	f.Expect("the other endpoint is free", f.occupy("b", runs[2]), []string{"3b"})
	waits := f.RunOf(runs[0].Key)
	if waits.State != run.Queued || waits.WaitsForEndpoint != "a" || waits.Node != nil || waits.Attempt != 0 {
		t.Errorf("a run that waits is %+v, want it to say so and to be with nobody", waits)
	}
	if want := "waits for endpoint a, which run " + runs[1].String() + " has had since "; !strings.HasPrefix(waits.Waiting(), want) {
		t.Errorf("a run that waits %s, want that it %s…", waits.Waiting(), want)
	}
	if got := f.adopted(fixture.NodeA, fixture.Token1); len(got) != 0 {
		t.Errorf("adopted %v, want none while they wait", got)
	}
	f.finish(runs[2])
	if got := f.adopted(fixture.NodeA, fixture.Token1); len(got) != 0 {
		t.Errorf("adopted %v, want none when another endpoint is free", got)
	}
	f.finish(runs[1])
	first := f.adopted(fixture.NodeA, 11)
	f.Expect("woken", fixture.MinutesOf(first), []int{1})
	f.Expect("the place of the woken run is kept", f.occupy("a", runs[4]), []string{})
	f.Expect("it goes where it waited", f.occupy("b", first...), []string{"1a"})
	f.finish(first[0])
	for _, minute := range []int{4, 5} {
		next := f.adopted(fixture.NodeA, run.Token(20+minute))
		f.Expect("woken in order", fixture.MinutesOf(next), []int{minute})
		f.Expect("granted in order", f.occupy("a", next...), []string{fmt.Sprint(minute, "a")})
		f.finish(next[0])
	}
	f.Expect("slots at the end", f.occupied(), []string{})
}

func testEndpointQueueLimit(t *testing.T, f *wing) {
	runs := f.perEndpoint(6, run.ConcurrencyQueue, func(j *dispatcher.Job) { j.QueueLimit = 2 })
	f.Expect("taken", append(f.occupy("a", runs[0]), f.occupy("b", runs[1])...), []string{"1a", "2b"})
	f.Expect("one waits for each", append(f.occupy("a", runs[2]), f.occupy("b", runs[3])...), []string{})
	f.Expect("beyond the limit", append(f.occupy("a", runs[4]), f.occupy("b", runs[5])...), []string{})
	f.Expect("states", f.states(runs[2:]), []run.State{
		run.Queued, run.Queued, run.Skipped, run.Skipped,
	})
	want := fmt.Sprintf("2 runs wait already, the most that queue_limit allows; endpoint b runs run %s already", runs[1])
	if got := f.RunOf(runs[5].Key).Error; !strings.HasPrefix(got, want) {
		t.Errorf("error %q, want %q", got, want)
	}
}

func testEndpointReplace(t *testing.T, f *wing) {
	runs := f.perEndpoint(4, run.ConcurrencyReplace, nil)
	notifications := f.Hear()
	f.Expect("taken", append(f.occupy("a", runs[0]), f.occupy("b", runs[1])...), []string{"1a", "2b"})
	f.Expect("a newer one waits for the end of the request", f.occupy("a", runs[2]), []string{})
	notifications.Await(t, dispatcher.Notification{Run: runs[0].String(), Token: runs[0].Token, Attempt: 1})
	f.Expect("states", f.states(runs[:3]), []run.State{run.Cancelled, run.Claimed, run.Queued})
	if got := f.RunOf(runs[0].Key).Error; got != "replaced by run "+runs[2].String() {
		t.Errorf("error of the replaced run: %q", got)
	}
	f.Expect("slots", f.occupied(), []string{"1a", "2b"})
	f.finish(runs[0])
	next := f.adopted(fixture.NodeA, fixture.Token1)
	f.Expect("woken", fixture.MinutesOf(next), []int{3})
	f.Expect("goes on", f.occupy("a", next...), []string{"3a"})
}

// A request refused by an endpoint goes to the next one.
func testEndpointMoves(t *testing.T, f *wing) {
	runs := f.perEndpoint(3, run.ConcurrencyQueue, nil)
	f.Expect("taken", append(f.occupy("a", runs[0]), f.occupy("b", runs[1])...), []string{"1a", "2b"})
	f.Expect("waits", f.occupy("a", runs[2]), []string{})
	f.Expect("moves to a busy one", f.occupy("b", runs[0]), []string{})
	f.Expect("slots", f.occupied(), []string{"2b"})
	next := f.adopted(fixture.NodeA, fixture.Token1)
	f.Expect("woken by the move", fixture.MinutesOf(next), []int{3})
	f.Expect("takes the place", f.occupy("a", next...), []string{"3a"})
	f.finish(runs[1])
	next = f.adopted(fixture.NodeA, fixture.Token2)
	f.Expect("woken", fixture.MinutesOf(next), []int{1})
	f.Expect("has moved", f.occupy("a", next...), []string{"1b"})
}

func testEndpointRetries(t *testing.T, f *wing) {
	runs := f.perEndpoint(3, run.ConcurrencyReplace, nil)
	f.Expect("taken", f.occupy("a", runs[0]), []string{"1a"})
	f.failAttempt(runs[0])
	f.Expect("slots between two attempts", f.occupied(), []string{})
	f.Expect("a newer one takes it", f.occupy("a", runs[1]), []string{"2a"})
	again := f.adoptAgain(fixture.Token1)
	f.Expect("adopted", fixture.MinutesOf(again), []int{1})
	f.Expect("chooses another", f.occupy("b", again...), []string{"1b"})
	f.failAttempt(again[0])
	again = f.adoptAgain(fixture.Token2)
	f.Expect("too old for the same", f.occupy("a", again...), []string{})
	if got := f.RunOf(runs[0].Key); got.State != run.Cancelled ||
		!strings.HasPrefix(got.Error, "replaced by run "+runs[1].String()) || len(got.Attempts) != 3 {
		t.Errorf("a run that was attempted and gets no slot is %+v, want it cancelled and to say why", got)
	}
}

func testEndpointOfTheDead(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.perEndpoint(3, run.ConcurrencyQueue, nil)
	f.Expect("taken", append(f.occupy("a", runs[0]), f.occupy("a", runs[1])...), []string{"1a"})
	f.both()
	f.Must(f.Deregister(ctx, fixture.NodeA))
	f.Must(f.GrantWaiting(ctx))
	taken := f.adopted(fixture.NodeB, fixture.Token1)
	f.Expect("adopted", fixture.MinutesOf(taken), []int{1, 3})
	f.Expect("no other takes its place", f.occupy("a", taken[1]), []string{})
	f.Expect("goes to its endpoint again", f.occupy("b", taken[0]), []string{"1a"})
	f.finish(runs[0])
	f.Expect("slots after a late result", f.occupied(), []string{"1a"})
	f.Must(f.Begin(ctx, taken[:1]))
	f.AddNode(fixture.NodeC)
	f.Must(f.Deregister(ctx, fixture.NodeB))
	f.Must(f.FailLostRuns(ctx, fixture.T0.Add(time.Hour)))
	f.Must(f.GrantWaiting(ctx))
	next := f.adopted(fixture.NodeC, fixture.Token2)
	f.Expect("woken after the lost run", fixture.MinutesOf(next), []int{2})
	f.Expect("taken by the third node", f.occupy("a", next...), []string{"2a"})
}

func testEndpointGone(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.perEndpoint(4, run.ConcurrencyQueue, nil)
	f.Expect("taken", f.occupy("a", runs[0]), []string{"1a"})
	f.Expect("wait", f.occupy("a", runs[1], runs[2]), []string{})
	f.Must(f.GrantWaiting(ctx))
	if got := f.adopted(fixture.NodeA, fixture.Token1); len(got) != 0 {
		t.Errorf("adopted %v, want none while the endpoint is there", got)
	}
	f.Must(f.DrainEndpoint(ctx, "shop", "workers", "a", true, fixture.At(fixture.T0)))
	f.Must(f.GrantWaiting(ctx))
	woken := f.adopted(fixture.NodeA, fixture.Token1)
	f.Expect("woken", fixture.MinutesOf(woken), []int{2, 3})
	f.Expect("routed again", f.occupy("b", woken...), []string{"2b"})
	f.Must(f.DrainEndpoint(ctx, "shop", "workers", "a", false, fixture.At(fixture.T0)))
	f.Expect("waits for another", f.RunOf(woken[1].Key).WaitsForEndpoint, "b")
	group := fixture.Workers() // without b
	group.DNS = nil
	f.DeclareGroup(group, fixture.T0)
	f.Must(f.GrantWaiting(ctx))
	f.Expect("woken when it is removed", fixture.MinutesOf(f.adopted(fixture.NodeA, fixture.Token2)), []int{3})
	f.Expect("slots", f.occupied(), []string{"1a", "2b"})
}

func testEndpointIfFree(t *testing.T, f *wing) {
	runs := f.perEndpoint(5, run.ConcurrencyQueue, nil)
	f.Expect("of two, one is first", f.occupyIf(true, "a", runs[0], runs[1]), []string{"1a", "2busy"})
	f.Expect("once more", f.occupyIf(true, "a", runs[0]), []string{"1a"})
	f.Expect("the next candidate", f.occupyIf(true, "b", runs[1]), []string{"2b"})
	f.Expect("all are busy", append(f.occupyIf(true, "a", runs[2]), f.occupyIf(true, "b", runs[2])...), []string{"3busy", "3busy"})
	f.Expect("it is still its node's", f.states(runs[2:3]), []run.State{run.Claimed})
	f.Expect("one waits", f.occupy("a", runs[3]), []string{})
	f.finish(runs[0])
	f.Expect("free, but another has waited", f.occupyIf(true, "a", runs[2]), []string{"3busy"})
}

func testEndpointAndJobSlots(t *testing.T, f *wing) {
	runs := f.perEndpoint(4, run.ConcurrencyQueue, func(j *dispatcher.Job) {
		j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 3
	})
	f.Expect("three of the job", f.AcquireSlots(runs...), []int{1, 2, 3})
	f.Expect("one at each endpoint", append(f.occupy("a", runs[0], runs[1]), f.occupy("b", runs[2])...), []string{"1a", "3b"})
	f.Must(f.ReleaseSlots(t.Context(), runs[1:2])) // as its node does when it releases the run
	if got := f.adopted(fixture.NodeA, fixture.Token1); len(got) != 0 {
		t.Errorf("adopted %v, want none: the run that waits for the endpoint has its slot of the job", got)
	}
	f.Expect("slots", append(f.occupied(), fmt.Sprint(f.holders())), []string{"1a", "3b", "[1 1 2 3 3]"})
	f.finish(runs[0])
	next := f.adopted(fixture.NodeA, fixture.Token2)
	f.Expect("both go on", fixture.MinutesOf(next), []int{2, 4})
	f.Expect("slots of the job", f.AcquireSlots(next...), []int{2, 4})
	f.Expect("slots of the endpoint", f.occupy("a", next...), []string{"2a"})
}

func testEndpointLifted(t *testing.T, f *wing) {
	runs := f.perEndpoint(3, run.ConcurrencyQueue, nil)
	f.Expect("taken", f.occupy("a", runs...), []string{"1a"})
	j, err := f.Job(t.Context(), "shop", "tick")
	f.Must(err)
	j.Target.Group.EndpointConcurrency = ""
	f.Put(j, fixture.T0)
	f.Must(f.GrantWaiting(t.Context()))
	f.Expect("woken", fixture.MinutesOf(f.adopted(fixture.NodeA, fixture.Token1)), []int{2, 3})
}

func testEndpointCancelled(t *testing.T, f *wing) {
	ctx := t.Context()
	runs := f.perEndpoint(3, run.ConcurrencyQueue, nil)
	f.Expect("taken", f.occupy("a", runs...), []string{"1a"})
	f.Must(f.CancelRun(ctx, runs[1].String(), fixture.At(fixture.T0)))
	f.Must(f.CancelRun(ctx, runs[0].String(), fixture.At(fixture.T0)))
	f.Must(f.GrantWaiting(ctx))
	if got := f.adopted(fixture.NodeA, fixture.Token1); len(got) != 0 {
		t.Errorf("adopted %v, want none while the request of the cancelled run may be in flight", got)
	}
	f.Must(f.RetryRun(ctx, runs[0].String(), fixture.At(fixture.T0)))
	again := f.adopted(fixture.NodeA, fixture.Token1)
	f.Expect("requested again", fixture.MinutesOf(again), []int{1})
	f.Expect("not to another endpoint while it may be in flight", f.occupy("b", again...), []string{})
	f.finish(runs[0])
	again = f.adopted(fixture.NodeA, fixture.Token2)
	f.Expect("woken, and not the one that was cancelled", fixture.MinutesOf(again), []int{1})
	f.Expect("goes on", f.occupy("b", again...), []string{"1a"})
	f.finish(again[0])
	f.Expect("then the next", fixture.MinutesOf(f.adopted(fixture.NodeA, 9)), []int{3})
}
