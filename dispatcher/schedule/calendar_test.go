package schedule_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func mustCalendar(t rapid.TB, spec schedule.CalendarSpec) *schedule.Calendar {
	t.Helper()
	c, err := schedule.NewCalendar(spec)
	if err != nil {
		t.Fatalf("NewCalendar(%+v): %v", spec, err)
	}
	return c
}

func TestCalendarRulesExcludeMatchingTimes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rule     schedule.CalendarRule
		excluded []string // local times in Berlin
		included []string
	}{
		"a date": {
			schedule.CalendarRule{Dates: []string{"2026-12-25"}},
			[]string{"2026-12-25T00:00:00", "2026-12-25T23:59:59"},
			[]string{"2026-12-24T23:59:59", "2026-12-26T00:00:00", "2027-12-25T12:00:00"},
		},
		"a date of every year": {
			schedule.CalendarRule{Dates: []string{"12-25", "02-29"}},
			[]string{"2026-12-25T12:00:00", "2031-12-25T12:00:00", "2028-02-29T12:00:00"},
			[]string{"2026-12-24T12:00:00", "2026-02-28T12:00:00"},
		},
		"a span over the new year, every year": {
			schedule.CalendarRule{Dates: []string{"12-24/01-02"}},
			[]string{"2026-12-24T00:00:00", "2027-01-02T23:59:59"}, []string{"2026-12-23T12:00:00", "2027-01-03T00:00:00"},
		},
		"a span once": {
			schedule.CalendarRule{Dates: []string{"2026-12-24/2027-01-02"}},
			[]string{"2026-12-24T00:00:00", "2027-01-02T23:59:59"}, []string{"2027-12-24T00:00:00", "2027-01-03T00:00:00"},
		},
		"weekdays": {
			schedule.CalendarRule{Weekdays: []string{"sat", "SUN"}},
			[]string{"2026-05-02T00:00:00", "2026-05-03T23:59:59"}, []string{"2026-05-01T23:59:59", "2026-05-04T00:00:00"},
		},
		"weekdays that wrap": {
			schedule.CalendarRule{Weekdays: []string{"FRI-MON"}},
			[]string{"2026-05-01T00:00:00", "2026-05-04T23:59:59"}, []string{"2026-04-30T23:59:59", "2026-05-05T00:00:00"},
		},
		"days of the month": {
			schedule.CalendarRule{DaysOfMonth: []int{1, 31}},
			[]string{"2026-05-01T12:00:00", "2026-05-31T12:00:00"}, []string{"2026-05-02T12:00:00", "2026-06-30T12:00:00"},
		},
		"times of day": {
			schedule.CalendarRule{From: "09:00", To: "17:30"},
			[]string{"2026-05-01T09:00:00", "2026-05-01T17:29:59"}, []string{"2026-05-01T08:59:59", "2026-05-01T17:30:00"},
		},
		"times of day over midnight": {
			schedule.CalendarRule{From: "22:00", To: "06:00"},
			[]string{"2026-05-01T22:00:00", "2026-05-01T05:59:59"}, []string{"2026-05-01T06:00:00", "2026-05-01T21:59:59"},
		},
		"a cron expression, second by second": {
			schedule.CalendarRule{Expression: "* * 12 1 * ?"},
			[]string{"2026-05-01T12:00:00", "2026-05-01T12:59:59"}, []string{"2026-05-01T13:00:00", "2026-05-02T12:00:00"},
		},
		"only": {
			schedule.CalendarRule{Only: true, Weekdays: []string{"MON-FRI"}},
			[]string{"2026-05-02T00:00:00"}, []string{"2026-05-01T23:59:59"},
		},
		"holidays of an iCalendar file": {
			schedule.CalendarRule{ICalendar: "BEGIN:VCALENDAR\r\n" +
				"BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261224\r\nDTEND;VALUE=DATE:20261227\r\nEND:VEVENT\r\n" +
				"BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20200501\r\nRRULE:FREQ=YEARLY\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"},
			[]string{"2026-12-24T00:00:00", "2026-12-26T23:59:59", "2031-05-01T12:00:00"},
			[]string{"2026-12-27T00:00:00", "2027-12-24T12:00:00", "2031-05-02T00:00:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			berlin, err := time.LoadLocation("Europe/Berlin")
			if err != nil {
				t.Fatal(err)
			}
			c := mustCalendar(t, schedule.CalendarSpec{Timezone: "Europe/Berlin", Rules: []schedule.CalendarRule{tt.rule}})
			for want, times := range map[bool][]string{false: tt.excluded, true: tt.included} {
				for _, text := range times {
					at, err := time.ParseInLocation("2006-01-02T15:04:05", text, berlin)
					if err != nil {
						t.Fatal(err)
					}
					if got := c.Includes(at); got != want {
						t.Errorf("Includes(%s) = %v, want %v", text, got, want)
					}
				}
			}
		})
	}
}

