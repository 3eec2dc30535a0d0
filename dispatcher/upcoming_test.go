package dispatcher_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// upcoming returns a trigger with its first fire after now.
func upcoming(t *testing.T, name string, s dispatcher.Schedule, now time.Time) view.UpcomingTrigger {
	t.Helper()
	anchor := now.Add(-time.Hour)
	parsed, err := s.Parse("app/job/"+name, anchor, nil)
	if err != nil {
		t.Fatal(err)
	}
	next, ok := parsed.Next(now)
	if !ok {
		t.Fatalf("%s has no fire after %s", s.Expression, now)
	}
	return view.UpcomingTrigger{App: "app", Identity: "app/job/" + name,
		Trigger: dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: s},
			TriggerStatus: dispatcher.TriggerStatus{AnchorAt: anchor, NextFireTime: &next}}}
}

// The counts of each step equal an enumeration, for dense and sparse schedules, also over a change of daylight
// saving.
func TestUpcomingCountsEachStep(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]dispatcher.Schedule{
		"each second":        {Expression: "rate(1s)"},
		"each 7 seconds":     {Expression: "rate(7s)"},
		"each minute":        {Expression: "* * * * *", Timezone: "UTC"},
		"each five minutes":  {Expression: "*/5 * * * *", Timezone: "Europe/Berlin"},
		"in office hours":    {Expression: "* 9-17 * * *", Timezone: "America/New_York"},
		"daily":              {Expression: "30 3 * * *", Timezone: "Europe/Berlin"},
		"hashed":             {Expression: "H/10 * * * *", Timezone: "UTC"},
		"spread by jitter":   {Expression: "*/10 * * * *", Timezone: "UTC", Jitter: input.Duration(4 * time.Minute)},
		"a few times only":   {Expression: "0 * * * *", Timezone: "UTC", RepeatCount: 3},
		"beyond the horizon": {Expression: "0 0 1 7 *", Timezone: "UTC"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Date(2026, 10, 24, 22, 3, 21, 0, time.UTC) // the clocks of Berlin go back at 01:00
			counter := view.NewUpcomingCounter(now)
			one := upcoming(t, name, s, now)
			counter.Add(one, nil)
			counter.Add(one, nil) // as another job with the same schedule
			got := counter.Fires(now)
			parsed, err := s.Parse(one.Identity, one.Trigger.AnchorAt, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := make([]int64, len(got.Counts))
			for _, at := range timesBetween(parsed, now, counter.Until().Add(-time.Millisecond), 1_000_000) {
				step := int(at.Add(parsed.Delay(at)).Sub(got.From) / view.UpcomingStep)
				want[min(step, len(want)-1)] += 2
			}
			if len(got.Counts) != 288 || got.Partial || !got.From.Equal(time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC)) {
				t.Fatalf("%d counts from %s, partial %v", len(got.Counts), got.From, got.Partial)
			}
			for i := range want {
				// An estimate by the pace may miss a fire at the edge of its step.
				if off := got.Counts[i] - want[i]; off < -2 || off > 2 || want[i] < 20 && off != 0 {
					t.Errorf("step %d has %d fires, want %d", i, got.Counts[i], want[i])
				}
			}
		})
	}
}

func TestUpcomingCountsKnownFiresOfDelaysAndOverdueOnes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 10, 2, 0, 0, time.UTC)
	counter := view.NewUpcomingCounter(now)
	next := now.Add(time.Hour)
	counter.Add(view.UpcomingTrigger{App: "app", Trigger: dispatcher.Trigger{
		TriggerSpec:   dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1m)"}},
		TriggerStatus: dispatcher.TriggerStatus{NextFireTime: &next}}}, nil)
	overdue := upcoming(t, "late", dispatcher.Schedule{Expression: "0 * * * *", Timezone: "UTC"}, now.Add(-3*time.Hour))
	counter.Add(overdue, nil)
	counter.Add(view.UpcomingTrigger{App: "app"}, nil) // nothing is due
	got := counter.Fires(now).Counts
	if got[0] != 3 || got[12] != 2 {
		t.Errorf("the first step has %d fires and the thirteenth %d, want 3 overdue ones, and a delay and a fire", got[0], got[12])
	}
}

// Work is bounded: triggers beyond the bound are left out, and the count says so.
func TestUpcomingIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	counter := view.NewUpcomingCounter(now)
	for n := range 60 {
		// A schedule by the second with different names shares nothing.
		one := upcoming(t, fmt.Sprint("t", n), dispatcher.Schedule{Expression: "0/1 * * * * ?", Timezone: "UTC", Jitter: 1}, now)
		counter.Add(one, nil)
	}
	if got := counter.Fires(now); got.Partial || got.Counts[100] < 60*298 {
		t.Errorf("60 triggers that fire each second: partial %v, %d fires in a step", got.Partial, got.Counts[100])
	}
}
