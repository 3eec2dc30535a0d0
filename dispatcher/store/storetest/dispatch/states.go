package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// rollUp rolls up all states, a few at a time, and returns how many changed.
func (f *fixture) rollUp() (changed int) {
	f.Helper()
	for more := true; more; {
		rolled, err := f.RollUp(f.Context(), 3)
		f.must(err)
		changed, more = changed+rolled.Changed, rolled.More
	}
	return changed
}

// A state follows triggers and runs, and is written only when it changes.
func testStates(t *testing.T, f *fixture) {
	ctx := t.Context()
	state := func(name string) dispatcher.JobState {
		t.Helper()
		j, err := f.Job(ctx, "shop", name)
		f.must(err)
		return j.State
	}
	end := minutes(2)
	tick := every(time.Minute, minutes(1))
	tick.EndAt = &end
	last := f.put(job("last", map[string]dispatcher.Trigger{"tick": tick}), t0)
	f.putEvery("broken", time.Minute)
	f.put(job("bare", nil), t0)
	for i := range 5 {
		f.putEvery(fmt.Sprintf("other-%d", i), time.Hour)
	}
	if n := f.rollUp(); n != 0 {
		t.Errorf("%d states changed right after the declarations, want none: they come with them", n)
	}
	// A change of the definition shows its state at once.
	paused, err := f.PauseJob(ctx, "shop", "last", "", true, at(t0))
	f.must(err)
	resumed, err := f.PauseJob(ctx, "shop", "last", "", false, at(t0))
	if f.must(err); paused.State != dispatcher.JobPaused || resumed.State != dispatcher.JobExecuting {
		t.Errorf("paused and resumed: %s, %s", paused.State, resumed.State)
	}
	f.must(f.Quarantine(ctx, run.TriggerID("shop", "broken", "tick"), 1, "why"))
	f.must(f.Quarantine(ctx, run.TriggerID("shop", "last", "tick"), last.Revision, "out of date"))
	if got := state("broken"); got != dispatcher.JobError || state("last") != dispatcher.JobExecuting {
		t.Errorf("in quarantine: %s, %s, want ERROR and the other as it was", got, state("last"))
	}

	var held []run.HeldRun
	for _, d := range f.dueAll(minutes(2)) {
		for d.ID == run.TriggerID("shop", "last", "tick") && !d.NextFireTime.IsZero() {
			a := f.advance(d)
			held = append(held, f.claim(a)...)
			d.PrevFireTime, d.NextFireTime = a.Next, a.Then
		}
	}
	run, err := f.RequestRun(ctx, "shop", "bare", nil, at(minutes(2)))
	f.must(err)
	if n := f.rollUp(); n != 1 || len(held) != 2 || state("last") != dispatcher.JobExecuting || state("bare") != dispatcher.JobExecuting {
		t.Errorf("with live runs: %d changed, last %s, bare %s, want only that of the job that is run by hand", n, state("last"), state("bare"))
	}
	for _, one := range held {
		f.end(one, minutes(3))
	}
	f.must(f.CancelRun(ctx, run.ID, at(minutes(3))))
	if n := f.rollUp(); n != 2 || state("last") != dispatcher.JobComplete || state("bare") != dispatcher.JobInit {
		t.Errorf("when they have ended: %d changed, last %s, bare %s", n, state("last"), state("bare"))
	}
	if n := f.rollUp(); n != 0 {
		t.Errorf("%d states changed though nothing had", n)
	}
	jobs, err := f.Jobs(ctx, "shop", input.Page{Limit: 4})
	f.must(err)
	got := map[string]dispatcher.JobState{}
	for _, j := range jobs {
		got[j.Name] = j.State
	}
	want := map[string]dispatcher.JobState{
		"bare": dispatcher.JobInit, "broken": dispatcher.JobError, "last": dispatcher.JobComplete, "other-0": dispatcher.JobExecuting,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("list (-want +got):\n" + diff)
	}
}
