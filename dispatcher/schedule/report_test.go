package schedule_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func TestDescribeIsPlainEnglishWithZoneAndOffset(t *testing.T) {
	t.Parallel()
	summer := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for expr, want := range map[string]string{
		"30 2 * * *":               "at 02:30 every day",
		"0 9,17 * * 1-5":           "at 09:00 and 17:00 on Monday to Friday",
		"*/5 * * * *":              "every 5 minutes every day",
		"7/15 8-18 * * *":          "every 15 minutes from minute 7 of hour 8 to 18 every day",
		"* * * * * ?":              "every second every day",
		"0 0 12 L-2,15W * ? 2026":  "at 12:00 on 2 days before the last day and the weekday nearest to day 15 of the month in 2026",
		"0 0 0 LW * ?":             "at 00:00 on the weekday nearest to the last day of the month",
		"0 0 0 ? 1,6-8 6#3":        "at 00:00 on the third Friday of the month in January and June to August",
		"0 0 0 ? * FRIL":           "at 00:00 on the last Friday of the month",
		"0 0 13 * 5":               "at 00:00 on day 13 of the month or on Friday",
		"rate(90 minutes)":         "every 1h30m0s of elapsed time",
		"delay(30s)":               "30s after the previous run ends",
		"at(2026-05-01T10:00:00)":  "once at 2026-05-01T08:00:00Z",
		"every 3 months":           "every 3 months on the calendar, counted from 1970-01-01 01:00:00",
		"every 5 minutes on MON":   "every 5 minutes on MON",
		"cron(0 12 ? * MON-FRI *)": "at 12:00 on Monday to Friday",
		"@yearly":                  "at 00:00 on day 1 of the month in January",
		"0 0 1-5,10,12,14,16 * *":  "at 00:00 on day 1 to 5, 10, 12, 14 and 16 of the month",
		"0 0 0 1 1 ? 2026-2030":    "at 00:00 on day 1 of the month in January in 2026 to 2030",
		"5,35 * 9 * * ?":           "second 5 and 35 of every minute of hour 9 every day",
	} {
		got := mustParse(t, schedule.Spec{Expression: expr, Timezone: "Europe/Berlin"}).Describe(summer)
		if diff := cmp.Diff(want+"; Europe/Berlin (UTC+02:00)", got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", expr, diff)
		}
	}
}

