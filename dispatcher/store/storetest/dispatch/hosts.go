package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// hostTests test runs that wait for their host.
func hostTests() tests {
	return tests{
		"runs that wait for a host do not block others":         testWaitForHost,
		"one node takes the probe of a host":                    testTakeProbe,
		"a host that responded lets all runs go":                testHostResponded,
		"probes prefer runs that were never attempted":          testProbesPreferNew,
		"a run that only waited has a last attempt":             testLastAttemptOfWaiting,
		"a wait is removed with its last run, and not before":   testDropHostWait,
		"the pauses of a host that nodes know are combined":     testPausesOfHost,
		"switches hold the probes of a host":                    testSwitchedHost,
		"few waits of one host do not hide those of the others": testHostsTakeTurns,
	}
}

// waiting returns the host wait of a run.
func (f *wing) waiting(key run.Key) string {
	f.Helper()
	run := f.RunOf(key)
	return run.Waiting()
}

func testWaitForHost(t *testing.T, f *wing) {
	held, wait := f.ClaimOne("tick"), fixture.WaitOf("tick", "down.example.com")
	f.Waits(held, wait)
	r := f.RunOf(held.Key)
	if r.State != run.Retrying || r.WaitsFor != wait.Host || r.NextAttemptAt != nil || r.Attempt != 0 ||
		r.Error != "the host is down" || r.Class != run.ClassCircuitOpen {
		t.Errorf("run = %+v, want it to wait for %s, with the reason", r, wait.Host)
	}
	const waits = "waits for host down.example.com, whose circuit is open; the next probe is at "
	fixture.WantDiff(t, "explanation of the run", "run: its run "+waits+input.FormatInstant(wait.ProbeAt)+" (the host is down)",
		f.Explain("tick", held.ScheduledAt, fixture.T0.Add(time.Minute)))
	listed, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: "tick", Page: input.Page{Limit: 10}})
	f.Must(err)
	if len(listed) != 1 || listed[0].Waiting() != r.Waiting() {
		t.Errorf("listed %+v, want the run, and that it %s", listed, r.Waiting())
	}
	fixture.WantDiff(t, "retries that are due", 0, len(f.AdoptRetries(fixture.T0.Add(30*time.Minute))))
	next, err := f.NextRetry(t.Context(), time.Time{}, fixture.T0)
	f.Must(err)
	fixture.WantDiff(t, "the next retries, and whether a run waits", dispatcher.RetryTimes{Waits: true}, next)
	fixture.WantDiff(t, "waits before the probe is due", 0, len(f.HostsDue(wait.ProbeAt.Add(-time.Millisecond))))
	fixture.WantDiff(t, "waits when it is due", []dispatcher.HostWait{wait}, f.HostsDue(wait.ProbeAt))
	found := f.WaitingFor(wait, wait.ProbeAt)
	query := dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 1, Now: wait.ProbeAt, WaitsFor: wait.ID}
	adopted, err := f.Store.Adopt(t.Context(), query, found)
	f.Must(err)
	if len(adopted) != 1 || adopted[0].Key != held.Key || adopted[0].Attempt != 1 || adopted[0].Token != fixture.Token2 {
		t.Fatalf("adopted %+v, want the run, in its first attempt", adopted)
	}
	if r := f.RunOf(held.Key); r.State != run.Claimed || r.WaitsFor != "" {
		t.Errorf("the adopted run = %+v, want it claimed", r)
	}
	again, err := f.Store.Adopt(t.Context(), query, found)
	f.Must(err)
	fixture.WantDiff(t, "runs adopted twice", 0, len(again))
}

