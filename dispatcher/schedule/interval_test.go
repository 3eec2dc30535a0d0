package schedule_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func TestCalendarAndDailyIntervalsFollowTheRulesOfBothNights(t *testing.T) {
	t.Parallel()
	march, october := instant(t, "2026-03-28T01:30:00Z"), instant(t, "2026-10-24T00:30:00Z") // 02:30 in Berlin
	for name, tt := range map[string]struct {
		spec schedule.Spec
		from string
		want []string
	}{
		"a day in the gap fires as much later": {
			schedule.Spec{Expression: "every 1 day", StartAt: march}, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"},
		},
		"a day in the gap is skipped on request": {
			schedule.Spec{Expression: "every 1 day", StartAt: march, Gap: schedule.GapSkip}, "2026-03-28T12:00:00Z",
			[]string{"2026-03-30T00:30:00Z"},
		},
		"a day in the gap fires when it ends on request": {
			schedule.Spec{Expression: "every 1 day", StartAt: march, Gap: schedule.GapNext}, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		},
		"a repeated day fires at its first pass": {
			schedule.Spec{Expression: "every 1 day", StartAt: october}, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		},
		"or at its last": {
			schedule.Spec{Expression: "every 1 day", StartAt: october, Overlap: schedule.OverlapLast}, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
		},
		"the hour drifts on request": {
			schedule.Spec{Expression: "every 1 week", StartAt: march, DriftHour: true}, "2026-03-28T12:00:00Z",
			[]string{"2026-04-04T01:30:00Z", "2026-04-11T01:30:00Z"},
		},
		"an anchor does not fire": {
			schedule.Spec{Expression: "every 2 years", Anchor: march}, "2026-01-01T00:00:00Z",
			[]string{"2028-03-28T00:30:00Z"},
		},
		"29 February falls on the 28th": {
			schedule.Spec{Expression: "every 1 year", StartAt: instant(t, "2028-02-29T12:00:00Z")}, "2028-03-01T00:00:00Z",
			[]string{"2029-02-28T12:00:00Z", "2030-02-28T12:00:00Z", "2031-02-28T12:00:00Z", "2032-02-29T12:00:00Z"},
		},
		"a span across the gap is shorter": {
			schedule.Spec{Expression: "every 30 minutes from 1:30 to 3:30"}, "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-29T23:30:00Z"},
		},
		"a span within the gap is empty": {
			schedule.Spec{Expression: "every 10 minutes from 2:10 to 2:20"}, "2026-03-29T00:00:00Z",
			[]string{"2026-03-30T00:10:00Z", "2026-03-30T00:20:00Z", "2026-03-31T00:10:00Z"},
		},
		"a span across the repeated hour is longer": {
			schedule.Spec{Expression: "every 1 hour from 2:00 to 3:00"}, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z", "2026-10-26T01:00:00Z"},
		},
		"weekdays of a span": {
			schedule.Spec{Expression: "every 12 hours from 9:00 on fri-mon"}, "2026-06-03T00:00:00Z",
			[]string{"2026-06-05T07:00:00Z", "2026-06-05T19:00:00Z", "2026-06-06T07:00:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.spec.Timezone = "Europe/Berlin"
			got := utc(timesBetween(mustParse(t, tt.spec), instant(t, tt.from), farFuture, len(tt.want)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("instants after %s (-want +got):\n%s", tt.from, diff)
			}
		})
	}
}

func TestFixedDelayFollowsTheAnchor(t *testing.T) {
	t.Parallel()
	start, ended := instant(t, "2026-01-01T00:00:00Z"), instant(t, "2026-01-01T00:00:07.250Z")
	spec := schedule.Spec{Expression: "delay(30s)", StartAt: start, Anchor: start.Add(-1e9)}
	if next, ok := mustParse(t, spec).Next(start.Add(-1)); !ok || !next.Equal(start) {
		t.Errorf("before the first run: Next = %v, %v, want the start", next, ok)
	}
	spec.Anchor = ended
	s := mustParse(t, spec)
	if next, ok := s.Next(ended); !ok || next.Sub(ended).Seconds() != 30 {
		t.Errorf("after a run: Next = %v, %v, want 30s after its end", next, ok)
	}
	if pause, ok := s.FixedDelay(); !ok || pause.Seconds() != 30 {
		t.Errorf("FixedDelay = %v, %v", pause, ok)
	}
	if pause, ok := mustParse(t, schedule.Spec{Expression: "rate(30s)"}).FixedDelay(); ok {
		t.Errorf("FixedDelay of a rate = %v", pause)
	}
}

func TestBadIntervalsAndEventBridgeTextAreRejected(t *testing.T) {
	t.Parallel()
	for expr, code := range map[string]string{
		"every month":                        input.CodeRateSyntax,
		"every 0 days":                       input.CodeRateMin,
		"every 101 years":                    input.CodeRateMax,
		"every 99999999999999999999 days":    input.CodeRateMax,
		"every 3 fortnights":                 input.CodeRateSyntax,
		"every 5 minutes from 9 to 17:00":    input.CodeTimeInvalid,
		"every 5 minutes from 9:00 to 24:00": input.CodeTimeInvalid,
		"every 5 minutes from 17:00 to 9:00": input.CodeCronRange,
		"every 5 days from 9:00 to 17:00":    input.CodeRateSyntax,
		"every 25 hours from 9:00":           input.CodeRateMax,
		"every 5 minutes on MONDAY":          input.CodeCronName,
		"every 5 minutes on FRIL":            input.CodeCronSyntax,
		"every 5 minutes on MON, TUE":        input.CodeRateSyntax,
		"cron(0 12 * * ? 2200)":              input.CodeCronRange,
		"cron(0 12 LW * ? *)":                input.CodeCronSyntax,
		"cron(0 12 ? * 2/2 *)":               input.CodeCronSyntax,
		"cron(0 12 * * ? 2030-2028)":         input.CodeCronRange,
		"cron(0 12 * * ?)":                   input.CodeCronFields,
		"0 0 H(1-31) * *":                    input.CodeCronHash,
		"delay(10ms)":                        input.CodeRateMin,
	} {
		if diff := cmp.Diff([]string{"expression " + code}, problemsOf(t, schedule.Spec{Expression: expr})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", expr, diff)
		}
	}
	for spec, want := range map[schedule.Spec]string{
		{Expression: "at(2026-05-01T10:00:00Z)", Dialect: schedule.DialectAWS}: "expression " + input.CodeTimeInvalid,
		{Expression: "rate(2 minute)", Dialect: schedule.DialectAWS}:           "expression " + input.CodeRateSyntax,
		{Expression: "rate(30 seconds)", Dialect: schedule.DialectAWS}:         "expression " + input.CodeRateSyntax,
		{Expression: "cron(0 12 * * ? *)", Dialect: schedule.DialectQuartz}:    "expression " + input.CodeCronSyntax,
		{Expression: "0 12 * * *", Dialect: schedule.DialectQuartz}:            "expression " + input.CodeCronFields,
		{Expression: "0 12 * * *", Dialect: "crontab"}:                         "dialect " + input.CodeEnum,
		{Expression: "0 12 * * *", Jitter: -1}:                                 "jitter " + input.CodeJitterRange,
		{Expression: "0 12 * * *", RepeatCount: 1_000_000}:                     "repeat_count " + input.CodeRepeatRange,
		{Expression: "0 12 * * *", OnExcluded: "later"}:                        "on_excluded " + input.CodeEnum,
	} {
		if diff := cmp.Diff([]string{want}, problemsOf(t, spec)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", spec, diff)
		}
	}
}
