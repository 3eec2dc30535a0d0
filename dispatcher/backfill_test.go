package dispatcher_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Over a night of daylight saving a backfill runs the fires of its triggers, by the options of each.
func TestBackfillOverDaylightSavingNights(t *testing.T) {
	t.Parallel()
	const gap, repeated = "2026-03-29", "2026-10-25" // in Berlin, both at 01:00 UTC
	for _, tt := range []struct {
		name, night, expression string
		gap                     schedule.Gap
		overlap                 schedule.Overlap
		want                    []string // UTC
	}{
		{"a time in the gap is skipped by default", gap, "0 30 2 * * ?", "", "", nil},
		{"a time in the gap is skipped", gap, "0 30 2 * * ?", schedule.GapSkip, "", nil},
		{"a time in the gap fires behind it", gap, "0 30 2 * * ?", schedule.GapNext, "", []string{"01:00"}},
		{"two times in the gap fire once behind it", gap, "0 20,40 2 * * ?", schedule.GapNext, "", []string{"01:00"}},
		{"a repeated time fires at its last pass by default", repeated, "0 30 2 * * ?", "", "", []string{"01:30"}},
		{"a repeated time fires at its last pass", repeated, "0 30 2 * * ?", "", schedule.OverlapLast, []string{"01:30"}},
		{"a repeated time fires at its first pass", repeated, "0 30 2 * * ?", "", schedule.OverlapFirst, []string{"00:30"}},
		{"a repeated time fires at both passes", repeated, "0 30 2 * * ?", "", schedule.OverlapBoth, []string{"00:30", "01:30"}},
		{"each hour fires around the gap", gap, "0 30 * * * ?", "", "", []string{"00:30", "01:30", "02:30"}},
		{"each hour fires in both passes", repeated, "0 30 * * * ?", "", "", []string{"00:30", "01:30", "02:30"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			day, err := time.Parse(time.DateOnly, tt.night)
			if err != nil {
				t.Fatal(err)
			}
			job := dispatcher.Job{App: "shop", Name: "night",
				JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{"berlin": {TriggerSpec: dispatcher.TriggerSpec{
					Schedule: dispatcher.Schedule{
						Expression: tt.expression, Dialect: schedule.DialectQuartz, Timezone: "Europe/Berlin", Gap: tt.gap, Overlap: tt.overlap}}}}}}
			spec := repeat.BackfillSpec{From: day, To: day.Add(3*time.Hour - time.Minute)}
			for _, order := range []repeat.BackfillOrder{repeat.BackfillOldestFirst, repeat.BackfillLatestFirst} {
				spec.Order = order
				plan, err := spec.Plan(t.Context(), job, nil)
				if err != nil {
					t.Fatal(err)
				}
				want := slices.Clone(tt.want)
				if order == repeat.BackfillLatestFirst {
					slices.Reverse(want)
				}
				if diff := cmp.Diff(want, clockTimes(walk(t, plan, 1))); diff != "" || plan.Total != len(want) {
					t.Errorf("%s: counted %d, instants (-want +got):\n%s", order, plan.Total, diff)
				}
			}
		})
	}
}

// walk returns the instants of a plan in its order, in pages.
func walk(t *testing.T, plan repeat.BackfillPlan, page int) (all []repeat.BackfillInstant) {
	t.Helper()
	for after := (*repeat.BackfillInstant)(nil); ; after = &all[len(all)-1] {
		next, err := plan.Next(t.Context(), plan.Schedules, after, page)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, next...)
		if len(next) < page {
			return all
		}
	}
}

func clockTimes(instants []repeat.BackfillInstant) (times []string) {
	for _, one := range instants {
		times = append(times, one.At.Format("15:04"))
	}
	return times
}

// The pages of a range have each of its instants once, also with several triggers at the same instants, in both orders.
func TestPagesOfABackfillHaveEachInstantOnce(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	start := from.Add(7 * time.Minute)
	job := dispatcher.Job{App: "shop", Name: "many", JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{
		"hourly": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 0 * * * ?",
			Dialect: schedule.DialectQuartz}}},
		"berlin": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 0 2 * * ?", Dialect: schedule.DialectQuartz,
			Timezone: "Europe/Berlin",
			Gap:      schedule.GapNext}}},
		"rate": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "rate(53m)", Dialect: schedule.DialectInterval,
			StartAt: &start}}},
		"allowed": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 0 * * * ?", Dialect: schedule.DialectQuartz,
			Calendar: "nights"}}},
		"again": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1h)",
			Dialect: schedule.DialectInterval}}}, // has no instants
	}}}
	calendars := []dispatcher.Calendar{
		{App: "shop", Name: "base", CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{From: "00:00", To: "06:00"}}}},
		{App: "shop", Name: "nights",
			CalendarSpec: dispatcher.CalendarSpec{Bases: []string{"base"}, Rules: []schedule.CalendarRule{{From: "20:00", To: "00:00"}}}},
		{App: "shop", Name: "unused"},
	}
	spec := repeat.BackfillSpec{From: from, To: from.Add(48 * time.Hour), Order: repeat.BackfillOldestFirst}
	plan, err := spec.Plan(t.Context(), job, calendars)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Schedules.Calendars) != 2 {
		t.Errorf("kept %d calendars, want the one that is named and its base", len(plan.Schedules.Calendars))
	}
	all := walk(t, plan, 1000)
	if want := 49 + 3 + 55 + 28; len(all) != want || plan.Total != want {
		t.Errorf("counted %d, got %d instants, want %d", plan.Total, len(all), want)
	}
	for _, page := range []int{1, 2, 7} {
		got := walk(t, plan, page)
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("in pages of %d (-want +got):\n%s", page, diff)
		}
	}
	plan.Order = repeat.BackfillLatestFirst
	slices.Reverse(all)
	for _, page := range []int{1, 2, 7, 1000} {
		if diff := cmp.Diff(all, walk(t, plan, page)); diff != "" {
			t.Errorf("latest first in pages of %d (-want +got):\n%s", page, diff)
		}
	}
}

// A backfill of a trigger without instants reports that.
func TestBackfillOfNoTrigger(t *testing.T) {
	t.Parallel()
	job := dispatcher.Job{App: "shop", Name: "again", JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{
		"again": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "delay(1h)",
			Dialect: schedule.DialectInterval}}}}}}
	for trigger, want := range map[string]string{
		"":       "job again has no trigger with a schedule, so a range holds no instants",
		"again":  `trigger "again" is a fixed delay: its fires depend on when runs end, so a range holds none; run the job by hand`,
		"again2": `job again has no trigger "again2"; did you mean again?`,
	} {
		_, err := repeat.BackfillSpec{Trigger: trigger}.Plan(t.Context(), job, nil)
		if problems, is := err.(input.Problems); !is || problems[0].Message != want { //nolint:errorlint // it is returned as it is
			t.Errorf("trigger %q: %s, want %q", trigger, fmt.Sprint(err), want)
		}
	}
}
