package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// hostTests are about runs that wait for their host.
func hostTests() tests {
	return tests{
		"runs that wait for a host are out of the way":          testWaitForHost,
		"one node takes the probe of a host":                    testTakeProbe,
		"a host that responded lets all runs go":                testHostResponded,
		"probes prefer runs that were never attempted":          testProbesPreferNew,
		"a run that only waited has a last attempt":             testLastAttemptOfWaiting,
		"a wait goes when no run is left, and not before":       testDropHostWait,
		"what nodes know of a host's pauses comes together":     testPausesOfHost,
		"switches hold the probes of a host":                    testSwitchedHost,
		"few waits of one host do not hide those of the others": testHostsTakeTurns,
	}
}

// waitOf is the wait of a job's runs, a minute after they began.
func waitOf(name, host string) dispatcher.HostWait {
	return dispatcher.HostWait{
		ID: dispatcher.HostWaitID(run.JobID("shop", name), host), AppID: run.AppID("shop"),
		JobID: run.JobID("shop", name), Host: host, Pause: 5 * time.Second, ProbeAt: t0.Add(2 * time.Minute),
	}
}

// waits records that a run waits for a host, until an hour later.
func (f *fixture) waits(held run.HeldRun, wait dispatcher.HostWait) {
	f.Helper()
	start := t0.Add(time.Minute)
	f.again(held, run.Outcome{State: run.Failed, StartedAt: start, EndedAt: start, Class: run.ClassCircuitOpen,
		Error: "the host is down"}, dispatcher.NextAttempt{At: start, Until: start.Add(time.Hour), NotAttempted: true, Wait: &wait})
}

// waitingFor returns the runs that wait, in the order in which they go.
func (f *fixture) waitingFor(wait dispatcher.HostWait, now time.Time) []dispatcher.Adoptable {
	f.Helper()
	found, err := f.Adoptable(f.Context(), dispatcher.AdoptQuery{Node: nodeA, Limit: 10, Now: now, WaitsFor: wait.ID})
	f.must(err)
	return found
}

// waiting returns what a run waits for.
func (f *fixture) waiting(key run.Key) string {
	f.Helper()
	run := f.run(key)
	return run.Waiting()
}

// dueHosts returns the waits that are due.
func (f *fixture) dueHosts(now time.Time) []dispatcher.HostWait {
	f.Helper()
	due, err := f.DueHosts(f.Context(), dispatcher.HostQuery{Now: now, Overdue: now})
	f.must(err)
	return due
}

func testWaitForHost(t *testing.T, f *fixture) {
	held, wait := f.claimOne("tick"), waitOf("tick", "down.example.com")
	f.waits(held, wait)
	r := f.run(held.Key)
	if r.State != run.Retrying || r.WaitsFor != wait.Host || r.NextAttemptAt != nil || r.Attempt != 0 ||
		r.Error != "the host is down" || r.Class != run.ClassCircuitOpen {
		t.Errorf("run = %+v, want it to wait for %s, with the reason", r, wait.Host)
	}
	const waits = "waits for host down.example.com, whose circuit is open; the next probe is at "
	wantDiff(t, "explanation of the run", "run: its run "+waits+input.FormatInstant(wait.ProbeAt)+" (the host is down)",
		f.explain("tick", held.ScheduledAt, t0.Add(time.Minute)))
	listed, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "tick", Page: input.Page{Limit: 10}})
	f.must(err)
	if len(listed) != 1 || listed[0].Waiting() != r.Waiting() {
		t.Errorf("listed %+v, want the run, and that it %s", listed, r.Waiting())
	}
	wantDiff(t, "retries that are due", 0, len(f.adoptRetries(t0.Add(30*time.Minute))))
	next, err := f.NextRetry(t.Context(), time.Time{}, t0)
	f.must(err)
	wantDiff(t, "the next retries, and whether a run waits", dispatcher.RetryTimes{Waits: true}, next)
	wantDiff(t, "waits before the probe is due", 0, len(f.dueHosts(wait.ProbeAt.Add(-time.Millisecond))))
	wantDiff(t, "waits when it is due", []dispatcher.HostWait{wait}, f.dueHosts(wait.ProbeAt))
	found := f.waitingFor(wait, wait.ProbeAt)
	query := dispatcher.AdoptQuery{Node: nodeA, Token: token2, Limit: 1, Now: wait.ProbeAt, WaitsFor: wait.ID}
	adopted, err := f.Store.Adopt(t.Context(), query, found)
	f.must(err)
	if len(adopted) != 1 || adopted[0].Key != held.Key || adopted[0].Attempt != 1 || adopted[0].Token != token2 {
		t.Fatalf("adopted %+v, want the run, in its first attempt", adopted)
	}
	if r := f.run(held.Key); r.State != run.Claimed || r.WaitsFor != "" {
		t.Errorf("the adopted run = %+v, want it claimed", r)
	}
	again, err := f.Store.Adopt(t.Context(), query, found)
	f.must(err)
	wantDiff(t, "runs adopted twice", 0, len(again))
}

