package schedule_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// germanHolidays are the nationwide holidays of Germany in 2026 and 2027, with weekends.
func germanHolidays(t testing.TB) *schedule.Calendar {
	return mustCalendar(t, schedule.CalendarSpec{Timezone: "Europe/Berlin", Rules: []schedule.CalendarRule{
		{Weekdays: []string{"SAT", "SUN"}},
		{Dates: []string{
			"01-01", "05-01", "10-03", "12-25", "12-26",
			"2026-04-03", "2026-04-06", "2026-05-14", "2026-05-25", // Good Friday, Easter Monday, Ascension, Whit Monday
			"2027-03-26", "2027-03-29", "2027-05-06", "2027-05-17",
		}},
	}})
}

// The lists are written by hand from a wall calendar. Each is 08:00 in Berlin: 07:00 UTC in winter and 06:00 in summer.
func TestBusinessDaysOfAYearMatchTheListWrittenByHand(t *testing.T) {
	t.Parallel()
	for on, want := range map[schedule.OnExcluded][]string{
		schedule.OnExcludedNextDay: {
			"2026-01-02T07:00:00Z", // Thu 1 Jan is New Year: Fri
			"2026-02-02T07:00:00Z", // Sun: Mon
			"2026-03-02T07:00:00Z", // Sun: Mon
			"2026-04-01T06:00:00Z", // Wed
			"2026-05-04T06:00:00Z", // Fri 1 May is Labour Day, then the weekend: Mon
			"2026-06-01T06:00:00Z", // Mon
			"2026-07-01T06:00:00Z", // Wed
			"2026-08-03T06:00:00Z", // Sat: Mon
			"2026-09-01T06:00:00Z", // Tue
			"2026-10-01T06:00:00Z", // Thu
			"2026-11-02T07:00:00Z", // Sun: Mon
			"2026-12-01T07:00:00Z", // Tue
			"2027-01-04T07:00:00Z", // Fri 1 Jan is New Year, then the weekend: Mon
			"2027-02-01T07:00:00Z", // Mon
			"2027-03-01T07:00:00Z", // Mon
			"2027-04-01T06:00:00Z", // Thu
			"2027-05-03T06:00:00Z", // Sat, which is Labour Day: Mon
			"2027-06-01T06:00:00Z", // Tue
			"2027-07-01T06:00:00Z", // Thu
			"2027-08-02T06:00:00Z", // Sun: Mon
			"2027-09-01T06:00:00Z", // Wed
			"2027-10-01T06:00:00Z", // Fri
			"2027-11-01T07:00:00Z", // Mon
			"2027-12-01T07:00:00Z", // Wed
		},
		schedule.OnExcludedPreviousDay: {
			"2026-01-30T07:00:00Z",                         // for Sun 1 Feb: Fri. 1 Jan itself moves to 31 Dec 2025
			"2026-02-27T07:00:00Z",                         // for Sun 1 Mar: Fri
			"2026-04-01T06:00:00Z", "2026-04-30T06:00:00Z", // Wed; for Fri 1 May: Thu
			"2026-06-01T06:00:00Z", "2026-07-01T06:00:00Z",
			"2026-07-31T06:00:00Z", // for Sat 1 Aug: Fri
			"2026-09-01T06:00:00Z", "2026-10-01T06:00:00Z",
			"2026-10-30T07:00:00Z",                         // for Sun 1 Nov: Fri, in winter already
			"2026-12-01T07:00:00Z", "2026-12-31T07:00:00Z", // for Fri 1 Jan: Thu
			"2027-02-01T07:00:00Z", "2027-03-01T07:00:00Z", "2027-04-01T06:00:00Z",
			"2027-04-30T06:00:00Z", // for Sat 1 May: Fri
			"2027-06-01T06:00:00Z", "2027-07-01T06:00:00Z",
			"2027-07-30T06:00:00Z", // for Sun 1 Aug: Fri
			"2027-09-01T06:00:00Z", "2027-10-01T06:00:00Z", "2027-11-01T07:00:00Z", "2027-12-01T07:00:00Z",
			"2027-12-31T07:00:00Z", // for Sat 1 Jan 2028: Fri
		},
	} {
		s := mustParse(t, schedule.Spec{Expression: "0 8 1 * *", Timezone: "Europe/Berlin", Calendar: germanHolidays(t), OnExcluded: on})
		got := utc(timesBetween(s, instant(t, "2026-01-01T00:00:00Z"), instant(t, "2027-12-31T23:00:00Z"), 100))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", on, diff)
		}
	}
}

