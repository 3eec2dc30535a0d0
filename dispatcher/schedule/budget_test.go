package schedule_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func rules(rules ...schedule.CalendarRule) schedule.CalendarSpec {
	return schedule.CalendarSpec{Timezone: "Europe/Berlin", Rules: rules}
}

// steps returns the steps that it takes to find the next fire.
func steps(t testing.TB, s *schedule.Schedule, at time.Time) int {
	t.Helper()
	b := schedule.NewBudget(t.Context(), schedule.StepsPerSearch)
	if _, _, err := s.FindWithin(b, at); err != nil {
		t.Fatal(err)
	}
	return b.Used()
}

// Schedules that people write stay far below the bound.
func TestRealSchedulesTakeFewSteps(t *testing.T) {
	t.Parallel()
	at := instant(t, "2026-06-15T12:34:56Z")
	weekend := schedule.CalendarRule{Weekdays: []string{"SAT", "SUN"}}
	for name, tt := range map[string]struct {
		expression string
		calendar   *schedule.CalendarSpec
		most       int
	}{
		"every 5 minutes":                  {"*/5 * * * *", nil, 10},
		"leap days":                        {"0 0 29 2 *", nil, 60},
		"a leap day on a Monday":           {"0 0 0 ? 2 MON#5", nil, 100},
		"hourly on leap days":              {"0 * * * *", new(rules(schedule.CalendarRule{Only: true, Dates: []string{"02-29"}})), 400},
		"every second, except on weekends": {"* * * * * ?", new(rules(weekend)), 30},
		"every second outside office time": {"* * * * * ?", new(rules(schedule.CalendarRule{Expression: "* * 9-17 ? * MON-FRI"})), 200},
		"every second of December":         {"* * * * * ?", new(rules(schedule.CalendarRule{Expression: "* * * ? 1-11 *"})), 300},
		"nightly in a window in 2045": {"0 3 * * *", new(rules(
			schedule.CalendarRule{Only: true, Dates: []string{"2045-03-01"}}, schedule.CalendarRule{From: "06:00", To: "22:00"})), 600},
	} {
		spec := schedule.Spec{Expression: tt.expression, Timezone: "America/New_York"}
		if tt.calendar != nil {
			spec.Calendar = mustCalendar(t, *tt.calendar)
		}
		used := steps(t, mustParse(t, spec), at)
		t.Logf("%s: %d steps", name, used)
		if used > tt.most {
			t.Errorf("%s takes %d steps, want %d at most", name, used, tt.most)
		}
	}
}

// A schedule with fires that the calendar excludes, day after day, ends with an error after a bounded number of
// steps. Schedules that end are distinguished from it.
func TestSearchThatTakesTooManyStepsIsAnError(t *testing.T) {
	t.Parallel()
	at := instant(t, "2026-06-15T12:34:56Z")
	evening := mustCalendar(t, rules(schedule.CalendarRule{From: "22:00", To: "06:00"}))
	for _, on := range []schedule.OnExcluded{schedule.OnExcludedSkip, schedule.OnExcludedNextIncluded} {
		for _, expression := range []string{"0 23 * * *", "every 1 day", "every 7 hours from 23:00"} {
			spec := schedule.Spec{
				Expression: expression, Timezone: "Europe/Berlin", StartAt: instant(t, "2026-06-01T21:00:00Z"),
				Calendar: evening, OnExcluded: on,
			}
			s := mustParse(t, spec)
			next, ok, err := s.Find(at)
			if on == schedule.OnExcludedNextIncluded {
				if !ok || err != nil {
					t.Errorf("%s, moved: %v, %v, %v, want a fire", expression, next, ok, err)
				}
				continue
			}
			var errs input.Problems
			if !errors.As(err, &errs) || ok || errs[0].Code != input.CodeCalendarCost || errs[0].Path != "/calendar" {
				t.Errorf("%s: %v, %v, %v, want %s", expression, next, ok, err, input.CodeCalendarCost)
			} else if !strings.Contains(err.Error(), "5000 steps") || !strings.Contains(err.Error(), "between 2026-06-15") {
				t.Errorf("%s: the error %q does not name the bound and the times", expression, err)
			}
			spec.EndAt = instant(t, "2026-09-01T00:00:00Z")
			if next, ok, err := mustParse(t, spec).Find(at); ok || err != nil {
				t.Errorf("%s until September: %v, %v, %v, want none and no error", expression, next, ok, err)
			}
		}
	}
}

func TestFiresMoveToTheNextTimeOfAnExpression(t *testing.T) {
	t.Parallel()
	nine := mustCalendar(t, rules(schedule.CalendarRule{Only: true, Expression: "0 0 9 ? * MON-FRI"}))
	s := mustParse(t, schedule.Spec{
		Expression: "0 * * * *", Timezone: "Europe/Berlin", Calendar: nine, OnExcluded: schedule.OnExcludedNextIncluded,
	})
	got := utc(timesBetween(s, instant(t, "2026-10-22T07:00:00Z"), instant(t, "2026-10-27T12:00:00Z"), 10))
	want := "2026-10-23T07:00:00Z 2026-10-26T08:00:00Z 2026-10-27T08:00:00Z"
	if strings.Join(got, " ") != want {
		t.Errorf("fires %v, want %s", got, want)
	}
}