func testTakeProbe(t *testing.T, f *fixture) {
	wait := waitOf("tick", "down.example.com")
	f.waits(f.claimOne("tick"), wait)
	next := wait.ProbeAt.Add(10 * time.Second)
	for n, want := range []bool{true, false} {
		won, err := f.TakeProbe(t.Context(), wait, 10*time.Second, next)
		f.must(err)
		if won != want {
			t.Errorf("try %d to take the probe: %v, want %v", n+1, won, want)
		}
	}
	wait.Pause, wait.ProbeAt = 10*time.Second, next
	wantDiff(t, "waits before the next probe", 0, len(f.dueHosts(next.Add(-time.Millisecond))))
	wantDiff(t, "waits at the next probe", []dispatcher.HostWait{wait}, f.dueHosts(next))
}

func testHostResponded(t *testing.T, f *fixture) {
	wait := waitOf("tick", "down.example.com")
	held := f.claimOne("tick")
	f.waits(held, wait)
	now := t0.Add(90 * time.Second)
	f.must(f.HostResponded(t.Context(), wait.ID, now))
	wait.Pause, wait.ProbeAt = 0, now
	wantDiff(t, "waits that are due", []dispatcher.HostWait{wait}, f.dueHosts(now))
	wantDiff(t, "what the run waits for", "waits for host down.example.com, which responds again", f.waiting(held.Key))
	f.must(f.HostResponded(t.Context(), 12345, now)) // nothing waits
}

func testProbesPreferNew(t *testing.T, f *fixture) {
	wait := waitOf("tick", "down.example.com")
	attempted := f.claimOne("tick")
	f.again(attempted, failure(t0.Add(time.Minute)), failedUntil(t0.Add(time.Minute)))
	again := f.adoptRetries(t0.Add(time.Minute))
	if len(again) != 1 {
		t.Fatalf("adopted %d runs, want 1", len(again))
	}
	f.waits(again[0], wait)
	key := f.requested("tick")
	manual := f.adoptIdle(nodeA, t0.Add(3*time.Minute))
	if len(manual) != 1 {
		t.Fatalf("adopted %d requested runs, want 1", len(manual))
	}
	f.waits(manual[0], wait)
	var order []run.Key
	for _, run := range f.waitingFor(wait, wait.ProbeAt) {
		order = append(order, run.Key)
	}
	wantDiff(t, "order of the probes", []run.Key{key, attempted.Key}, order)
}

// requested queues a manual run.
func (f *fixture) requested(job string) run.Key {
	f.Helper()
	r, err := f.RequestRun(f.Context(), "shop", job, nil, input.Change{Actor: "test", Now: t0.Add(3 * time.Minute)})
	f.must(err)
	key, err := run.ParseKey(r.ID)
	f.must(err)
	return key
}

func testLastAttemptOfWaiting(t *testing.T, f *fixture) {
	wait := waitOf("tick", "down.example.com")
	held := f.claimOne("tick")
	f.waits(held, wait)
	over := t0.Add(time.Minute + time.Hour)
	given, err := f.GiveUp(t.Context(), over.Add(time.Second))
	f.must(err)
	wantDiff(t, "runs given up that were never attempted", 0, given)
	f.dueHosts(over.Add(-time.Millisecond))
	wantDiff(t, "runs due before their time is over", 0, len(f.adoptRetries(over.Add(-time.Millisecond))))
	f.dueHosts(over)
	adopted := f.adoptRetries(over)
	if len(adopted) != 1 || adopted[0].Key != held.Key || !adopted[0].RetryUntil.Equal(over) || adopted[0].Attempt != 1 {
		t.Errorf("adopted %+v, want the run for its first attempt, which is the last", adopted)
	}
}