func TestFiresMoveByDaysAndKeepTheirTimeOfDay(t *testing.T) {
	t.Parallel()
	const next, previous = schedule.OnExcludedNextDay, schedule.OnExcludedPreviousDay
	weekend := schedule.CalendarRule{Weekdays: []string{"SAT", "SUN"}}
	for name, tt := range map[string]struct {
		rules []schedule.CalendarRule
		spec  schedule.Spec
		from  string
		want  []string
	}{
		"asked for while a fire waits": {
			[]schedule.CalendarRule{weekend}, schedule.Spec{Expression: "0 8 * * SAT", OnExcluded: next}, "2026-05-03T12:00:00Z",
			[]string{"2026-05-04T06:00:00Z", "2026-05-11T06:00:00Z"},
		},
		"together with a fire of that day": {
			[]schedule.CalendarRule{weekend}, schedule.Spec{Expression: "0 8 * * *", OnExcluded: next}, "2026-04-30T12:00:00Z",
			[]string{"2026-05-01T06:00:00Z", "2026-05-04T06:00:00Z", "2026-05-05T06:00:00Z"},
		},
		"to a day before the end of another fire's wait": { // Tuesday is closed in the morning
			[]schedule.CalendarRule{{Dates: []string{"2026-05-04"}}, {Expression: "* 0-11 5 5 *"}},
			schedule.Spec{Expression: "0 9,15 4 5 *", OnExcluded: next}, "2026-05-01T00:00:00Z",
			[]string{"2026-05-05T13:00:00Z", "2026-05-06T07:00:00Z"},
		},
		"over a night that skips the time": {
			[]schedule.CalendarRule{{Dates: []string{"2026-03-28"}}}, schedule.Spec{Expression: "30 2 28 3 *", OnExcluded: next},
			"2026-03-01T00:00:00Z", []string{"2026-03-30T00:30:00Z"},
		},
		"to the end of the gap": {
			[]schedule.CalendarRule{{Dates: []string{"2026-03-28"}}},
			schedule.Spec{Expression: "30 2 28 3 *", OnExcluded: next, Gap: schedule.GapNext},
			"2026-03-01T00:00:00Z", []string{"2026-03-29T01:00:00Z"},
		},
		"back over a night that skips the time": {
			[]schedule.CalendarRule{{Dates: []string{"2026-03-30"}}}, schedule.Spec{Expression: "30 2 30 3 *", OnExcluded: previous},
			"2026-03-01T00:00:00Z", []string{"2026-03-28T01:30:00Z"},
		},
		"to the last pass of an hour that comes twice": {
			[]schedule.CalendarRule{{Dates: []string{"2026-10-24"}}}, schedule.Spec{Expression: "30 2 24 10 *", OnExcluded: next},
			"2026-10-01T00:00:00Z", []string{"2026-10-25T01:30:00Z"},
		},
		"to the first pass, if the rule says so": {
			[]schedule.CalendarRule{{Dates: []string{"2026-10-24"}}},
			schedule.Spec{Expression: "30 2 24 10 *", OnExcluded: next, Overlap: schedule.OverlapFirst},
			"2026-10-01T00:00:00Z", []string{"2026-10-25T00:30:00Z"},
		},
		"once for both passes": {
			[]schedule.CalendarRule{{Dates: []string{"2026-10-25"}}},
			schedule.Spec{Expression: "30 2 25 10 *", OnExcluded: next, Overlap: schedule.OverlapBoth},
			"2026-10-01T00:00:00Z", []string{"2026-10-26T01:30:00Z"},
		},
		"with the milliseconds of an interval": {
			[]schedule.CalendarRule{weekend},
			schedule.Spec{Expression: "rate(84h)", StartAt: instant(t, "2026-04-29T18:00:00.123Z"), OnExcluded: previous},
			"2026-04-29T00:00:00Z", []string{"2026-04-29T18:00:00.123Z", "2026-05-01T06:00:00.123Z", "2026-05-06T18:00:00.123Z"},
		},
		"not into the time before start_at": {
			[]schedule.CalendarRule{weekend},
			schedule.Spec{Expression: "0 8 * * *", StartAt: instant(t, "2026-05-02T00:00:00Z"), OnExcluded: previous},
			"2026-04-29T00:00:00Z", []string{"2026-05-04T06:00:00Z"},
		},
		"not from before start_at": {
			[]schedule.CalendarRule{weekend},
			schedule.Spec{Expression: "0 8 * * SAT", StartAt: instant(t, "2026-05-02T12:00:00Z"), OnExcluded: next},
			"2026-04-29T00:00:00Z", []string{"2026-05-11T06:00:00Z"},
		},
		"not from after end_at": {
			[]schedule.CalendarRule{weekend},
			schedule.Spec{Expression: "0 8 * * SAT", EndAt: instant(t, "2026-05-01T23:00:00Z"), OnExcluded: previous},
			"2026-04-30T00:00:00Z", nil,
		},
		"by a hundred days at most": {
			[]schedule.CalendarRule{{Dates: []string{"2026-01-01/2026-04-10"}}},
			schedule.Spec{Expression: "0 8 1,2 1 *", OnExcluded: next}, "2025-12-31T00:00:00Z",
			[]string{"2026-04-11T06:00:00Z", "2027-01-01T07:00:00Z"},
		},
		"a single time": {
			[]schedule.CalendarRule{weekend}, schedule.Spec{Expression: "at(2026-05-02T10:00:00)", OnExcluded: next},
			"2026-01-01T00:00:00Z", []string{"2026-05-04T08:00:00Z"},
		},
		"counted by repeat_count once for each time": {
			[]schedule.CalendarRule{weekend},
			schedule.Spec{Expression: "0 8 * * *", OnExcluded: next, RepeatCount: 2, Anchor: instant(t, "2026-05-01T00:00:00Z")},
			"2026-05-01T00:00:00Z", []string{"2026-05-01T06:00:00Z", "2026-05-04T06:00:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.spec.Timezone = "Europe/Berlin"
			tt.spec.Calendar = mustCalendar(t, schedule.CalendarSpec{Timezone: "Europe/Berlin", Rules: tt.rules})
			limit := max(1, len(tt.want))
			if tt.spec.RepeatCount > 0 {
				limit++
			}
			var got []string
			for _, at := range timesBetween(mustParse(t, tt.spec), instant(t, tt.from), farFuture, limit) {
				got = append(got, at.Format(time.RFC3339Nano))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("instants (-want +got):\n%s", diff)
			}
		})
	}
}