func TestWarningsCoverSurprisingSchedules(t *testing.T) {
	t.Parallel()
	from := instant(t, "2026-01-01T00:00:00Z")
	for expr, want := range map[string][]string{
		"0 2 * * *":      {input.WarnDST},
		"0 4 * * *":      nil,
		"*/5 * * * *":    nil,
		"*/7 * * * *":    {input.WarnStep},
		"0 12 */2 * 5":   {input.WarnStep, input.WarnStarStep},
		"0 12 31 * *":    {input.WarnDay},
		"0 12 28-31 * *": nil,
		"0 0 12 L * ?":   nil,
	} {
		var got []string
		for _, w := range mustParse(t, schedule.Spec{Expression: expr, Timezone: "Europe/Berlin"}).Warnings(from) {
			got = append(got, w.Code)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q: warnings %v, want %v", expr, got, want)
		}
	}
	for _, gap := range []schedule.Gap{schedule.GapSkip, schedule.GapNext} {
		answered := schedule.Spec{Expression: "0 2 * * *", Timezone: "Europe/Berlin", Gap: gap, Overlap: schedule.OverlapBoth}
		if got := mustParse(t, answered).Warnings(from); got != nil {
			t.Errorf("gap %s is given: warnings %v, want none", gap, got)
		}
	}
	excluding := func(rule schedule.CalendarRule) *schedule.Calendar {
		return mustCalendar(t, schedule.CalendarSpec{Timezone: "Europe/Berlin", Rules: []schedule.CalendarRule{rule}})
	}
	weekends := excluding(schedule.CalendarRule{Weekdays: []string{"SAT", "SUN"}})
	nights := excluding(schedule.CalendarRule{From: "22:00", To: "22:30"})
	for _, tt := range []struct {
		expression string
		calendar   *schedule.Calendar
		on         schedule.OnExcluded
		want       string
	}{
		{"0 8 * * *", weekends, schedule.OnExcludedNextIncluded, "next_included moves the fire of 2026-01-03T08:00:00 to " +
			"2026-01-05T00:00:00, when the calendar allows it; write next_day to keep the time of day"},
		{"0 8 * * *", weekends, schedule.OnExcludedNextDay, ""}, {"0 8 * * *", weekends, "", ""},
		{"0 8 * * MON", weekends, schedule.OnExcludedNextIncluded, ""}, {"15 22 * * *", nights, schedule.OnExcludedNextIncluded, ""},
		{"0 0 * * MON,SUN", weekends, schedule.OnExcludedNextIncluded, ""},
	} {
		spec := schedule.Spec{Expression: tt.expression, Timezone: "Europe/Berlin", Calendar: tt.calendar, OnExcluded: tt.on}
		got := mustParse(t, spec).Warnings(from)
		if tt.want == "" && len(got) == 0 {
			continue
		}
		if len(got) != 1 || got[0].Code != input.WarnMovedHour || got[0].Field != "on_excluded" || got[0].Message != tt.want {
			t.Errorf("%q, %s: warnings %v, want %q", tt.expression, tt.on, got, tt.want)
		}
	}
	later := schedule.Spec{Expression: "30 2 * * *", Timezone: "Europe/Berlin", StartAt: instant(t, "2033-01-01T00:00:00Z"),
		Calendar: weekends, OnExcluded: schedule.OnExcludedNextIncluded}
	var told []string
	for _, w := range mustParse(t, later).Warnings(from) {
		told = append(told, w.Code+" "+w.Message)
	}
	for _, want := range []string{"dst daylight saving skips 2033-03-27T02:30:00", "moved_hour next_included moves the fire of 2033-01-01"} {
		if !slices.ContainsFunc(told, func(w string) bool { return strings.HasPrefix(w, want) }) {
			t.Errorf("a schedule that starts in 2033: warnings %q, want %q", told, want)
		}
	}
	window := schedule.Spec{Expression: "0 12 1 6 *", StartAt: from, EndAt: from.AddDate(0, 1, 0)}
	if got := mustParse(t, window).Warnings(from); len(got) != 1 || got[0].Code != input.WarnNoFire {
		t.Errorf("warnings of a window without fires: %v", got)
	}
}