func testDropHostWait(t *testing.T, f *fixture) {
	wait := waitOf("tick", "down.example.com")
	held := f.claimOne("tick")
	f.waits(held, wait)
	for _, want := range []bool{false, true, false} {
		dropped, err := f.DropHostWait(t.Context(), wait.ID)
		f.must(err)
		if dropped != want {
			t.Errorf("dropped: %v, want %v", dropped, want)
		}
		if !want {
			_, err = f.CancelRun(t.Context(), held.String(), input.Change{Actor: "test"})
			if err != nil && f.run(held.Key).EndedAt == nil {
				t.Fatal(err)
			}
		}
	}
	next, err := f.NextRetry(t.Context(), t0, t0)
	f.must(err)
	wantDiff(t, "whether a run waits", false, next.Waits)
}

func testPausesOfHost(t *testing.T, f *fixture) {
	wait := waitOf("tick", "down.example.com")
	f.waits(f.claimOne("tick"), wait)
	longer, shorter := wait, wait
	longer.Pause, longer.ProbeAt = time.Minute, wait.ProbeAt.Add(time.Minute)
	shorter.Pause, shorter.ProbeAt = time.Second, wait.ProbeAt.Add(-time.Minute)
	for _, one := range []dispatcher.HostWait{longer, shorter} {
		f.requested("tick")
		f.waits(f.adoptIdle(nodeA, t0.Add(3*time.Minute))[0], one)
	}
	wantDiff(t, "the wait", []dispatcher.HostWait{longer}, f.dueHosts(longer.ProbeAt))
	wantDiff(t, "runs that wait", 3, len(f.waitingFor(wait, longer.ProbeAt)))
}

func testSwitchedHost(t *testing.T, f *fixture) {
	wait := waitOf("tick", "down.example.com")
	f.waits(f.claimOne("tick"), wait)
	for _, pause := range []bool{true, false} {
		_, err := f.PauseJob(t.Context(), "shop", "tick", "", pause, input.Change{Actor: "test", Now: t0.Add(time.Minute)})
		f.must(err)
		want := 1
		if pause {
			want = 0
		}
		wantDiff(t, "waits that are due", want, len(f.dueHosts(wait.ProbeAt)))
		wantDiff(t, "runs that may go", want, len(f.waitingFor(wait, wait.ProbeAt)))
	}
	at, before := wait.ProbeAt, wait.ProbeAt.Add(-time.Millisecond)
	for what, query := range map[string]dispatcher.HostQuery{
		"of an app that the node does not serve":   {Now: at, Overdue: at, Apps: []string{"other"}},
		"of that app, by its id":                   {Now: at, IDs: []int64{wait.ID}, Apps: []string{"other"}},
		"by its id before it is due":               {Now: before, IDs: []int64{wait.ID}},
		"by another id":                            {Now: at, IDs: []int64{wait.ID + 1}},
		"by another id, and what was due before":   {Now: at, IDs: []int64{wait.ID + 1}, Overdue: before},
		"by none, and none of others":              {Now: at},
		"by its id, and none of others: it is one": {Now: at, IDs: []int64{wait.ID + 1, wait.ID}},
		"due since then, by another id: it is one": {Now: at.Add(time.Minute), IDs: []int64{wait.ID + 1}, Overdue: at},
	} {
		due, err := f.DueHosts(t.Context(), query)
		f.must(err)
		wantDiff(t, "waits "+what, strings.HasSuffix(what, "it is one"), len(due) == 1)
	}
}

func testHostsTakeTurns(t *testing.T, f *fixture) {
	for i := range 30 {
		name := "crowd" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		if i == 29 {
			name = "alone"
		}
		wait := waitOf(name, "crowd.example.com")
		if name == "alone" {
			wait.Host, wait.ProbeAt = "alone.example.com", wait.ProbeAt.Add(time.Minute)
			wait.ID = dispatcher.HostWaitID(run.JobID("shop", name), wait.Host)
		}
		f.waits(f.claimOne(name), wait)
	}
	of := map[string]int{}
	for _, wait := range f.dueHosts(t0.Add(time.Hour / 2)) {
		of[wait.Host]++
	}
	wantDiff(t, "waits by host", map[string]int{"crowd.example.com": 20, "alone.example.com": 1}, of)
}
