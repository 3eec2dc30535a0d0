package schedule_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// overshoot is how many steps a search may take past its bound: one look at an expression, which may
// look at every month up to the year 2199.
const overshoot = (2200 - 1970) * 12

// checkCost looks for some fires of a schedule and checks that each search is bounded, by counted steps,
// and gives the same result again.
func checkCost(t *testing.T, s *schedule.Schedule, from time.Time) {
	t.Helper()
	for range 5 {
		budget := schedule.NewBudget(t.Context(), 1<<40)
		next, ok, err := s.FindWithin(budget, from)
		if used := budget.Used(); used > schedule.StepsPerSearch+overshoot {
			t.Fatalf("a search took %d steps, want %d at most", used, schedule.StepsPerSearch)
		}
		var errs input.Problems
		if err != nil && (!errors.As(err, &errs) || errs[0].Code != input.CodeCalendarCost) {
			t.Fatalf("error %v, want %s", err, input.CodeCalendarCost)
		}
		again, okAgain, errAgain := s.Find(from)
		if !again.Equal(next) || okAgain != ok || (err == nil) != (errAgain == nil) {
			t.Fatalf("found %v, %v, %v, and then %v, %v, %v", next, ok, err, again, okAgain, errAgain)
		}
		if !ok {
			return
		}
		if !next.After(from) {
			t.Fatalf("the fire after %s is %s", from, next)
		}
		from = next
	}
	if previous, ok := s.Previous(from); ok && !previous.Before(from) {
		t.Fatalf("the fire before %s is %s", from, previous)
	}
}

func FuzzScheduleCost(f *testing.F) {
	for _, seed := range []struct {
		expression, zone string
		moved            bool
	}{
		{"0 0 29 2 *", "Europe/Berlin", false},
		{"0 0 0 ? 2 MON#5", "America/New_York", true},
		{"0 0 0 29 2 ? 2096-2104", "", false},
		{"30 2 8-14 3 0", "America/New_York", false},
		{"every 1 second from 0:00 to 0:00", "Africa/Casablanca", false},
		{"every 12 months", "Asia/Tehran", true},
		{"every 53 weeks", "Australia/Lord_Howe", true},
		{"rate(1s)", "UTC", false},
		{"* * * * * ?", "Antarctica/Troll", true},
		{"at(2026-03-29T02:30:00)", "Europe/Berlin", false},
		{"0 0 0 31W 2 ?", "", false},
		{"0 0 0 L-30 * ?", "Pacific/Apia", true},
		{"H H(0-7) * * *", "America/Sao_Paulo", false},
	} {
		f.Add(seed.expression, seed.zone, seed.moved, int64(1_780_000_000_000), uint16(0))
		f.Add(seed.expression, seed.zone, seed.moved, int64(4_000_000_000_000), uint16(4000))
	}
	weekend, err := schedule.NewCalendar(rules(schedule.CalendarRule{Weekdays: []string{"SAT", "SUN"}},
		schedule.CalendarRule{Expression: "0 * 1-22 * * ?"}))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expression, zone string, moved bool, at int64, repeats uint16) {
		from := time.UnixMilli(at % 7_000_000_000_000).UTC()
		for _, calendar := range []*schedule.Calendar{nil, weekend} {
			spec := schedule.Spec{
				Expression: expression, Timezone: zone, Identity: "a/b/c", Anchor: from, Calendar: calendar, RepeatCount: int(repeats),
			}
			if moved {
				spec.Gap, spec.OnExcluded = schedule.GapNext, schedule.OnExcludedNextIncluded
			}
			if s, err := schedule.Parse(spec); err == nil {
				checkCost(t, s, from)
			}
		}
	})
}

func FuzzCalendarCost(f *testing.F) {
	for _, seed := range []string{
		`[{"weekdays":["MON-FRI"]},{"only":true,"weekdays":["MON-FRI"]}]`,
		`[{"only":true,"dates":["02-29"]},{"weekdays":["SUN"]}]`,
		`[{"from":"22:00","to":"06:00"},{"only":true,"from":"23:00","to":"05:00"}]`,
		`[{"expression":"0/2 * * * * ?"},{"expression":"1/2 * * * * ?"}]`,
		`[{"expression":"0 * 0-2,4-23 * * ?"},{"expression":"0 0-16,18-59 3 * * ?"}]`,
		`[{"only":true,"expression":"0 0 0 29 2 ?"}]`,
		`[{"only":true,"expression":"0 0 0 ? 2 MON#5 2190-2199"},{"expression":"* * * ? 1-11 *"}]`,
		`[{"only":true,"dates":["9999-12-31"]},{"days_of_month":[1,31]}]`,
		`[{"only":true,"dates":["0001-01-01"]},{"days_of_month":[29]}]`,
		`[{"icalendar":"BEGIN:VEVENT\nDTSTART:20260101\nRRULE:FREQ=YEARLY;COUNT=1000000000\nEND:VEVENT"}]`,
		`[{"icalendar":"BEGIN:VEVENT\nDTSTART:00010101\nDTEND:99991231\nEND:VEVENT"}]`,
		`[{"only":true,"dates":["2026-01-01/2026-01-01","2199-12-31"]},{"from":"00:00:01","to":"00:00:00"}]`,
	} {
		f.Add(seed, "Europe/Berlin", "Australia/Lord_Howe", int64(1_780_000_000_000))
	}
	f.Fuzz(func(t *testing.T, text, zone, otherZone string, at int64) {
		var rules []schedule.CalendarRule
		if json.Unmarshal([]byte(text), &rules) != nil {
			return
		}
		base, err := schedule.NewCalendar(schedule.CalendarSpec{Timezone: zone, Rules: rules})
		if err != nil {
			return
		}
		calendar, err := schedule.NewCalendar(schedule.CalendarSpec{
			Timezone: otherZone, Rules: rules, Bases: []*schedule.Calendar{base, base},
		})
		if err != nil {
			return
		}
		from := time.UnixMilli(at % 7_000_000_000_000).UTC()
		for _, expression := range []string{"rate(1h)", "* * * * *", "0 0 12 ? * SAT", "every 1 day"} {
			for _, on := range []schedule.OnExcluded{schedule.OnExcludedSkip, schedule.OnExcludedNextIncluded, schedule.OnExcludedNextDay,
				schedule.OnExcludedPreviousDay} {
				s, err := schedule.Parse(schedule.Spec{Expression: expression, Calendar: calendar, OnExcluded: on, Anchor: from})
				if err != nil {
					t.Fatal(err)
				}
				checkCost(t, s, from)
				if next, ok := s.Next(from); ok && !calendar.Includes(next) {
					t.Fatalf("%s fires at %s, which the calendar excludes", expression, next)
				}
			}
		}
	})
}