func TestExcludedFiresAreSkippedOrMoved(t *testing.T) {
	t.Parallel()
	weekend := schedule.CalendarSpec{
		Timezone: "Europe/Berlin", Rules: []schedule.CalendarRule{{Weekdays: []string{"SAT", "SUN"}}},
	}
	holiday := schedule.CalendarSpec{
		Timezone: "Europe/Berlin", Rules: []schedule.CalendarRule{{Dates: []string{"05-01"}}},
		Bases: []*schedule.Calendar{mustCalendar(t, weekend)},
	}
	for name, tt := range map[string]struct {
		spec schedule.Spec
		from string
		want []string
	}{
		"skipped, with the base calendar's days too": {
			schedule.Spec{Expression: "0 10 * * *"}, "2026-04-29T12:00:00Z",
			[]string{"2026-04-30T08:00:00Z", "2026-05-04T08:00:00Z"},
		},
		"moved to the next included instant, once for all of them": {
			schedule.Spec{Expression: "0 10 * * *", OnExcluded: schedule.OnExcludedNextIncluded}, "2026-04-29T12:00:00Z",
			[]string{"2026-04-30T08:00:00Z", "2026-05-03T22:00:00Z", "2026-05-04T08:00:00Z"},
		},
		"moved, asked from within an exclusion": {
			schedule.Spec{Expression: "0 10 1 * *", OnExcluded: schedule.OnExcludedNextIncluded}, "2026-05-02T12:00:00Z",
			[]string{"2026-05-03T22:00:00Z", "2026-06-01T08:00:00Z"},
		},
		"a repeat count counts actual fires": {
			schedule.Spec{Expression: "0 10 * * *", RepeatCount: 2, Anchor: instant(t, "2026-04-29T12:00:00Z")},
			"2026-04-29T12:00:00Z",
			[]string{"2026-04-30T08:00:00Z", "2026-05-04T08:00:00Z"},
		},
		"a one-shot on a holiday never fires": {
			schedule.Spec{Expression: "at(2026-05-01T10:00:00)"}, "2026-01-01T00:00:00Z", nil,
		},
		"unless it is moved": {
			schedule.Spec{Expression: "at(2026-05-01T10:00:00)", OnExcluded: schedule.OnExcludedNextIncluded},
			"2026-01-01T00:00:00Z",
			[]string{"2026-05-03T22:00:00Z"},
		},
		"an interval": {
			schedule.Spec{Expression: "rate(12h)", StartAt: instant(t, "2026-04-30T10:00:00Z")}, "2026-01-01T00:00:00Z",
			[]string{"2026-04-30T10:00:00Z", "2026-05-03T22:00:00Z", "2026-05-04T10:00:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.spec.Calendar, tt.spec.Timezone = mustCalendar(t, holiday), "Europe/Berlin"
			s := mustParse(t, tt.spec)
			limit := max(1, len(tt.want))
			if tt.spec.RepeatCount > 0 {
				limit++
			}
			if diff := cmp.Diff(tt.want, utc(timesBetween(s, instant(t, tt.from), farFuture, limit))); diff != "" {
				t.Errorf("instants (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSearchEndsIfTheCalendarExcludesEverything(t *testing.T) {
	t.Parallel()
	monday := []string{"MON"}
	never := mustCalendar(t, schedule.CalendarSpec{Rules: []schedule.CalendarRule{
		{Weekdays: monday}, {Only: true, Weekdays: monday},
	}})
	for _, on := range []schedule.OnExcluded{schedule.OnExcludedSkip, schedule.OnExcludedNextIncluded} {
		s := mustParse(t, schedule.Spec{Expression: "* * * * * ?", Calendar: never, OnExcluded: on})
		if next, ok := s.Next(instant(t, "2026-01-01T00:00:00Z")); ok {
			t.Errorf("%s: Next = %v, want none", on, next)
		}
	}
}

// The fires under a calendar are those found by checking each minute of some weeks.
func TestCalendarsAgreeWithCheckingEachMinute(t *testing.T) {
	t.Parallel()
	kinds := []schedule.CalendarRule{
		{Weekdays: []string{"SAT", "SUN"}}, {Dates: []string{"03-28/04-02", "2026-10-25"}}, {DaysOfMonth: []int{1, 15, 29}},
		{From: "22:00", To: "06:00"}, {Only: true, From: "01:30", To: "02:30"},
		{Only: true, Weekdays: []string{"SUN"}}, {Expression: "0 */2 * * *"},
	}
	rapid.Check(t, func(t *rapid.T) {
		spec := schedule.CalendarSpec{
			Timezone: rapid.SampledFrom([]string{"Europe/Berlin", "UTC", "Australia/Lord_Howe"}).Draw(t, "zone"),
		}
		spec.Rules = rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 2).Draw(t, "rules")
		calendar := mustCalendar(t, spec)
		plain := schedule.Spec{
			Expression: rapid.SampledFrom([]string{
				"0 */3 * * *", "30 2 * * *", "*/20 1-3 * * *", "15 12 * * 1",
			}).Draw(t, "expression"),
			Timezone: "Europe/Berlin",
		}
		a := rapid.SampledFrom([]time.Time{
			time.Date(2026, 3, 27, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 23, 0, 0, 0, 0, time.UTC),
		}).Draw(t, "around").Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "minutes")) * time.Minute)
		b := a.AddDate(0, 0, 9)
		// An excluded fire may have been due up to two weeks before a.
		var skipped, moved []string
		for _, fire := range timesBetween(mustParse(t, plain), a.AddDate(0, 0, -14), b, 1<<20) {
			if calendar.Includes(fire) && fire.After(a) {
				skipped = append(skipped, fire.Format(time.RFC3339))
			}
			for ; !fire.After(b) && !calendar.Includes(fire); fire = fire.Add(time.Minute) {
			}
			if fire.After(a) && !fire.After(b) {
				moved = append(moved, fire.Format(time.RFC3339))
			}
		}
		with := plain
		with.Calendar = calendar
		if diff := cmp.Diff(skipped, utc(timesBetween(mustParse(t, with), a, b, 1<<20))); diff != "" {
			t.Fatalf("skip, %+v (-want +got):\n%s", spec, diff)
		}
		if slices.ContainsFunc(spec.Rules, func(r schedule.CalendarRule) bool { return r.Expression != "" }) {
			return // the expression excludes seconds, but this test checks minutes
		}
		with.OnExcluded = schedule.OnExcludedNextIncluded
		if diff := cmp.Diff(slices.Compact(moved), utc(timesBetween(mustParse(t, with), a, b, 1<<20))); diff != "" {
			t.Fatalf("next_included, %+v (-want +got):\n%s", spec, diff)
		}
	})
}

func TestBadCalendarsAreRejectedWithEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := schedule.NewCalendar(schedule.CalendarSpec{
		Timezone: "Mars/Olympus",
		Rules: []schedule.CalendarRule{
			{Dates: []string{"2026-02-30", "12-24/2027-01-02", "2027-01-02/2026-12-24", "1999-12-31/2000-01-01", "2201-01-01"}},
			{Weekdays: []string{"MONDAY"}}, {DaysOfMonth: []int{0, 1, 32}}, {From: "25:00", To: "9"},
			{Expression: "0 0 30 2 *"}, {Expression: "rate(5m)"},
			{ICalendar: "BEGIN:VEVENT\nDTSTART:20260101T000000Z\nEND:VEVENT"},
			{ICalendar: "BEGIN:VEVENT\nDTSTART:19991231\nEND:VEVENT"}, {ICalendar: "BEGIN:VEVENT\nDTSTART:19700101\nRRULE:FREQ=YEARLY\nEND:VEVENT"},
			{}, {Dates: []string{"12-25"}, Weekdays: []string{"MON"}},
		},
	})
	var errs input.Problems
	if !errors.As(err, &errs) {
		t.Fatalf("NewCalendar: %v, want input.Problems", err)
	}
	var got []string
	for _, e := range errs {
		got = append(got, strings.TrimPrefix(e.Path, "/")+" "+e.Code)
	}
	want := []string{
		"timezone tz_unknown", "rules/0/dates/0 time_invalid", "rules/0/dates/1 time_invalid", "rules/0/dates/2 time_invalid",
		"rules/0/dates/3 time_range", "rules/0/dates/4 time_range",
		"rules/1/weekdays/0 cron_name", "rules/2/days_of_month/0 cron_range", "rules/2/days_of_month/2 cron_range",
		"rules/3/from time_invalid", "rules/3/to time_invalid", "rules/4/expression cron_never",
		"rules/5/expression calendar_rule",
		"rules/6/icalendar time_invalid", "rules/7/icalendar time_range", "rules/9 calendar_rule", "rules/10 calendar_rule",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