// movedByDays moves a fire as the documentation says, a day at a time.
func movedByDays(fire time.Time, calendar *schedule.Calendar, loc *time.Location, days int, gap schedule.Gap) (time.Time, bool) {
	if calendar.Includes(fire) {
		return fire, true
	}
	local := fire.In(loc)
	for n := 1; n <= 100; n++ {
		at := time.Date(local.Year(), local.Month(), local.Day()+n*days, local.Hour(), local.Minute(), local.Second(), 0, loc)
		if hour, minute, _ := at.Clock(); hour != local.Hour() || minute != local.Minute() { // no such local time
			if gap != schedule.GapNext {
				continue
			}
			for at = at.Add(-3 * time.Hour); at.Add(time.Minute).Hour() == at.Hour() ||
				at.Add(time.Minute).Sub(at) == time.Minute && offsetOf(at) == offsetOf(at.Add(time.Minute)); {
				at = at.Add(time.Minute)
			}
			at = at.Add(time.Minute)
		}
		for _, later := range []time.Duration{30 * time.Minute, time.Hour} { // the last pass
			if again := at.Add(later); again.Format("02 15:04:05") == at.Format("02 15:04:05") {
				at = again
			}
		}
		if calendar.Includes(at) {
			return at, true
		}
	}
	return fire, false
}

