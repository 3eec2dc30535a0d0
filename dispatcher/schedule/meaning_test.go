package schedule_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func TestSchedulesAreComparedByMeaning(t *testing.T) {
	t.Parallel()
	type spec = schedule.Spec
	const berlin = "Europe/Berlin"
	for name, tt := range map[string]struct {
		a, b               spec
		fires, slots, grid bool
	}{
		"one more space": {spec{Expression: "0 * * * * ?"}, spec{Expression: "0  * * * * ?"}, true, true, true},
		"blanks around":  {spec{Expression: "rate(24h)"}, spec{Expression: " rate(24h) "}, true, true, true},
		"a single time": {spec{Expression: "at(2026-05-01T10:00:00Z)"},
			spec{Expression: " 2026-05-01T12:00:00+02:00"}, true, true, true},
		"a local time": {spec{Expression: "at(2026-05-01T12:00:00)", Timezone: berlin},
			spec{Expression: "at(2026-05-01T10:00:00Z)"}, true, true, true},
		"names for numbers":     {spec{Expression: "0 2 * jan 1-5"}, spec{Expression: "0 2 * 1 MON-FRI"}, true, true, true},
		"a list in other order": {spec{Expression: "15,0 2 * * *"}, spec{Expression: "0,15 2 * * *"}, true, true, true},
		"a step for a list":     {spec{Expression: "0,20,40 * * * *"}, spec{Expression: "*/20 * * * *"}, true, true, true},
		"crontab and Quartz":    {spec{Expression: "0 2 * * MON-FRI"}, spec{Expression: "0 0 2 ? * 2-6"}, true, true, true},
		"Quartz and AWS":        {spec{Expression: "0 0 2 * * ?"}, spec{Expression: "cron(0 2 * * ? *)"}, true, true, true},
		"a macro":               {spec{Expression: "@daily"}, spec{Expression: "0 0 * * *"}, true, true, true},
		"Sunday as 0 and 7":     {spec{Expression: "0 2 * * 0"}, spec{Expression: "0 2 * * 7"}, true, true, true},
		"both days, one full":   {spec{Expression: "0 2 1-31 * MON"}, spec{Expression: "0 2 * * *"}, true, true, true},
		"units":                 {spec{Expression: "rate(1 day)"}, spec{Expression: "rate(1440m)"}, true, true, true},
		"@every":                {spec{Expression: "@every 90s"}, spec{Expression: "rate(1m30s)"}, true, true, true},
		"an interval in a zone": {spec{Expression: "rate(5m)", Timezone: berlin}, spec{Expression: "rate(5m)"}, true, true, true},
		"an interval of AWS": {spec{Expression: "rate(1 hour)", Dialect: "aws"}, spec{Expression: "every 60 minutes"},
			true, true, true},
		"calendar units": {spec{Expression: "every 12 months"}, spec{Expression: "every 1 YEAR"}, true, true, true},
		"a part of the day": {spec{Expression: "every 60 minutes from 9:00 to 17:00"},
			spec{Expression: "every 1 HOUR from 09:00:00 to 17:00 on SUN-SAT"}, true, true, true},
		"a fixed delay":   {spec{Expression: "delay(60s)"}, spec{Expression: "delay( 1m )"}, true, true, true},
		"zone left out":   {spec{Expression: "0 2 * * *"}, spec{Expression: "0 2 * * *", Timezone: "UTC"}, true, true, true},
		"an alias of UTC": {spec{Expression: "0 2 * * *"}, spec{Expression: "0 2 * * *", Timezone: "Etc/UTC"}, true, true, true},
		"an alias of a zone": {spec{Expression: "0 2 * * *", Timezone: "Asia/Calcutta"},
			spec{Expression: "0 2 * * *", Timezone: "Asia/Kolkata"}, true, true, true},
		"an old name of a zone": {spec{Expression: "every 2 days", Timezone: "US/Eastern"},
			spec{Expression: "every 2 days", Timezone: "America/New_York"}, true, true, true},
		"gap written out": {spec{Expression: "0 2 * * *"}, spec{Expression: "0 2 * * *", Gap: schedule.GapSkip}, true, true, true},
		"overlap, hourly": {spec{Expression: "0 * * * *"}, spec{Expression: "0 0-23 * * *",
			Overlap: schedule.OverlapBoth}, true, true, true},
		"overlap, daily": {spec{Expression: "0 2 * * *"}, spec{Expression: "0 2 * * *",
			Overlap: schedule.OverlapLast}, true, true, true},
		"rules of intervals": {spec{Expression: "rate(5m)"}, spec{Expression: "rate(5m)", Gap: schedule.GapNext,
			Overlap: schedule.OverlapFirst}, true, true, true},
		"drift of a cron": {spec{Expression: "0 2 * * *"}, spec{Expression: "0 2 * * *", DriftHour: true}, true, true, true},

		"another gap": {spec{Expression: "0 2 * * *"}, spec{Expression: "0 2 * * *", Gap: schedule.GapNext}, false, false, true},
		"another overlap": {spec{Expression: "0 * * * *"}, spec{Expression: "0 * * * *", Overlap: schedule.OverlapLast},
			false, false, true},
		"drift of steps": {spec{Expression: "every 1 day"}, spec{Expression: "every 1 day", DriftHour: true}, false, false, true},
		"jitter":         {spec{Expression: "0 2 * * *"}, spec{Expression: "0 2 * * *", Jitter: 1e9}, false, true, true},
		"repeat count":   {spec{Expression: "0 2 * * *"}, spec{Expression: "0 2 * * *", RepeatCount: 3}, false, true, true},
		"end": {spec{Expression: "0 2 * * *"}, spec{Expression: "0 2 * * *", EndAt: farFuture.AddDate(-7900,
			0, 0)}, false, true, true},

		"start": {spec{Expression: "rate(5m)"}, spec{Expression: "rate(5m)", StartAt: instant(t,
			"2026-05-01T10:00:00Z")}, false, false, false},
		"another period":    {spec{Expression: "rate(5m)"}, spec{Expression: "rate(6m)"}, false, false, false},
		"rate and delay":    {spec{Expression: "rate(5m)"}, spec{Expression: "delay(5m)"}, false, false, false},
		"days and 24 hours": {spec{Expression: "every 1 day"}, spec{Expression: "every 24 hours"}, false, false, false},
		"another hour":      {spec{Expression: "0 2 * * *"}, spec{Expression: "0 3 * * *"}, false, false, false},
		"another zone": {spec{Expression: "0 2 * * *", Timezone: berlin}, spec{Expression: "0 2 * * *", Timezone: "Europe/London"},
			false, false, false},
		"a neighbour, once": {spec{Expression: "0 2 * * *", Timezone: "America/Phoenix"}, spec{Expression: "0 2 * * *",
			Timezone: "America/Denver"},
			false, false, false},
		"weekday by number": {spec{Expression: "0 2 * * 1"}, spec{Expression: "0 0 2 ? * 1"}, false, false, false},
		"years":             {spec{Expression: "0 0 2 * * ?"}, spec{Expression: "0 0 2 * * ? 2026-2099"}, false, false, false},
	} {
		tt.a.Identity, tt.b.Identity = "a/b/c", "a/b/c"
		a, b := mustParse(t, tt.a), mustParse(t, tt.b)
		got, want := []bool{a.SameFires(b), a.SameInstants(b), a.SameGrid(b)}, []bool{tt.fires, tt.slots, tt.grid}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: same fires, instants, grid (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(got, []bool{b.SameFires(a), b.SameInstants(a), b.SameGrid(a)}); diff != "" {
			t.Errorf("%s: the other way round (-want +got):\n%s", name, diff)
		}
	}
}

// Schedules with the same meaning have the same fires.
func TestSchedulesOfOneMeaningFireAlike(t *testing.T) {
	t.Parallel()
	aliases := map[string]string{"": "Etc/UTC", "UTC": "Etc/UCT", "America/New_York": "US/Eastern",
		"Europe/London": "GB", "Asia/Kolkata": "Asia/Calcutta"}
	rapid.Check(t, func(t *rapid.T) {
		a := specs.Draw(t, "spec")
		b := a
		for _, change := range rapid.SliceOfN(rapid.IntRange(0, 7), 0, 3).Draw(t, "changes") {
			switch change {
			case 0:
				b.Expression = " " + b.Expression + "\t"
			case 1:
				if alias, known := aliases[b.Timezone]; known {
					b.Timezone = alias
				}
			case 2:
				b.Gap = rapid.SampledFrom([]schedule.Gap{"", schedule.GapSkip, schedule.GapNext}).Draw(t, "other gap")
			case 3:
				b.Overlap = rapid.SampledFrom([]schedule.Overlap{"", schedule.OverlapFirst, schedule.OverlapLast,
					schedule.OverlapBoth}).Draw(t, "other overlap")
			case 4:
				b.DriftHour = !b.DriftHour
			case 5:
				b.Timezone = rapid.SampledFrom(referenceZones).Draw(t, "other zone")
			case 6:
				b.Expression = specs.Draw(t, "other").Expression
			case 7:
				b.RepeatCount = rapid.IntRange(0, 3).Draw(t, "other count")
			}
		}
		one, err := schedule.Parse(a)
		two, errTwo := schedule.Parse(b)
		if err != nil || errTwo != nil || !one.SameFires(two) {
			return
		}
		from := instants.Draw(t, "from")
		if diff := cmp.Diff(utc(timesBetween(one, from, farFuture, 20)), utc(timesBetween(two, from, farFuture, 20))); diff != "" {
			t.Fatalf("%+v and %+v are the same, but after %v (-a +b):\n%s", a, b, from, diff)
		}
	})
}

// The remaining repeats are counted from where the others were used up.
func TestRepeatsGoOnCounting(t *testing.T) {
	t.Parallel()
	at := instant(t, "2026-05-01T10:00:00Z")
	later := instant(t, "2026-05-01T12:00:30Z")
	for name, tt := range map[string]struct {
		spec schedule.Spec
		want []string
	}{
		"of an expression": {schedule.Spec{Expression: "0 * * * * ?", RepeatCount: 4, Used: 3},
			[]string{"2026-05-01T12:01:00Z"}},
		"of an interval": {schedule.Spec{Expression: "rate(7m)", RepeatCount: 4, Used: 2},
			[]string{"2026-05-01T12:06:00Z", "2026-05-01T12:13:00Z"}},
		"of steps on the calendar": {schedule.Spec{Expression: "every 1 day", RepeatCount: 2, Used: 1},
			[]string{"2026-05-02T10:00:00Z"}},
		"with a start to come": {schedule.Spec{Expression: "rate(1h)", RepeatCount: 2, StartAt: instant(t, "2026-06-01T00:00:00Z")},
			[]string{"2026-06-01T00:00:00Z", "2026-06-01T01:00:00Z"}},
		"of an expression with a start to come": {schedule.Spec{Expression: "0 0 * * * ?", RepeatCount: 3, Used: 1,
			StartAt: instant(t, "2026-06-01T00:00:00Z")},
			[]string{"2026-06-01T00:00:00Z", "2026-06-01T01:00:00Z"}},
		"no repeat left":             {schedule.Spec{Expression: "0 * * * * ?", RepeatCount: 3, Used: 3}, nil},
		"no repeat of a period left": {schedule.Spec{Expression: "rate(1m)", RepeatCount: 3, Used: 5}, nil},
	} {
		tt.spec.Anchor, tt.spec.CountFrom = at, later
		s := mustParse(t, tt.spec)
		if diff := cmp.Diff(tt.want, utc(timesBetween(s, later, farFuture, 5))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if tt.spec.StartAt.IsZero() && tt.spec.Expression != "every 1 day" && len(timesBetween(s, at, later, 10)) != 10 {
			t.Errorf("%s: scheduled times up to then are bounded", name)
		}
	}
}
