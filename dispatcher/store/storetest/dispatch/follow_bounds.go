package storetest

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
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// followBoundTests are those of how much may follow the runs of a job.
func followBoundTests() tests {
	return tests{
		"jobs that fan out beyond the bounds of their app are refused":    testFanOutRefused,
		"a job in the middle of a chain counts for those before it":       testFanOutOfMiddle,
		"deliveries count towards what follows a run":                     testFanOutOfDeliveries,
		"a chain that would be too deep is refused":                       testDepthRefused,
		"what was declared before bounds were lowered may stay":           testFanOutStays,
		"a chain carries along how many runs may follow":                  testChainCarried,
		"what a chain may not have is recorded as failed":                 testChainRefused,
		"what follows a run is set aside while too many runs wait":        testFollowerSetAside,
		"the app of a deleted parent bounds what follows all the same":    testFollowerOfOtherApps,
		"ends are not set aside without a bound":                          testSetAsideBounded,
		"a backfill waits while too many runs of its app wait":            testBackfillWaits,
		"a request with a payload is refused above bytes_kept":            testPayloadBytes,
		"the payloads of a backfill count for bytes_kept":                 testBackfillBytes,
		"followers get no result above bytes_kept":                        testResultBytes,
		"the waiting runs of an app are counted before they are too many": testWaitingCounted,
	}
}

// layers puts jobs in layers, the last first: each job is followed by all of the next layer. It returns the first error.
func (f *fixture) layers(count, width int) error {
	f.Helper()
	var next []string
	for layer := count - 1; layer >= 0; layer-- {
		var names []string
		for i := range width {
			j := job(fmt.Sprintf("l%d-%d", layer, i), nil)
			if names = append(names, j.Name); len(next) > 0 {
				j.OnSuccess = &dispatcher.Follow{Jobs: next}
			}
			if _, _, err := f.PutJob(f.Context(), j, at(t0)); err != nil {
				return err
			}
		}
		next = names
	}
	return nil
}

func testFanOutRefused(t *testing.T, f *fixture) {
	f.putApp("shop")
	err := f.layers(6, 20)
	f.wantProblem("a fourth layer of 20 jobs that follow 20", err, "bound_quota")
	for _, part := range []string{"quotas.chain_runs", "168420", `"l1-0" -> "l2-`, ` -> "l5-`} {
		if err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("the refusal %q does not say %q", err, part)
		}
	}
}

func testFanOutOfMiddle(t *testing.T, f *fixture) {
	f.bound(target.Bounds{Quotas: target.Quotas{ChainRuns: 6}})
	put := func(name string, follows ...string) error {
		j := job(name, nil)
		if len(follows) > 0 {
			j.OnFailure = &dispatcher.Follow{Jobs: follows}
		}
		_, _, err := f.PutJob(t.Context(), j, at(t0))
		return err
	}
	f.must(put("d"), put("e"), put("c", "d"), put("b"), put("a", "b"), put("first", "a"))
	f.must(put("b", "c"))
	// first -> a -> b -> c -> d and e are five runs.
	f.must(put("c", "d", "e"))
	f.must(put("x"))
	err := put("b", "c", "x")
	f.wantProblem("a second follower in the middle", err, "bound_quota")
	if err != nil && !strings.Contains(err.Error(), `"a" -> "b" -> "c"`) {
		t.Errorf("the refusal %q does not name the way to the job", err)
	}
	f.must(put("b", "c"), put("b"), put("b", "c"))
}

func testFanOutOfDeliveries(_ *testing.T, f *fixture) {
	f.bound(target.Bounds{Quotas: target.Quotas{ChainRuns: 1}})
	f.put(job("child", nil), t0)
	parent := job("parent", nil)
	parent.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}}
	f.put(parent, t0)
	parent.OnFailure.Target = hook("https://example.com/one")
	_, _, err := f.PutJob(f.Context(), parent, at(t0))
	f.wantProblem("a delivery besides a job", err, "bound_quota")
}

func testDepthRefused(t *testing.T, f *fixture) {
	f.bound(target.Bounds{Quotas: target.Quotas{ChainDepth: 2}})
	err := f.layers(4, 1)
	f.wantProblem("a chain of three followers", err, "bound_quota")
	if err != nil && !strings.Contains(err.Error(), `"l0-0" -> "l1-0" -> "l2-0" -> "l3-0"`) {
		t.Errorf("the refusal %q does not name the chain", err)
	}
}