func offsetOf(at time.Time) int {
	_, offset := at.Zone()
	return offset
}

// Moving by days agrees with moving each fire on its own, and gives fires in order from any start.
func TestMovingByDaysAgreesWithMovingEachFire(t *testing.T) {
	t.Parallel()
	kinds := []schedule.CalendarRule{
		{Weekdays: []string{"SAT", "SUN"}}, {Dates: []string{"03-28/04-02", "2026-10-25"}}, {DaysOfMonth: []int{1, 15, 29}},
		{From: "22:00", To: "06:00"}, {Only: true, From: "01:30", To: "12:30"}, {Only: true, Weekdays: []string{"SUN", "WED"}},
		{Expression: "* 3-11 * * MON"}, {Expression: "30 2 28-29 3 *"}, {Dates: []string{"2026-03-20/2026-04-20"}},
	}
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"Europe/Berlin", "UTC", "Australia/Lord_Howe"}).Draw(t, "zone")
		loc, known := schedule.Location(zone) // the program's rules, because hosts have others
		if !known {
			t.Fatalf("no zone %s", zone)
		}
		ruleZone := rapid.SampledFrom([]string{zone, "Europe/Berlin"}).Draw(t, "zone of the calendar")
		rules := rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 3).Draw(t, "rules")
		calendar := mustCalendar(t, schedule.CalendarSpec{
			Timezone: ruleZone, Rules: rules,
		})
		plain := schedule.Spec{Timezone: zone, Expression: rapid.SampledFrom([]string{
			"0 */5 * * *", "30 2 * * *", "15 12 * * 1", "0 8 1 * *", "10,50 1-3 * * *", "0 9-17/2 * * 1-5", "0 8 * * SAT",
		}).Draw(t, "expression")}
		if rapid.Bool().Draw(t, "gap") {
			plain.Gap = schedule.GapNext
		}
		days, on := 1, schedule.OnExcludedNextDay
		if rapid.Bool().Draw(t, "previous") {
			days, on = -1, schedule.OnExcludedPreviousDay
		}
		a := rapid.SampledFrom([]time.Time{
			time.Date(2026, 3, 25, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 22, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 3, 31, 0, 0, 0, 0, time.UTC),
		}).Draw(t, "around").Add(time.Duration(rapid.IntRange(0, 6000).Draw(t, "minutes")) * time.Minute)
		b := a.AddDate(0, 0, 9)
		in := func(at time.Time) bool { return true }
		if rapid.Bool().Draw(t, "bounds") {
			plain.StartAt, plain.EndAt = a.AddDate(0, 0, -3), b.AddDate(0, 0, -3)
			in = func(at time.Time) bool { return !at.Before(plain.StartAt) && !at.After(plain.EndAt) }
		}
		with := plain
		with.Calendar, with.OnExcluded = calendar, on
		s := mustParse(t, with)
		var want []string
		for _, fire := range timesBetween(mustParse(t, plain), a.AddDate(0, 0, -105), b.AddDate(0, 0, 105), 1<<20) {
			to, ok := movedByDays(fire, calendar, loc, days, plain.Gap)
			ok = ok && in(to)
			if ok && to.After(a) && !to.After(b) {
				want = append(want, to.UTC().Format(time.RFC3339))
			}
			if got, moved := s.MovedTo(fire); fire.After(a) && !fire.After(b) && (moved != (ok && !to.Equal(fire)) || moved && !got.Equal(to)) {
				if _, _, err := s.Find(to.Add(-time.Millisecond)); err == nil {
					t.Fatalf("%+v: %s moves to %s (%t), want %s (%t)", with, fire, got, moved, to, ok)
				}
			}
		}
		slices.Sort(want)
		want = slices.Compact(want)
		var got []string
		for at := a; ; {
			next, ok, err := s.Find(at)
			if err != nil {
				if zone == ruleZone && len(got) < len(want) {
					t.Fatalf("%+v: after %s: %v", with, at, err)
				}
				return // the calendar excludes all times of the schedule, but perhaps one hour of a year in which the zones differ
			}
			if !ok || next.After(b) {
				break
			}
			if !next.After(at) || !calendar.Includes(next) {
				t.Fatalf("%+v: the fire after %s is %s", with, at, next)
			}
			got = append(got, next.Format(time.RFC3339))
			switch origin, moved := s.MovedFrom(next); {
			case moved == mustParse(t, plain).Matches(next):
				t.Fatalf("%+v: the fire at %s is moved: %t", with, next, moved)
			case moved:
				if to, _ := s.MovedTo(origin); !to.Equal(next) {
					t.Fatalf("%+v: %s comes from %s, which moves to %s", with, next, origin, to)
				}
			}
			at = next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s, %+v (-want +got):\n%s", on, plain, diff)
		}
	})
}

