package engine

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/plan"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// trigger returns the trigger of a job as it is stored.
func (r *rig) trigger(job string) dispatcher.Trigger {
	r.t.Helper()
	stored, err := r.store.Job(r.t.Context(), "app", job)
	if err != nil {
		r.t.Fatal(err)
	}
	return stored.Triggers["only"]
}

func (r *rig) putCalendar(name string, rules ...schedule.CalendarRule) {
	r.t.Helper()
	calendar := dispatcher.Calendar{App: "app", Name: name, CalendarSpec: dispatcher.CalendarSpec{Rules: rules}}
	if _, _, err := r.store.PutCalendar(r.t.Context(), calendar, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Fatal(err)
	}
}

func TestJitteredFireIsClaimedWhenDueAndKeepsItsScheduledTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("spread", "rate(10s)", func(t *dispatcher.Trigger) {
		t.Jitter, t.RepeatCount = input.Duration(8*time.Second), 1
	})
	stored := r.trigger("spread")
	want, err := schedule.Parse(stored.Spec("app/spread/only", stored.AnchorAt))
	if err != nil {
		t.Fatal(err)
	}
	delay := want.Delay(*stored.NextFireTime)
	if !stored.DueAt.Equal(stored.NextFireTime.Add(delay)) {
		t.Fatalf("due at %v, want %s after %v", stored.DueAt, delay, stored.NextFireTime)
	}
	r.poll(20 * time.Second)
	if n := r.claimOnce(t.Context(), stored.DueAt.Add(-r.opts.Lead-time.Millisecond)); n != 0 {
		t.Error("the fire was claimed before it is due")
	}
	r.now = *stored.NextFireTime
	if n := r.claimOnce(t.Context(), *stored.DueAt); n != 1 {
		t.Error("the fire was not claimed when it was due")
	}
	if diff := cmp.Diff([]string{"0s schedule succeeded #1"}, offsets(r, r.settled())); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestJitterIsNotLateness(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("spread", "rate(10s)", func(t *dispatcher.Trigger) {
		t.Jitter, t.MisfireAfter = input.Duration(8*time.Second), input.Duration(time.Second)
	})
	due := *r.trigger("spread").DueAt
	for _, tt := range []struct {
		late time.Duration
		want int
	}{{time.Second, 0}, {time.Second + time.Millisecond, 1}} {
		if err := r.settle(t.Context(), due.Add(tt.late)); err != nil {
			t.Fatal(err)
		}
		if got := len(r.settled()); got != tt.want {
			t.Errorf("%s after it was due: %d catch-up runs, want %d", tt.late, got, tt.want)
		}
	}
}

func TestJitterDoesNotReorderFires(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	s, err := schedule.Parse(schedule.Spec{Expression: "rate(1s)", StartAt: start, Jitter: time.Hour, Identity: "a/b/c"})
	if err != nil {
		t.Fatal(err)
	}
	e := plan.Entry{
		DueTrigger:   dispatcher.DueTrigger{NextFireTime: start, DueAt: start.Add(s.Delay(start))},
		KnownTrigger: &plan.KnownTrigger{Schedule: s, Jitter: s.Spec().Jitter},
	}
	turned := 0
	for range 100 {
		then, _ := s.Next(e.NextFireTime)
		due := e.DueAfter(then, e.DueAt)
		if due.Before(e.DueAt) {
			t.Fatalf("fire at %v is due at %v, before the one it follows", then, due)
		}
		if own := then.Add(s.Delay(then)); own.Before(due) {
			turned++
		}
		e.NextFireTime, e.DueAt = then, due
	}
	if turned == 0 {
		t.Error("jitter would have reordered no fires, so the test shows nothing")
	}
}