func testFanOutStays(t *testing.T, f *fixture) {
	f.putApp("shop")
	f.must(f.layers(3, 3))
	f.bound(target.Bounds{Quotas: target.Quotas{ChainRuns: 2, ChainDepth: 1}})
	j, err := f.Job(t.Context(), "shop", "l0-0")
	f.must(err)
	j.Description = "other"
	f.must(f.PutJob(t.Context(), j, at(t0)))
}

// causeOf returns why the latest run of a job exists.
func (f *fixture) causeOf(name string) run.Cause {
	f.Helper()
	runs, err := f.Runs(f.Context(), dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 1}})
	f.must(err)
	if len(runs) == 0 {
		f.Fatalf("job %s has no run", name)
	}
	run, err := f.Store.Run(f.Context(), runs[0].ID)
	f.must(err)
	return *run.Cause
}

// endAdopted adopts all idle runs and ends them, and returns how many.
func (f *fixture) endAdopted(now time.Time) int {
	f.Helper()
	held := f.adoptIdle(nodeA, now)
	for _, r := range held {
		f.recordFollowed(r, ended(run.Succeeded, now))
	}
	return len(held)
}

func testChainCarried(_ *testing.T, f *fixture) {
	f.bound(target.Bounds{Quotas: target.Quotas{ChainRuns: 14}})
	f.must(f.layers(3, 2))
	f.must(f.RequestRun(f.Context(), "shop", "l0-0", nil, at(t0)))
	now := t0.Add(time.Second)
	f.expect("runs that began", f.endAdopted(now), 1)
	f.expect("runs that follow", f.followEnds(now), 2)
	cause := f.causeOf("l1-0")
	f.expect("the depth and what may follow", [2]int{cause.Depth, cause.MayFollow}, [2]int{1, 6})
	f.expect("runs that began then", f.endAdopted(now), 2)
	f.expect("runs that follow these", f.followEnds(now), 4)
	cause = f.causeOf("l2-1")
	f.expect("their depth and what may follow", [2]int{cause.Depth, cause.MayFollow}, [2]int{2, 2})
}

func testChainRefused(t *testing.T, f *fixture) {
	for name, quotas := range map[string]target.Quotas{"chain_runs": {ChainRuns: 3}, "chain_depth": {ChainDepth: 1}} {
		f.bound(target.Bounds{})
		f.must(f.layers(3, 2))
		f.bound(target.Bounds{Quotas: quotas})
		r, err := f.RequestRun(t.Context(), "shop", "l0-0", nil, at(t0))
		f.must(err)
		now := r.ScheduledAt.Add(time.Second)
		f.expect("runs that began", f.endAdopted(now), 1)
		f.expect("runs that follow", f.followEnds(now), 2)
		f.expect("runs that began then", f.endAdopted(now), 2)
		f.expect("runs that follow these", f.followEnds(now), 0)
		runs, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "l2-0", Page: input.Page{Limit: 1}})
		f.must(err)
		if len(runs) != 1 || runs[0].State != run.Failed || runs[0].Class != run.ClassBounds || runs[0].Attempt != 0 ||
			!strings.Contains(runs[0].Error, "quotas."+name) {
			t.Fatalf("%s: the runs of the last layer are %+v, want one that failed because of the quota", name, runs)
		}
		attention, err := f.Attention(t.Context(), nil, now)
		f.must(err)
		if len(attention.Failed.Items) == 0 {
			t.Errorf("%s: attention shows no failure", name)
		}
		// It may be retried, and what follows it is still bounded.
		f.must(f.RetryRun(t.Context(), runs[0].ID, at(now)))
		f.expect("runs that are retried", f.endAdopted(now), 1)
		f.expect("runs that follow the retry", f.followEnds(now), 0)
	}
}