// Most calendars exclude parts of days. Schedules of all densities then find their fires within the bound of a search.
func TestFiresMoveByDaysNextToPartsOfDays(t *testing.T) {
	t.Parallel()
	weekend := schedule.CalendarRule{Weekdays: []string{"SAT", "SUN"}}
	for name, rules := range map[string][]schedule.CalendarRule{
		"lunch":                   {{From: "12:00", To: "13:00"}, weekend},
		"nights":                  {{From: "22:00", To: "06:00"}, weekend},
		"a morning by expression": {{Expression: "* 3-11 * * MON"}, {Dates: []string{"12-25/12-26"}}},
	} {
		calendar := mustCalendar(t, schedule.CalendarSpec{Timezone: "Europe/Berlin", Rules: rules})
		for _, expression := range []string{"* * * * *", "*/15 9-17 * * 1-5", "0 * * * *", "0 8 * * *", "0 8 * * SUN", "0 8 1 1 *"} {
			for _, on := range []schedule.OnExcluded{schedule.OnExcludedNextDay, schedule.OnExcludedPreviousDay} {
				s := mustParse(t, schedule.Spec{Expression: expression, Timezone: "Europe/Berlin", OnExcluded: on, Calendar: calendar})
				at := instant(t, "2026-05-01T07:00:00Z")
				for range 100 {
					next, ok, err := s.Find(at)
					if err != nil || !ok || !calendar.Includes(next) {
						t.Fatalf("%s, %s, %s: after %s: %s, %v, %v", name, expression, on, at, next, ok, err)
					}
					at = next
				}
			}
		}
	}
	lunch := mustCalendar(t, rules(schedule.CalendarRule{From: "12:00", To: "13:00"}))
	_, _, err := mustParse(t, schedule.Spec{Expression: "30 12 * * *", Timezone: "Europe/Berlin", OnExcluded: schedule.OnExcludedNextDay,
		Calendar: lunch}).Find(instant(t, "2026-05-01T07:00:00Z"))
	if err == nil || !strings.Contains(err.Error(), `on_excluded = "next_day" moves a fire to a day on which the calendar allows`) {
		t.Errorf("fires at a time that is never allowed: %v", err)
	}
}
