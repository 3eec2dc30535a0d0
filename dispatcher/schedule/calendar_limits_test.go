package schedule_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func TestCalendarsAreBounded(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]schedule.CalendarSpec{
		"rules":             {Rules: slices.Repeat([]schedule.CalendarRule{{Weekdays: []string{"SUN"}}}, 101)},
		"rules/0/dates":     {Rules: []schedule.CalendarRule{{Dates: slices.Repeat([]string{"12-25"}, 1001)}}},
		"rules/0/icalendar": {Rules: []schedule.CalendarRule{{ICalendar: strings.Repeat("X", 1<<16+1)}}},
	} {
		var errs input.Problems
		_, err := schedule.NewCalendar(spec)
		if !errors.As(err, &errs) || len(errs) != 1 || strings.TrimPrefix(errs[0].Path, "/") != name || errs[0].Code != input.CodeCalendarRule {
			t.Errorf("too many %s: %v, want one problem of that field", name, errs)
		}
	}
}

func TestFixedDelayUnderACalendarMustMove(t *testing.T) {
	t.Parallel()
	spec := schedule.Spec{Expression: "delay(30s)", Calendar: mustCalendar(t, schedule.CalendarSpec{})}
	for on, wrong := range map[schedule.OnExcluded]bool{
		"": true, schedule.OnExcludedSkip: true, schedule.OnExcludedNextIncluded: false,
	} {
		spec.OnExcluded = on
		var errs input.Problems
		_, err := schedule.Parse(spec)
		if errors.As(err, &errs) != wrong || wrong && errs[0].Path != "/on_excluded" {
			t.Errorf("on_excluded %q: %v, want a problem: %v", on, err, wrong)
		}
	}
}