func TestFiresDelayedByJitterAreNotMisfires(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	s, err := schedule.Parse(schedule.Spec{Expression: "rate(10s)", StartAt: start, Jitter: 30 * time.Second, Identity: "a/b/c"})
	if err != nil {
		t.Fatal(err)
	}
	e := plan.Entry{
		DueTrigger:   dispatcher.DueTrigger{NextFireTime: start, DueAt: start.Add(s.Delay(start))},
		KnownTrigger: &plan.KnownTrigger{Schedule: s, Jitter: s.Spec().Jitter},
	}
	got, err := e.Decide(start.Add(65 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if want := start.Add(30 * time.Second); got.Count != 4 || !got.To.Equal(want) || !got.Then.Equal(want.Add(10*time.Second)) {
		t.Errorf("settlement = %d to %v, then %v; want the 4 instants older than the jitter", got.Count, got.To, got.Then)
	}
}

func TestFixedDelayCountsFromTheEndOfItsRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	// The runs ended a while ago, so that the test need not wait for the next.
	r.invoke = func(context.Context, target.Call) run.Outcome {
		ended := time.Now().Add(-10 * time.Second)
		return run.Outcome{State: run.Failed, Class: run.ClassHTTP4xx, StartedAt: ended, EndedAt: ended}
	}
	r.declare("delayed", "delay(1s)", func(t *dispatcher.Trigger) { t.RepeatCount = 2 })
	for n := 1; n <= 2; n++ {
		first := r.trigger("delayed")
		r.poll(time.Minute)
		if tried := r.claimOnce(t.Context(), *first.NextFireTime); tried != 1 {
			t.Fatalf("fire %d was not claimed", n)
		}
		runs := r.settled()
		if err := r.plan.ScheduleNext(t.Context(), r.delays.ended.take(), r.now); err != nil {
			t.Fatal(err)
		}
		ended, got := *runs[len(runs)-1].EndedAt, r.trigger("delayed")
		if n == 1 && (got.NextFireTime == nil || !got.NextFireTime.Equal(ended.Add(time.Second)) || got.State != dispatcher.TriggerWaiting) {
			t.Errorf("after a run that ended at %v the next fire is at %v in state %s, want a second later", ended, got.NextFireTime, got.State)
		}
		if n == 2 && (got.NextFireTime != nil || got.State != dispatcher.TriggerComplete) {
			t.Errorf("after its two runs the trigger is %s with next fire %v, want it complete", got.State, got.NextFireTime)
		}
	}
}

func TestFixedDelayContinuesAfterACancelledRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("delayed", "delay(1s)", nil)
	due := r.due(time.Minute)
	claim := dispatcher.ClaimBatch{Node: r.fleet.ID(), Token: 7, Advances: []dispatcher.Advance{due.Advance()}}
	held, err := r.store.Claim(t.Context(), claim)
	if err != nil || len(held) != 1 {
		t.Fatalf("claim = %v, %v, want one run", held, err)
	}
	if got := r.trigger("delayed"); got.NextFireTime != nil || got.State != dispatcher.TriggerWaiting {
		t.Errorf("while it runs the trigger is %s with next fire %v, want it waiting without", got.State, got.NextFireTime)
	}
	if _, err := r.store.CancelRun(t.Context(), held[0].Key.String(), input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := r.plan.ScheduleNext(t.Context(), nil, r.now); err != nil {
		t.Fatal(err)
	}
	if got := r.trigger("delayed"); got.NextFireTime == nil {
		t.Errorf("after the cancel the trigger is %s without a next fire, want one", got.State)
	}
}

func TestChangedCalendarAppliesAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.putCalendar("freeze")
	r.declare("careful", "rate(2s)", func(t *dispatcher.Trigger) { t.Calendar = "freeze" })
	r.poll(5 * time.Second)
	allDay := schedule.CalendarRule{From: "00:00", To: "00:00"}
	r.putCalendar("freeze", allDay)
	r.claimOnce(t.Context(), r.now.Add(3*time.Second))
	if got := offsets(r, r.settled()); got != nil {
		t.Errorf("runs = %v, want none: the calendar excludes all", got)
	}
	r.putCalendar("freeze")
	r.now = r.now.Add(time.Second)
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	if diff := cmp.Diff([]string{"1s schedule succeeded #1"}, offsets(r, r.settled())); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestHashedFieldFiresAsPreviewed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("hashed", "H/7 * * * * ?", nil)
	asked := view.PreviewRequest{
		Schedule: dispatcher.Schedule{Expression: "H/7 * * * * ?"}, Identity: "app/hashed/only", From: &r.now, Count: 2,
	}
	preview, err := asked.Preview(t.Context(), nil, r.now)
	if err != nil {
		t.Fatal(err)
	}
	r.poll(20 * time.Second)
	for _, at := range preview.FireTimes {
		if n := r.claimOnce(t.Context(), at); n != 1 {
			t.Errorf("%d fires claimed at %v, want one", n, at)
		}
		r.poll(20 * time.Second)
	}
	var got []time.Time
	for _, run := range r.settled() {
		got = append(got, run.ScheduledAt)
	}
	if diff := cmp.Diff(preview.FireTimes, got); diff != "" {
		t.Errorf("fires (-preview +runs):\n%s", diff)
	}
}
