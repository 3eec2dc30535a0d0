package dispatch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// followBoundTests test the limits for followers of runs of a job.
func followBoundTests() tests {
	return tests{
		"jobs that fan out beyond the bounds of their app are refused":    testFanOutRefused,
		"a job in the middle of a chain counts for those before it":       testFanOutOfMiddle,
		"deliveries count as followers of a run":                          testFanOutOfDeliveries,
		"a chain that would be too deep is refused":                       testDepthRefused,
		"declarations from before bounds were lowered may stay":           testFanOutStays,
		"a chain carries along how many runs may follow":                  testChainCarried,
		"followers beyond the bounds of a chain are recorded as failed":   testChainRefused,
		"followers of a run are set aside while too many runs wait":       testFollowerSetAside,
		"the app of a deleted parent still bounds its followers":          testFollowerOfOtherApps,
		"ends are not set aside without a bound":                          testSetAsideBounded,
		"a backfill waits while too many runs of its app wait":            testBackfillWaits,
		"a request with a payload is refused above bytes_kept":            testPayloadBytes,
		"the payloads of a backfill count for bytes_kept":                 testBackfillBytes,
		"followers get no result above bytes_kept":                        testResultBytes,
		"the waiting runs of an app are counted before they are too many": testWaitingCounted,
	}
}

// layers puts jobs in layers, the last first: all jobs of the next layer follow each job. It returns the first error.
func (f *wing) layers(count, width int) error {
	f.Helper()
	var next []string
	for layer := count - 1; layer >= 0; layer-- {
		var names []string
		for i := range width {
			j := fixture.Job(fmt.Sprintf("l%d-%d", layer, i), nil)
			if names = append(names, j.Name); len(next) > 0 {
				j.OnSuccess = &dispatcher.Follow{Jobs: next}
			}
			if _, _, err := f.PutJob(f.Context(), j, fixture.At(fixture.T0)); err != nil {
				return err
			}
		}
		next = names
	}
	return nil
}

func testFanOutRefused(t *testing.T, f *wing) {
	f.DeclareApp("shop")
	err := f.layers(6, 20)
	f.WantProblem("a fourth layer of 20 jobs that follow 20", err, "bound_quota")
	for _, part := range []string{"quotas.chain_runs", "168420", `"l1-0" -> "l2-`, ` -> "l5-`} {
		if err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("the refusal %q does not say %q", err, part)
		}
	}
}

func testFanOutOfMiddle(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{ChainRuns: 6}})
	put := func(name string, follows ...string) error {
		j := fixture.Job(name, nil)
		if len(follows) > 0 {
			j.OnFailure = &dispatcher.Follow{Jobs: follows}
		}
		_, _, err := f.PutJob(t.Context(), j, fixture.At(fixture.T0))
		return err
	}
	f.Must(put("d"), put("e"), put("c", "d"), put("b"), put("a", "b"), put("first", "a"))
	f.Must(put("b", "c"))
	// first -> a -> b -> c -> d and e are five runs.
	f.Must(put("c", "d", "e"))
	f.Must(put("x"))
	err := put("b", "c", "x")
	f.WantProblem("a second follower in the middle", err, "bound_quota")
	if err != nil && !strings.Contains(err.Error(), `"a" -> "b" -> "c"`) {
		t.Errorf("the refusal %q does not name the way to the job", err)
	}
	f.Must(put("b", "c"), put("b"), put("b", "c"))
}

func testFanOutOfDeliveries(_ *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{ChainRuns: 1}})
	f.Put(fixture.Job("child", nil), fixture.T0)
	parent := fixture.Job("parent", nil)
	parent.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}}
	f.Put(parent, fixture.T0)
	parent.OnFailure.FollowDestination = fixture.Hook("https://example.com/one")
	_, _, err := f.PutJob(f.Context(), parent, fixture.At(fixture.T0))
	f.WantProblem("a delivery besides a job", err, "bound_quota")
}

func testDepthRefused(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{ChainDepth: 2}})
	err := f.layers(4, 1)
	f.WantProblem("a chain of three followers", err, "bound_quota")
	if err != nil && !strings.Contains(err.Error(), `"l0-0" -> "l1-0" -> "l2-0" -> "l3-0"`) {
		t.Errorf("the refusal %q does not name the chain", err)
	}
}

