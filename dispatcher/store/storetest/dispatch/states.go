package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// A state follows triggers and runs, and is written only when it changes.
func testStates(t *testing.T, f *wing) {
	ctx := t.Context()
	state := func(name string) dispatcher.JobState {
		t.Helper()
		j, err := f.Job(ctx, "shop", name)
		f.Must(err)
		return j.State
	}
	end := fixture.Minutes(2)
	tick := fixture.Every(time.Minute, fixture.Minutes(1))
	tick.EndAt = &end
	last := f.Put(fixture.Job("last", map[string]dispatcher.Trigger{"tick": tick}), fixture.T0)
	f.PutEvery("broken", time.Minute)
	f.Put(fixture.Job("bare", nil), fixture.T0)
	for i := range 5 {
		f.PutEvery(fmt.Sprintf("other-%d", i), time.Hour)
	}
	if n := f.RollUpAll(); n != 0 {
		t.Errorf("%d states changed right after the declarations, want none: they come with them", n)
	}
	// A change of the definition shows its state at once.
	paused, err := f.PauseJob(ctx, "shop", "last", "", true, fixture.At(fixture.T0))
	f.Must(err)
	resumed, err := f.PauseJob(ctx, "shop", "last", "", false, fixture.At(fixture.T0))
	if f.Must(err); paused.State != dispatcher.JobPaused || resumed.State != dispatcher.JobExecuting {
		t.Errorf("paused and resumed: %s, %s", paused.State, resumed.State)
	}
	f.Must(f.Quarantine(ctx, run.TriggerID("shop", "broken", "tick"), 1, "why"))
	f.Must(f.Quarantine(ctx, run.TriggerID("shop", "last", "tick"), last.Revision, "out of date"))
	if got := state("broken"); got != dispatcher.JobError || state("last") != dispatcher.JobExecuting {
		t.Errorf("in quarantine: %s, %s, want ERROR and the other as it was", got, state("last"))
	}

	var held []run.HeldRun
	for _, d := range f.DueAll(fixture.Minutes(2)) {
		for d.ID == run.TriggerID("shop", "last", "tick") && !d.NextFireTime.IsZero() {
			a := f.Advance(d)
			held = append(held, f.ClaimAll(a)...)
			d.PrevFireTime, d.NextFireTime = a.Next, a.Then
		}
	}
	run, err := f.RequestRun(ctx, "shop", "bare", nil, fixture.At(fixture.Minutes(2)))
	f.Must(err)
	if n := f.RollUpAll(); n != 1 || len(held) != 2 || state("last") != dispatcher.JobExecuting || state("bare") != dispatcher.JobExecuting {
		t.Errorf("with live runs: %d changed, last %s, bare %s, want only that of the job that is run by hand", n, state("last"), state("bare"))
	}
	for _, one := range held {
		f.End(one, fixture.Minutes(3))
	}
	f.Must(f.CancelRun(ctx, run.ID, fixture.At(fixture.Minutes(3))))
	if n := f.RollUpAll(); n != 2 || state("last") != dispatcher.JobComplete || state("bare") != dispatcher.JobInit {
		t.Errorf("when they have ended: %d changed, last %s, bare %s", n, state("last"), state("bare"))
	}
	if n := f.RollUpAll(); n != 0 {
		t.Errorf("%d states changed though nothing had", n)
	}
	jobs, err := f.Jobs(ctx, "shop", input.Page{Limit: 4})
	f.Must(err)
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