func testTakeProbe(t *testing.T, f *wing) {
	wait := fixture.WaitOf("tick", "down.example.com")
	f.Waits(f.ClaimOne("tick"), wait)
	next := wait.ProbeAt.Add(10 * time.Second)
	for n, want := range []bool{true, false} {
		won, err := f.TakeProbe(t.Context(), wait, 10*time.Second, next)
		f.Must(err)
		if won != want {
			t.Errorf("try %d to take the probe: %v, want %v", n+1, won, want)
		}
	}
	wait.Pause, wait.ProbeAt = 10*time.Second, next
	fixture.WantDiff(t, "waits before the next probe", 0, len(f.HostsDue(next.Add(-time.Millisecond))))
	fixture.WantDiff(t, "waits at the next probe", []dispatcher.HostWait{wait}, f.HostsDue(next))
}

func testHostResponded(t *testing.T, f *wing) {
	wait := fixture.WaitOf("tick", "down.example.com")
	held := f.ClaimOne("tick")
	f.Waits(held, wait)
	now := fixture.T0.Add(90 * time.Second)
	f.Must(f.HostResponded(t.Context(), wait.ID, now))
	wait.Pause, wait.ProbeAt = 0, now
	fixture.WantDiff(t, "waits that are due", []dispatcher.HostWait{wait}, f.HostsDue(now))
	fixture.WantDiff(t, "what the run waits for", "waits for host down.example.com, which responds again", f.waiting(held.Key))
	f.Must(f.HostResponded(t.Context(), 12345, now)) // no run waits
}

func testProbesPreferNew(t *testing.T, f *wing) {
	wait := fixture.WaitOf("tick", "down.example.com")
	attempted := f.ClaimOne("tick")
	f.Again(attempted, fixture.Failure(fixture.T0.Add(time.Minute)), fixture.FailedUntil(fixture.T0.Add(time.Minute)))
	again := f.AdoptRetries(fixture.T0.Add(time.Minute))
	if len(again) != 1 {
		t.Fatalf("adopted %d runs, want 1", len(again))
	}
	f.Waits(again[0], wait)
	key := f.Requested("tick")
	manual := f.AdoptIdle(fixture.NodeA, fixture.T0.Add(3*time.Minute))
	if len(manual) != 1 {
		t.Fatalf("adopted %d requested runs, want 1", len(manual))
	}
	f.Waits(manual[0], wait)
	var order []run.Key
	for _, run := range f.WaitingFor(wait, wait.ProbeAt) {
		order = append(order, run.Key)
	}
	fixture.WantDiff(t, "order of the probes", []run.Key{key, attempted.Key}, order)
}

func testLastAttemptOfWaiting(t *testing.T, f *wing) {
	wait := fixture.WaitOf("tick", "down.example.com")
	held := f.ClaimOne("tick")
	f.Waits(held, wait)
	over := fixture.T0.Add(time.Minute + time.Hour)
	given, err := f.GiveUp(t.Context(), over.Add(time.Second))
	f.Must(err)
	fixture.WantDiff(t, "runs given up that were never attempted", 0, given)
	f.HostsDue(over.Add(-time.Millisecond))
	fixture.WantDiff(t, "runs due before their time is over", 0, len(f.AdoptRetries(over.Add(-time.Millisecond))))
	f.HostsDue(over)
	adopted := f.AdoptRetries(over)
	if len(adopted) != 1 || adopted[0].Key != held.Key || !adopted[0].RetryUntil.Equal(over) || adopted[0].Attempt != 1 {
		t.Errorf("adopted %+v, want the run for its first attempt, which is the last", adopted)
	}
}

func testDropHostWait(t *testing.T, f *wing) {
	wait := fixture.WaitOf("tick", "down.example.com")
	held := f.ClaimOne("tick")
	f.Waits(held, wait)
	for _, want := range []bool{false, true, false} {
		dropped, err := f.DropHostWait(t.Context(), wait.ID)
		f.Must(err)
		if dropped != want {
			t.Errorf("dropped: %v, want %v", dropped, want)
		}
		if !want {
			_, err = f.CancelRun(t.Context(), held.String(), input.Change{Actor: "test"})
			if err != nil && f.RunOf(held.Key).EndedAt == nil {
				t.Fatal(err)
			}
		}
	}
	next, err := f.NextRetry(t.Context(), fixture.T0, fixture.T0)
	f.Must(err)
	fixture.WantDiff(t, "whether a run waits", false, next.Waits)
}