// Counting a repeat count takes a walk, too.
func TestRepeatCountUnderACostlyCalendarIsAnError(t *testing.T) {
	t.Parallel()
	odd := mustCalendar(t, rules(schedule.CalendarRule{Expression: "0/2 * * * * ?"}))
	spec := schedule.Spec{Expression: "* * * * * ?", Calendar: odd, RepeatCount: 5000, Anchor: instant(t, "2026-01-01T00:00:00Z")}
	_, ok, err := mustParse(t, spec).Find(spec.Anchor)
	var errs input.Problems
	if ok || !errors.As(err, &errs) || errs[0].Code != input.CodeCalendarCost {
		t.Errorf("5,000 fires: %v, %v, want %s", ok, err, input.CodeCalendarCost)
	}
	spec.RepeatCount = 100
	if _, ok, err := mustParse(t, spec).Find(spec.Anchor); !ok || err != nil {
		t.Errorf("100 fires: %v, %v, want a fire", ok, err)
	}
}

func TestBudgetBoundsSeveralSearches(t *testing.T) {
	t.Parallel()
	from := instant(t, "2026-01-01T00:00:00Z")
	s := mustParse(t, schedule.Spec{Expression: "*/5 * * * *"})
	if got, err := s.BetweenWithin(schedule.NewBudget(t.Context(), 1000), from, from.AddDate(1, 0, 0), 10); err != nil || len(got) != 10 {
		t.Errorf("ten fires: %v, %v", got, err)
	}
	_, err := s.BetweenWithin(schedule.NewBudget(t.Context(), 1000), from, from.AddDate(1, 0, 0), 100_000)
	var errs input.Problems
	if !errors.As(err, &errs) || errs[0].Code != input.CodeCalendarCost || !strings.Contains(err.Error(), "1000 steps in all") {
		t.Errorf("a year within 1,000 steps: %v, want %s", err, input.CodeCalendarCost)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.BetweenWithin(schedule.NewBudget(cancelled, 1000), from, from.AddDate(1, 0, 0), 10); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v, want %v", err, context.Canceled)
	}
}

func BenchmarkStep(b *testing.B) {
	from := time.Date(2026, 6, 15, 12, 34, 56, 0, time.UTC)
	var many []schedule.CalendarRule
	for range 10 {
		many = append(many, schedule.CalendarRule{Expression: "30 0 0 1 1 ?"})
	}
	zones := []string{"America/New_York", "Europe/Berlin", "Asia/Tokyo", "Australia/Lord_Howe", "Africa/Casablanca"}
	var bases []*schedule.Calendar
	for _, zone := range zones {
		bases = append(bases, mustCalendar(b, schedule.CalendarSpec{Timezone: zone, Rules: many}))
	}
	var leaps []schedule.CalendarRule
	for range 50 {
		leaps = append(leaps, schedule.CalendarRule{Expression: "0 0 0 ? 2 MON#5"})
	}
	for name, spec := range map[string]schedule.Spec{
		"the costliest every second": {Expression: "* * * * * ?", Calendar: mustCalendar(b, rules(leaps...))},
		"every evening, no evening": {
			Expression: "0 23 * * *", Calendar: mustCalendar(b, rules(schedule.CalendarRule{From: "22:00", To: "06:00"})),
		},
		"sparse dates, weekday after weekday": {Expression: "0 0 12 ? * SAT", Calendar: mustCalendar(b, rules(
			schedule.CalendarRule{Weekdays: []string{"SAT"}}))},
		"seconds": {Expression: "0/2 * * * * ?", Calendar: mustCalendar(b, rules(schedule.CalendarRule{Expression: "0/2 * * * * ?"}))},
		"50 expressions in 5 zones": {Expression: "0 * * * * ?", Calendar: mustCalendar(b, schedule.CalendarSpec{
			Rules: []schedule.CalendarRule{{Only: true, From: "23:59:59"}}, Bases: bases})},
		"days in a zone": {Expression: "every 1 second from 0:00 to 0:00", Timezone: "Africa/Casablanca",
			Calendar: mustCalendar(b, schedule.CalendarSpec{Timezone: "Africa/Casablanca", Rules: []schedule.CalendarRule{{To: "00:01"}}})},
	} {
		s := mustParse(b, spec)
		b.Run(name, func(b *testing.B) {
			budget := schedule.NewBudget(b.Context(), 1<<50)
			for b.Loop() {
				_, _, _ = s.FindWithin(budget, from)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(budget.Used()), "ns/step")
		})
	}
}
