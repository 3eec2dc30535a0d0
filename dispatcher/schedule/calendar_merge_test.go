package schedule_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// ruleMatches applies one rule as documented, one local time at a time.
func ruleMatches(t *rapid.T, r schedule.CalendarRule, local time.Time) bool {
	day := local.Format(time.DateOnly)
	inside := func(from, to, at string) bool {
		if from > to {
			return at >= from || at <= to
		}
		return from <= at && at <= to
	}
	switch {
	case len(r.Dates) > 0:
		for _, text := range r.Dates {
			from, to, ranged := strings.Cut(text, "/")
			if !ranged {
				to = from
			}
			if inside(from, to, day[len(day)-len(from):]) {
				return true
			}
		}
		return false
	case len(r.Weekdays) > 0:
		name := strings.ToUpper(local.Weekday().String()[:3])
		return strings.Contains(strings.Join(r.Weekdays, ","), name)
	case len(r.DaysOfMonth) > 0:
		for _, n := range r.DaysOfMonth {
			if local.Day() == n {
				return true
			}
		}
		return false
	case r.Expression != "":
		plain, err := schedule.Parse(schedule.Spec{Expression: r.Expression}) // in UTC, where local times are instants
		if err != nil {
			t.Fatal(err)
		}
		return plain.Matches(time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC))
	}
	at := local.Format("15:04:05")
	from, to := r.From+":00", r.To+":00"
	if r.To == "" {
		to = "24:00:00"
	}
	if r.From == "" {
		from = "00:00:00"
	}
	if from < to {
		return from <= at && at < to
	}
	return at >= from || at < to
}

var mergedRules = rapid.Custom(func(t *rapid.T) schedule.CalendarRule {
	r := rapid.SampledFrom([]schedule.CalendarRule{
		{Weekdays: []string{"SAT", "SUN"}}, {Weekdays: []string{"MON"}}, {Dates: []string{"12-24/01-02", "02-29"}},
		{Dates: []string{"2026-03-28/2026-04-02", "2026-10-25", "2027-02-01/2028-03-05"}}, {DaysOfMonth: []int{1, 15, 29, 31}},
		{From: "22:00", To: "06:00"}, {From: "01:30", To: "02:30"}, {From: "09:00"}, {To: "12:00"}, {From: "07:00", To: "07:00"},
		{Dates: []string{"03-01/10-31"}}, {Dates: []string{"2025-12-31/2031-01-01"}},
		{Expression: "0 */2 * * *"}, {Expression: "* * 9-16 ? * MON-FRI"}, {Expression: "* * * ? 1-11 *"},
		{Expression: "* * * L * ? 2026-2027"}, {Expression: "0 0 0 29 2 ?"},
	}).Draw(t, "rule")
	r.Only = rapid.IntRange(0, 3).Draw(t, "only") == 0
	return r
})

// Merged rules of several calendars and zones exclude what their rules exclude one by one, the
// stretches between two fires hold no other fire, and moved fires are at the end of their stretch.
func TestMergedCalendarsAgreeWithTheirRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []schedule.CalendarSpec
		var compiled []*schedule.Calendar
		for i := range rapid.IntRange(1, 4).Draw(t, "calendars") {
			spec := schedule.CalendarSpec{
				Timezone: rapid.SampledFrom([]string{"Europe/Berlin", "UTC", "Australia/Lord_Howe"}).Draw(t, "zone"),
				Rules:    rapid.SliceOfN(mergedRules, 0, 2).Draw(t, "rules"),
			}
			if i > 0 { // each builds on some earlier ones, so that most are shared
				spec.Bases = append(spec.Bases, compiled[i-1], compiled[rapid.IntRange(0, i-1).Draw(t, "base")])
			}
			all = append(all, spec)
			c, err := schedule.NewCalendar(spec)
			if err != nil {
				t.Fatal(err)
			}
			compiled = append(compiled, c)
		}
		calendar := compiled[len(compiled)-1]
		includes := func(at time.Time) bool {
			for _, spec := range all {
				zone, _ := schedule.Location(spec.Timezone)
				for _, r := range spec.Rules {
					if ruleMatches(t, r, at.In(zone)) != r.Only {
						return false
					}
				}
			}
			return true
		}
		from := instants.Draw(t, "from").Truncate(time.Second)
		for i := range 40 {
			at := from.Add(time.Duration(i) * 1777 * time.Minute)
			if got, want := calendar.Includes(at), includes(at); got != want {
				t.Fatalf("Includes(%s) = %v, want %v: %+v", at, got, want, all)
			}
		}
		checkAgainst(t, calendar, from, includes, fmt.Sprintf("%+v", all))
	})
}

// checkAgainst compares the fires of an hourly schedule under a calendar with a search hour by hour,
// in which every stretch begins and ends at a half hour.
func checkAgainst(t *rapid.T, calendar *schedule.Calendar, from time.Time, includes func(time.Time) bool, what string) {
	const hours = 24 * 60
	plain := schedule.Spec{Expression: "rate(1h)", Anchor: from.Add(-100 * time.Hour), Calendar: calendar}
	s, err := schedule.Parse(plain)
	if err != nil {
		t.Fatal(err)
	}
	next, ok, err := s.Find(from)
	if err != nil {
		return // it gives up; other tests check that
	}
	var want time.Time
	for i := 1; i <= hours && want.IsZero(); i++ {
		if at := from.Add(time.Duration(i) * time.Hour); includes(at) {
			want = at
		}
	}
	if last := from.Add(hours * time.Hour); !want.IsZero() && (!ok || !next.Equal(want)) || want.IsZero() && ok && !next.After(last) {
		t.Fatalf("next fire %v, %v, want %v: %s", next, ok, want, what)
	}
}
