package dispatch

import (
	"net/http"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// gone is the outcome of an attempt with a target that wants no more calls.
func gone(start time.Time) run.Outcome {
	return run.Outcome{
		State: run.Failed, StartedAt: start, EndedAt: start.Add(time.Second), HTTPStatus: http.StatusGone,
		Class: run.ClassHTTP4xx, Error: "gone",
	}
}

// disable calls Disable for a run that ended this way, and compares whether it disabled the trigger.
func (f *wing) disable(ended dispatcher.Record, want bool) {
	f.Helper()
	done, err := f.Disable(f.Context(), ended, "gone", fixture.T0.Add(90*time.Second))
	f.Must(err)
	if done != want {
		f.Errorf("run %s: disabled is %t, want %t", ended.Key, done, want)
	}
}

// A target that wants no more calls disables its trigger until it is resumed.
func testDisable(t *testing.T, f *wing) {
	ctx, now := t.Context(), fixture.T0.Add(90*time.Second)
	ended := fixture.Record(f.ClaimOne("tick"), gone(fixture.T0))
	f.Must(f.Record(ctx, []dispatcher.Record{ended}))
	ofAnother := ended
	ofAnother.JobID++
	f.disable(ofAnother, false)
	f.disable(ended, true)
	f.disable(ended, false)
	shown, err := f.Job(ctx, "shop", "tick")
	f.Must(err)
	if tick := shown.Triggers["tick"]; tick.State != dispatcher.TriggerError || tick.Error != "gone" || shown.State != dispatcher.JobError {
		t.Errorf("disabled: got %+v, want it in error with the reason", tick)
	}
	if due := f.DueAll(fixture.T0.Add(time.Hour)); len(due) != 0 {
		t.Errorf("due: got %d, want none", len(due))
	}
	for range 2 {
		resumed, err := f.PauseJob(ctx, "shop", "tick", "tick", false, fixture.At(now.Add(10*time.Minute)))
		f.Must(err)
		if tick := resumed.Triggers["tick"]; tick.State != dispatcher.TriggerWaiting || tick.Error != "" ||
			!tick.NextFireTime.Equal(fixture.T0.Add(2*time.Minute)) {
			t.Errorf("resumed: got %+v, want the first fire that is owed", tick)
		}
	}
	missed, err := f.Misfires(ctx, dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 10}})
	if err != nil || len(missed) != 0 {
		t.Errorf("misfires: got %+v, %v, want none yet: the misfire policy decides about the fires that are owed", missed, err)
	}
}

// The response concerns the job at the time of the call. It may have been changed since, because of such responses.
func testLateGoneOfAnOldRevision(t *testing.T, f *wing) {
	ctx := t.Context()
	ended := fixture.Record(f.ClaimOne("tick"), gone(fixture.T0))
	job, err := f.Job(ctx, "shop", "tick")
	f.Must(err)
	job.Target.Webhook.URL = "https://example.com/moved"
	if _, _, err = f.PutJob(ctx, job, fixture.At(fixture.T0.Add(time.Second))); err != nil {
		t.Fatal(err)
	}
	f.Must(f.Record(ctx, []dispatcher.Record{ended}))
	f.disable(ended, false)
	shown, err := f.Job(ctx, "shop", "tick")
	if tick := shown.Triggers["tick"]; err != nil || tick.State != dispatcher.TriggerWaiting {
		t.Errorf("after the repair: got %+v, %v, want it waiting", tick, err)
	}
}

// Only the node that holds a run may report its end.
func testGoneOfARunThatIsNoLongerHeld(t *testing.T, f *wing) {
	ctx := t.Context()
	held := f.ClaimOne("tick")
	ended := fixture.Record(held, gone(fixture.T0))
	f.disable(ended, false) // not recorded yet
	_, err := f.CancelRun(ctx, held.String(), fixture.At(fixture.T0.Add(time.Second)))
	f.Must(err)
	f.Must(f.Record(ctx, []dispatcher.Record{ended}))
	f.disable(ended, false)
	manual := ended
	manual.Key = run.Key{TriggerID: run.JobID("shop", "tick"), ScheduledAt: fixture.T0, Kind: run.KindManual}
	f.disable(manual, false)
	shown, err := f.Job(ctx, "shop", "tick")
	if tick := shown.Triggers["tick"]; err != nil || tick.State != dispatcher.TriggerWaiting {
		t.Errorf("after a late result: got %+v, %v, want it waiting", tick, err)
	}
}