func testFollowerSetAside(t *testing.T, f *fixture) {
	f.bound(target.Bounds{Quotas: target.Quotas{WaitingRuns: 2}})
	f.putFollowed(onFailure("child"))
	f.must(f.RequestRun(t.Context(), "shop", "child", nil, at(t0)))
	waits, err := f.RequestRun(t.Context(), "shop", "child", nil, at(t0.Add(time.Millisecond)))
	f.must(err)
	held := f.fireOf("parent")
	now := t0.Add(time.Minute)
	f.recordFollowed(held, ended(run.Failed, now))
	done, err := f.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 10, Now: now})
	f.must(err)
	if done.Queued != 0 || len(done.SetAside) != 1 || !strings.Contains(done.SetAside[0].Problem, "quotas.waiting_runs") {
		t.Fatalf("with no waiting place left, %+v was done, want one end set aside because of the quota", done)
	}
	attention, err := f.Attention(t.Context(), nil, now)
	f.must(err)
	f.expect("ends that attention shows", len(attention.SetAside.Items), 1)
	f.expect("runs that follow too soon", f.followEnds(now), 0)
	f.must(f.CancelRun(t.Context(), waits.ID, at(now)))
	f.expect("runs that follow when there is a place", f.followEnds(now.Add(time.Minute)), 1)
	f.expect("runs that follow again", f.followEnds(now.Add(time.Hour)), 0)
}

func testFollowerOfOtherApps(t *testing.T, f *fixture) {
	f.bound(target.Bounds{Quotas: target.Quotas{WaitingRuns: 1}})
	f.putFollowed(onFailure("child"))
	f.must(f.RequestRun(t.Context(), "shop", "child", nil, at(t0)))
	f.putApp("bank")
	for _, name := range []string{"child", "parent"} {
		j := job(name, nil)
		if j.App = "bank"; name == "parent" {
			j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}}
		}
		f.must(f.PutJob(t.Context(), j, at(t0)))
	}
	f.must(f.RequestRun(t.Context(), "bank", "parent", nil, at(t0)))
	now := t0.Add(time.Minute)
	f.recordFollowed(f.fireOf("parent"), ended(run.Failed, now))
	for _, r := range f.adoptIdle(nodeA, now) {
		if r.JobID == run.JobID("bank", "parent") {
			f.recordFollowed(r, ended(run.Failed, now))
		} else {
			f.must(f.Release(t.Context(), []run.HeldRun{r}))
		}
	}
	f.expect("runs that follow in the app that has room", f.followEnds(now), 1)
}

func testSetAsideBounded(t *testing.T, f *fixture) {
	f.bound(target.Bounds{Quotas: target.Quotas{WaitingRuns: 1}})
	f.putFollowed(onFailure("child"))
	f.must(f.RequestRun(t.Context(), "shop", "child", nil, at(t0)))
	aside := 0
	for range 4 {
		held := f.fireOf("parent")
		f.recordFollowed(held, ended(run.Failed, held.ScheduledAt))
		done, err := f.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: 10, Now: t0.Add(time.Minute)})
		f.must(err)
		aside += len(done.SetAside)
	}
	f.expect("ends that are set aside", aside, 2)
	f.expect("the runs of the child", strings.Count(f.runsOf("child"), "chain failed"), 2)
}

func testBackfillWaits(t *testing.T, f *fixture) {
	f.bound(target.Bounds{Quotas: target.Quotas{WaitingRuns: 1}})
	b := f.backfill(nil)
	f.put(job("other", nil), t0)
	waiting, err := f.RequestRun(t.Context(), "shop", "other", nil, at(b.now))
	f.must(err)
	fed, err := f.FeedBackfill(t.Context(), b.id, b.now)
	f.must(err)
	if fed.Queued != 0 || fed.NextAt.IsZero() {
		t.Errorf("with no waiting place left, %+v was done, want nothing until later", fed)
	}
	shown, err := f.Backfill(t.Context(), "shop", repeat.BackfillID(b.id))
	f.must(err)
	if !strings.Contains(shown.Waits, "quotas.waiting_runs") {
		t.Errorf("the backfill waits because %q, want the quota", shown.Waits)
	}
	f.must(f.CancelRun(t.Context(), waiting.ID, at(b.now)))
	fed, err = f.FeedBackfill(t.Context(), b.id, b.now.Add(time.Minute))
	f.must(err)
	if fed.Queued == 0 {
		t.Errorf("with a waiting place, %+v was done, want runs queued", fed)
	}
	shown, err = f.Backfill(t.Context(), "shop", repeat.BackfillID(b.id))
	f.must(err)
	f.expect("why the backfill waits when it goes on", shown.Waits, "")
}