func TestShiftsListsEffectsOfDaylightSaving(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2026-01-01T00:00:00Z"), instant(t, "2027-01-01T00:00:00Z")
	gap, overlap := instant(t, "2026-03-29T01:00:00Z"), instant(t, "2026-10-25T01:00:00Z")
	for name, tt := range map[string]struct {
		spec schedule.Spec
		want []schedule.Shift
	}{
		"skipped": {
			schedule.Spec{Expression: "30 2 * * *"},
			[]schedule.Shift{{gap, schedule.EffectSkipped, "2026-03-29T02:30:00"}},
		},
		"moved": {
			schedule.Spec{Expression: "30 2 * * *", Gap: schedule.GapNext},
			[]schedule.Shift{{gap, schedule.EffectMoved, "2026-03-29T02:30:00"}},
		},
		"doubled": {
			schedule.Spec{Expression: "0 2 * * 0", Overlap: schedule.OverlapBoth},
			[]schedule.Shift{
				{gap, schedule.EffectSkipped, "2026-03-29T02:00:00"},
				{overlap, schedule.EffectDoubled, "2026-10-25T02:00:00"},
			},
		},
		"another hour":                 {schedule.Spec{Expression: "30 3 * * *"}, nil},
		"every hour follows the clock": {schedule.Spec{Expression: "30 * * * *"}, nil},
		"outside the window":           {schedule.Spec{Expression: "30 2 * * *", StartAt: overlap}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.spec.Timezone = "Europe/Berlin"
			if diff := cmp.Diff(tt.want, mustParse(t, tt.spec).Shifts(from, to)); diff != "" {
				t.Errorf("shifts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMatchesOnlyTheInstantItself(t *testing.T) {
	t.Parallel()
	s := mustParse(t, schedule.Spec{Expression: "0/10 * * * * ?"})
	for at, want := range map[string]bool{
		"2026-01-01T00:00:10Z": true, "2026-01-01T00:00:10.000001Z": false, "2026-01-01T00:00:11Z": false,
		"2026-01-01T00:00:09.999Z": false, "2026-01-01T01:00:10+01:00": true,
	} {
		if got := s.Matches(instant(t, at)); got != want {
			t.Errorf("Matches(%s) = %v, want %v", at, got, want)
		}
	}
}

func TestHashIsStableAndSpreads(t *testing.T) {
	t.Parallel()
	seen := map[time.Time]int{}
	const triggers = 600
	for i := range triggers {
		identity := strings.Repeat("x", i%7) + time.Unix(int64(i), 0).UTC().String()
		spec := schedule.Spec{Expression: "H H(0-5) * * *", Identity: identity}
		from := instant(t, "2026-01-01T00:00:00Z")
		next, ok := mustParse(t, spec).Next(from.Add(-time.Second))
		again, _ := mustParse(t, spec).Next(from.Add(-time.Second))
		if !ok || !next.Equal(again) || next.Sub(from) >= 6*time.Hour {
			t.Fatalf("%q: Next = %v, then %v, want one instant before 06:00", identity, next, again)
		}
		seen[next]++
	}
	if len(seen) < 200 { // of 360 minutes; 600 draws leave about 68 of them empty
		t.Errorf("%d triggers fire at only %d distinct minutes", triggers, len(seen))
	}
	if got := problemsOf(t, schedule.Spec{Expression: "H * * * *"}); len(got) != 1 ||
		got[0] != "expression "+input.CodeCronHash {
		t.Errorf("H without identity: %v, want %s", got, input.CodeCronHash)
	}
}

func TestHashWithStepStaysInItsRange(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2026-01-01T00:00:00Z"), instant(t, "2026-01-01T00:59:59.999Z")
	for _, identity := range []string{"a", "b", "c", "d"} {
		got := timesBetween(mustParse(t, schedule.Spec{Expression: "H(10-39)/10 * * * *", Identity: identity}), from.Add(-1), to, 99)
		if len(got) != 3 || got[0].Minute() < 10 || got[0].Minute() > 19 || got[2].Minute() != got[0].Minute()+20 {
			t.Errorf("identity %s fires at %v, want three times from minute 10-19 on, 10 minutes apart", identity, utc(got))
		}
	}
}

func TestDelayIsDeterministicAndBelowTheJitter(t *testing.T) {
	t.Parallel()
	spec := schedule.Spec{Expression: "* * * * *", Identity: "app/job/trigger", Jitter: 30 * time.Second}
	s := mustParse(t, spec)
	distinct := map[time.Duration]bool{}
	for _, at := range timesBetween(s, instant(t, "2026-01-01T00:00:00Z"), farFuture, 50) {
		d := s.Delay(at)
		if d < 0 || d >= spec.Jitter || d != mustParse(t, spec).Delay(at) {
			t.Errorf("Delay(%v) = %v, want the same each time, in [0, %v)", at, d, spec.Jitter)
		}
		distinct[d] = true
	}
	if len(distinct) < 40 {
		t.Errorf("50 fires have only %d distinct delays", len(distinct))
	}
	if d := mustParse(t, schedule.Spec{Expression: "* * * * *"}).Delay(farFuture); d != 0 {
		t.Errorf("Delay without jitter = %v, want 0", d)
	}
}

func TestJitterAsLongAsTheTimeBetweenFiresGivesAWarning(t *testing.T) {
	t.Parallel()
	for jitter, want := range map[time.Duration]bool{0: false, 59 * time.Second: false, time.Minute: true, time.Hour: true} {
		s := mustParse(t, schedule.Spec{Expression: "* * * * *", Jitter: jitter, Identity: "a/b/c"})
		warned := slices.ContainsFunc(s.Warnings(time.Unix(0, 0)),
			func(w schedule.Warning) bool { return w.Code == input.WarnJitter })
		if warned != want {
			t.Errorf("jitter %s on each minute: warned %v, want %v", jitter, warned, want)
		}
	}
}