func testPausesOfHost(t *testing.T, f *wing) {
	wait := fixture.WaitOf("tick", "down.example.com")
	f.Waits(f.ClaimOne("tick"), wait)
	longer, shorter := wait, wait
	longer.Pause, longer.ProbeAt = time.Minute, wait.ProbeAt.Add(time.Minute)
	shorter.Pause, shorter.ProbeAt = time.Second, wait.ProbeAt.Add(-time.Minute)
	for _, one := range []dispatcher.HostWait{longer, shorter} {
		f.Requested("tick")
		f.Waits(f.AdoptIdle(fixture.NodeA, fixture.T0.Add(3*time.Minute))[0], one)
	}
	fixture.WantDiff(t, "the wait", []dispatcher.HostWait{longer}, f.HostsDue(longer.ProbeAt))
	fixture.WantDiff(t, "runs that wait", 3, len(f.WaitingFor(wait, longer.ProbeAt)))
}

func testSwitchedHost(t *testing.T, f *wing) {
	wait := fixture.WaitOf("tick", "down.example.com")
	f.Waits(f.ClaimOne("tick"), wait)
	for _, pause := range []bool{true, false} {
		_, err := f.PauseJob(t.Context(), "shop", "tick", "", pause, input.Change{Actor: "test", Now: fixture.T0.Add(time.Minute)})
		f.Must(err)
		want := 1
		if pause {
			want = 0
		}
		fixture.WantDiff(t, "waits that are due", want, len(f.HostsDue(wait.ProbeAt)))
		fixture.WantDiff(t, "runs that may go", want, len(f.WaitingFor(wait, wait.ProbeAt)))
	}
	at, before := wait.ProbeAt, wait.ProbeAt.Add(-time.Millisecond)
	for what, query := range map[string]dispatcher.HostQuery{
		"of an app that the node does not serve":   {Now: at, Overdue: at, Apps: []string{"other"}},
		"of that app, by its id":                   {Now: at, IDs: []int64{wait.ID}, Apps: []string{"other"}},
		"by its id before it is due":               {Now: before, IDs: []int64{wait.ID}},
		"by another id":                            {Now: at, IDs: []int64{wait.ID + 1}},
		"by another id, and waits due before":      {Now: at, IDs: []int64{wait.ID + 1}, Overdue: before},
		"without ids and without others":           {Now: at},
		"by its id among others: it is one":        {Now: at, IDs: []int64{wait.ID + 1, wait.ID}},
		"due since then, by another id: it is one": {Now: at.Add(time.Minute), IDs: []int64{wait.ID + 1}, Overdue: at},
	} {
		due, err := f.DueHosts(t.Context(), query)
		f.Must(err)
		fixture.WantDiff(t, "waits "+what, strings.HasSuffix(what, "it is one"), len(due) == 1)
	}
}

func testHostsTakeTurns(t *testing.T, f *wing) {
	for i := range 30 {
		name := "crowd" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		if i == 29 {
			name = "alone"
		}
		wait := fixture.WaitOf(name, "crowd.example.com")
		if name == "alone" {
			wait.Host, wait.ProbeAt = "alone.example.com", wait.ProbeAt.Add(time.Minute)
			wait.ID = dispatcher.HostWaitID(run.JobID("shop", name), wait.Host)
		}
		f.Waits(f.ClaimOne(name), wait)
	}
	of := map[string]int{}
	for _, wait := range f.HostsDue(fixture.T0.Add(time.Hour / 2)) {
		of[wait.Host]++
	}
	fixture.WantDiff(t, "waits by host", map[string]int{"crowd.example.com": 20, "alone.example.com": 1}, of)
}