// large is a payload of some bytes.
func large(bytes int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", bytes) + `"`) }

func testPayloadBytes(t *testing.T, f *fixture) {
	f.putEvery("tick", time.Minute)
	f.bound(target.Bounds{Quotas: target.Quotas{BytesKept: 1 << 20}})
	for range 5 {
		f.must(f.RequestRun(t.Context(), "shop", "tick", large(200<<10), at(t0)))
	}
	all, err := f.KeepBytes(t.Context(), map[string]int64{"shop": 0}, t0)
	f.must(err)
	if kept := all["shop"]; kept < 1000<<10 || kept > 1001<<10 {
		t.Errorf("5 payloads of 200 KiB count as %d bytes, want their size", kept)
	}
	_, err = f.RequestRun(t.Context(), "shop", "tick", large(200<<10), at(t0))
	f.wantProblem("a payload above the quota", err, "bound_quota")
	if err != nil && !strings.Contains(err.Error(), "quotas.bytes_kept") {
		t.Errorf("the refusal %q does not name the quota", err)
	}
	f.must(f.RequestRun(t.Context(), "shop", "tick", nil, at(t0)))
}

func testBackfillBytes(t *testing.T, f *fixture) {
	b := f.backfill(func(spec *repeat.BackfillSpec) { spec.Payload = large(250 << 10); spec.Concurrency = 2 })
	f.bound(target.Bounds{Quotas: target.Quotas{BytesKept: 1 << 20}})
	queued := 0
	for i := range 5 {
		now := t0.Add(time.Duration(i+1) * time.Minute)
		fed, err := f.FeedBackfill(t.Context(), b.id, now)
		f.must(err)
		queued += fed.Queued
		f.endAdopted(now)
	}
	if queued < 4 || queued > 6 {
		t.Errorf("%d runs with 250 KiB each were queued within 1 MiB, want about 4", queued)
	}
	shown, err := f.Backfill(t.Context(), "shop", repeat.BackfillID(b.id))
	f.must(err)
	if !strings.Contains(shown.Waits, "quotas.bytes_kept") {
		t.Errorf("the backfill waits because %q, want the quota", shown.Waits)
	}
}

func testResultBytes(t *testing.T, f *fixture) {
	f.bound(target.Bounds{Quotas: target.Quotas{BytesKept: 1 << 20}})
	f.putFollowed(func(j *dispatcher.Job) {
		j.OnSuccess = &dispatcher.Follow{Jobs: []string{"child"}, Payload: dispatcher.FollowResult}
	})
	kept, err := f.KeepBytes(t.Context(), map[string]int64{"shop": 1 << 20}, t0)
	f.must(err)
	held := f.fireOf("parent")
	o := outcome(t0.Add(time.Minute))
	o.Response = &run.Response{Body: strings.Repeat("r", 60<<10)}
	f.recordFollowed(held, o)
	f.expect("runs that follow", f.followEnds(t0.Add(time.Minute)), 1)
	inputs, err := f.RunInputs(t.Context(), []run.Key{f.adoptIdle(nodeA, t0.Add(time.Minute))[0].Key})
	f.must(err)
	for _, input := range inputs {
		var document dispatcher.FollowDocument
		f.must(json.Unmarshal(input.Payload, &document))
		if document.Result != nil || !strings.Contains(document.ResultOmitted, "quotas.bytes_kept") {
			t.Errorf("the child gets %d bytes of result, omitted %q; want none, and the quota", len(document.Result), document.ResultOmitted)
		}
	}
	after, err := f.KeepBytes(t.Context(), map[string]int64{"shop": 0}, t0)
	f.must(err)
	if after["shop"] <= kept["shop"] {
		t.Errorf("the app keeps %d bytes, want more than %d: what the child was given counts", after["shop"], kept["shop"])
	}
}

func testWaitingCounted(t *testing.T, f *fixture) {
	held := f.claimOne("tick")
	next := dispatcher.NextAttempt{At: t0.Add(time.Hour), Until: t0.Add(time.Hour), CountsAsFailure: true}
	r := record(held, ended(run.Failed, t0.Add(time.Minute)))
	r.Next = &next
	f.must(f.Record(t.Context(), []dispatcher.Record{r}))
	wait := func(what string, given int64, most int, now time.Time, want int64) {
		t.Helper()
		waiting, err := f.WaitingRuns(t.Context(), map[string]dispatcher.GivenPlaces{"shop": {Given: given, Most: most}}, now)
		f.must(err)
		f.expect(what, waiting["shop"], want)
	}
	now := t0.Add(2 * time.Minute)
	wait("runs that wait for their next attempt", 0, 10, now, 1)
	wait("runs that wait, with those that a node reports", 2, 10, now, 3)
	wait("runs that are counted again when they may be too many", 20, 10, now.Add(time.Second), 1)
}