func testFanOutStays(t *testing.T, f *wing) {
	f.DeclareApp("shop")
	f.Must(f.layers(3, 3))
	f.Bound(target.Bounds{Quotas: target.Quotas{ChainRuns: 2, ChainDepth: 1}})
	j, err := f.Job(t.Context(), "shop", "l0-0")
	f.Must(err)
	j.Description = "other"
	f.Must(f.PutJob(t.Context(), j, fixture.At(fixture.T0)))
}

// causeOf returns the cause of the latest run of a job.
func (f *wing) causeOf(name string) run.Cause {
	f.Helper()
	runs, err := f.Runs(f.Context(), dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 1}})
	f.Must(err)
	if len(runs) == 0 {
		f.Fatalf("job %s has no run", name)
	}
	run, err := f.Store.Run(f.Context(), runs[0].ID)
	f.Must(err)
	return *run.Cause
}

// endAdopted adopts all idle runs and ends them, and returns how many.
func (f *wing) endAdopted(now time.Time) int {
	f.Helper()
	held := f.AdoptIdle(fixture.NodeA, now)
	for _, r := range held {
		f.RecordFollowed(r, fixture.Ended(run.Succeeded, now))
	}
	return len(held)
}

func testChainCarried(_ *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{ChainRuns: 14}})
	f.Must(f.layers(3, 2))
	f.Must(f.RequestRun(f.Context(), "shop", "l0-0", nil, fixture.At(fixture.T0)))
	now := fixture.T0.Add(time.Second)
	f.Expect("runs that began", f.endAdopted(now), 1)
	f.Expect("runs that follow", f.FollowAll(now), 2)
	cause := f.causeOf("l1-0")
	f.Expect("the depth and what may follow", [2]int{cause.Depth, cause.MayFollow}, [2]int{1, 6})
	f.Expect("runs that began then", f.endAdopted(now), 2)
	f.Expect("runs that follow these", f.FollowAll(now), 4)
	cause = f.causeOf("l2-1")
	f.Expect("their depth and what may follow", [2]int{cause.Depth, cause.MayFollow}, [2]int{2, 2})
}

func testChainRefused(t *testing.T, f *wing) {
	for name, quotas := range map[string]target.Quotas{"chain_runs": {ChainRuns: 3}, "chain_depth": {ChainDepth: 1}} {
		f.Bound(target.Bounds{})
		f.Must(f.layers(3, 2))
		f.Bound(target.Bounds{Quotas: quotas})
		r, err := f.RequestRun(t.Context(), "shop", "l0-0", nil, fixture.At(fixture.T0))
		f.Must(err)
		now := r.ScheduledAt.Add(time.Second)
		f.Expect("runs that began", f.endAdopted(now), 1)
		f.Expect("runs that follow", f.FollowAll(now), 2)
		f.Expect("runs that began then", f.endAdopted(now), 2)
		f.Expect("runs that follow these", f.FollowAll(now), 0)
		runs, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "l2-0", Page: input.Page{Limit: 1}})
		f.Must(err)
		if len(runs) != 1 || runs[0].State != run.Failed || runs[0].Class != run.ClassBounds || runs[0].Attempt != 0 ||
			!strings.Contains(runs[0].Error, "quotas."+name) {
			t.Fatalf("%s: the runs of the last layer are %+v, want one that failed because of the quota", name, runs)
		}
		attention, err := f.Attention(t.Context(), nil, now)
		f.Must(err)
		if len(attention.Failed.Items) == 0 {
			t.Errorf("%s: attention shows no failure", name)
		}
		// It may be retried, and its followers are still limited.
		f.Must(f.RetryRun(t.Context(), runs[0].ID, fixture.At(now)))
		f.Expect("runs that are retried", f.endAdopted(now), 1)
		f.Expect("runs that follow the retry", f.FollowAll(now), 0)
	}
}

func testFollowerSetAside(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{WaitingRuns: 2}})
	f.PutFollowed(fixture.OnFailure("child"))
	f.Must(f.RequestRun(t.Context(), "shop", "child", nil, fixture.At(fixture.T0)))
	waits, err := f.RequestRun(t.Context(), "shop", "child", nil, fixture.At(fixture.T0.Add(time.Millisecond)))
	f.Must(err)
	held := f.FireOf("parent")
	now := fixture.T0.Add(time.Minute)
	f.RecordFollowed(held, fixture.Ended(run.Failed, now))
	done, err := f.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 10, Now: now})
	f.Must(err)
	if done.Queued != 0 || len(done.SetAside) != 1 || !strings.Contains(done.SetAside[0].Problem, "quotas.waiting_runs") {
		t.Fatalf("with no waiting place left, %+v was done, want one end set aside because of the quota", done)
	}
	attention, err := f.Attention(t.Context(), nil, now)
	f.Must(err)
	f.Expect("ends that attention shows", len(attention.SetAside.Items), 1)
	f.Expect("runs that follow too soon", f.FollowAll(now), 0)
	f.Must(f.CancelRun(t.Context(), waits.ID, fixture.At(now)))
	f.Expect("runs that follow when there is a place", f.FollowAll(now.Add(time.Minute)), 1)
	f.Expect("runs that follow again", f.FollowAll(now.Add(time.Hour)), 0)
}

func testFollowerOfOtherApps(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{WaitingRuns: 1}})
	f.PutFollowed(fixture.OnFailure("child"))
	f.Must(f.RequestRun(t.Context(), "shop", "child", nil, fixture.At(fixture.T0)))
	f.DeclareApp("bank")
	for _, name := range []string{"child", "parent"} {
		j := fixture.Job(name, nil)
		if j.App = "bank"; name == "parent" {
			j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}}
		}
		f.Must(f.PutJob(t.Context(), j, fixture.At(fixture.T0)))
	}
	f.Must(f.RequestRun(t.Context(), "bank", "parent", nil, fixture.At(fixture.T0)))
	now := fixture.T0.Add(time.Minute)
	f.RecordFollowed(f.FireOf("parent"), fixture.Ended(run.Failed, now))
	for _, r := range f.AdoptIdle(fixture.NodeA, now) {
		if r.JobID == run.JobID("bank", "parent") {
			f.RecordFollowed(r, fixture.Ended(run.Failed, now))
		} else {
			f.Must(f.Release(t.Context(), []run.HeldRun{r}))
		}
	}
	f.Expect("runs that follow in the app that has room", f.FollowAll(now), 1)
}

func testSetAsideBounded(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{WaitingRuns: 1}})
	f.PutFollowed(fixture.OnFailure("child"))
	f.Must(f.RequestRun(t.Context(), "shop", "child", nil, fixture.At(fixture.T0)))
	aside := 0
	for range 4 {
		held := f.FireOf("parent")
		f.RecordFollowed(held, fixture.Ended(run.Failed, held.ScheduledAt))
		done, err := f.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 10, Now: fixture.T0.Add(time.Minute)})
		f.Must(err)
		aside += len(done.SetAside)
	}
	f.Expect("ends that are set aside", aside, 2)
	f.Expect("the runs of the child", strings.Count(f.RunsOf("child"), "chain failed"), 2)
}

func testBackfillWaits(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{WaitingRuns: 1}})
	b := f.BackfillOfNew(nil)
	f.Put(fixture.Job("other", nil), fixture.T0)
	waiting, err := f.RequestRun(t.Context(), "shop", "other", nil, fixture.At(b.Now))
	f.Must(err)
	fed, err := f.FeedBackfill(t.Context(), b.ID, b.Now)
	f.Must(err)
	if fed.Queued != 0 || fed.NextAt.IsZero() {
		t.Errorf("with no waiting place left, %+v was done, want nothing until later", fed)
	}
	shown, err := f.Backfill(t.Context(), "shop", repeat.BackfillID(b.ID))
	f.Must(err)
	if !strings.Contains(shown.Waits, "quotas.waiting_runs") {
		t.Errorf("the backfill waits because %q, want the quota", shown.Waits)
	}
	f.Must(f.CancelRun(t.Context(), waiting.ID, fixture.At(b.Now)))
	fed, err = f.FeedBackfill(t.Context(), b.ID, b.Now.Add(time.Minute))
	f.Must(err)
	if fed.Queued == 0 {
		t.Errorf("with a waiting place, %+v was done, want runs queued", fed)
	}
	shown, err = f.Backfill(t.Context(), "shop", repeat.BackfillID(b.ID))
	f.Must(err)
	f.Expect("why the backfill waits when it goes on", shown.Waits, "")
}

// large is a payload of some bytes.
func large(bytes int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", bytes) + `"`) }

func testPayloadBytes(t *testing.T, f *wing) {
	f.PutEvery("tick", time.Minute)
	f.Bound(target.Bounds{Quotas: target.Quotas{BytesKept: 1 << 20}})
	for range 5 {
		f.Must(f.RequestRun(t.Context(), "shop", "tick", large(200<<10), fixture.At(fixture.T0)))
	}
	all, err := f.KeepBytes(t.Context(), map[string]int64{"shop": 0}, fixture.T0)
	f.Must(err)
	if kept := all["shop"]; kept < 1000<<10 || kept > 1001<<10 {
		t.Errorf("5 payloads of 200 KiB count as %d bytes, want their size", kept)
	}
	_, err = f.RequestRun(t.Context(), "shop", "tick", large(200<<10), fixture.At(fixture.T0))
	f.WantProblem("a payload above the quota", err, "bound_quota")
	if err != nil && !strings.Contains(err.Error(), "quotas.bytes_kept") {
		t.Errorf("the refusal %q does not name the quota", err)
	}
	f.Must(f.RequestRun(t.Context(), "shop", "tick", nil, fixture.At(fixture.T0)))
}

func testBackfillBytes(t *testing.T, f *wing) {
	b := f.BackfillOfNew(func(spec *repeat.BackfillSpec) { spec.Payload = large(250 << 10); spec.Concurrency = 2 })
	f.Bound(target.Bounds{Quotas: target.Quotas{BytesKept: 1 << 20}})
	queued := 0
	for i := range 5 {
		now := fixture.T0.Add(time.Duration(i+1) * time.Minute)
		fed, err := f.FeedBackfill(t.Context(), b.ID, now)
		f.Must(err)
		queued += fed.Queued
		f.endAdopted(now)
	}
	if queued < 4 || queued > 6 {
		t.Errorf("%d runs with 250 KiB each were queued within 1 MiB, want about 4", queued)
	}
	shown, err := f.Backfill(t.Context(), "shop", repeat.BackfillID(b.ID))
	f.Must(err)
	if !strings.Contains(shown.Waits, "quotas.bytes_kept") {
		t.Errorf("the backfill waits because %q, want the quota", shown.Waits)
	}
}

func testResultBytes(t *testing.T, f *wing) {
	f.Bound(target.Bounds{Quotas: target.Quotas{BytesKept: 1 << 20}})
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnSuccess = &dispatcher.Follow{Jobs: []string{"child"}, Payload: dispatcher.FollowResult}
	})
	kept, err := f.KeepBytes(t.Context(), map[string]int64{"shop": 1 << 20}, fixture.T0)
	f.Must(err)
	held := f.FireOf("parent")
	o := fixture.Outcome(fixture.T0.Add(time.Minute))
	o.Response = &run.Response{Body: strings.Repeat("r", 60<<10)}
	f.RecordFollowed(held, o)
	f.Expect("runs that follow", f.FollowAll(fixture.T0.Add(time.Minute)), 1)
	inputs, err := f.RunInputs(t.Context(), []run.Key{f.AdoptIdle(fixture.NodeA, fixture.T0.Add(time.Minute))[0].Key})
	f.Must(err)
	for _, input := range inputs {
		var document dispatcher.FollowDocument
		f.Must(json.Unmarshal(input.Payload, &document))
		if document.Result != nil || !strings.Contains(document.ResultOmitted, "quotas.bytes_kept") {
			t.Errorf("the child gets %d bytes of result, omitted %q; want none, and the quota", len(document.Result), document.ResultOmitted)
		}
	}
	after, err := f.KeepBytes(t.Context(), map[string]int64{"shop": 0}, fixture.T0)
	f.Must(err)
	if after["shop"] <= kept["shop"] {
		t.Errorf("the app keeps %d bytes, want more than %d: what the child was given counts", after["shop"], kept["shop"])
	}
}

func testWaitingCounted(t *testing.T, f *wing) {
	held := f.ClaimOne("tick")
	next := dispatcher.NextAttempt{At: fixture.T0.Add(time.Hour), Until: fixture.T0.Add(time.Hour), CountsAsFailure: true}
	r := fixture.Record(held, fixture.Ended(run.Failed, fixture.T0.Add(time.Minute)))
	r.Next = &next
	f.Must(f.Record(t.Context(), []dispatcher.Record{r}))
	wait := func(what string, given int64, most int, now time.Time, want int64) {
		t.Helper()
		waiting, err := f.WaitingRuns(t.Context(), map[string]dispatcher.GivenPlaces{"shop": {Given: given, Most: most}}, now)
		f.Must(err)
		f.Expect(what, waiting["shop"], want)
	}
	now := fixture.T0.Add(2 * time.Minute)
	wait("runs that wait for their next attempt", 0, 10, now, 1)
	wait("runs that wait, with those that a node reports", 2, 10, now, 3)
	wait("runs that are counted again when they may be too many", 20, 10, now.Add(time.Second), 1)
}
