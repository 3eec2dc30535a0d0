package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// problemsOf returns the problems of a spec as "field code".
func problemsOf(t *testing.T, spec schedule.Spec) []string {
	t.Helper()
	_, err := schedule.Parse(spec)
	if err == nil {
		return nil
	}
	var errs input.Problems
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("Parse(%+v) = %v, want input.Problems that are not empty", spec, err)
	}
	var out []string
	for _, e := range errs {
		field := strings.TrimPrefix(e.Path, "/")
		out = append(out, field+" "+e.Code)
		if input.RowOf(e.Code).Code == "" {
			t.Errorf("code %q is not in the closed list", e.Code)
		}
		if !strings.HasPrefix(e.Message, field+" ") || strings.ContainsAny(e.Message, "\n\r\x00") || len(e.Message) > 500 {
			t.Errorf("message %q does not begin with its field, or is not one short line", e.Message)
		}
	}
	return out
}

func TestBadExpressionsAreRejectedWithTheirCode(t *testing.T) {
	t.Parallel()
	for expr, code := range map[string]string{
		"":                             input.CodeCronEmpty,
		"   ":                          input.CodeCronEmpty,
		" \t ":                         input.CodeCronEmpty,
		"* * * *":                      input.CodeCronFields,
		"* * * * * * * *":              input.CodeCronFields,
		"60 * * * *":                   input.CodeCronRange,
		"*/0 * * * *":                  input.CodeCronStep,
		"*/100 * * * *":                input.CodeCronStep,
		"*/ * * * *":                   input.CodeCronStep,
		"5-1 * * * *":                  input.CodeCronRange,
		"0 0 30 2 *":                   input.CodeCronNever,
		"0 0 0 30 2 ?":                 input.CodeCronNever,
		"0 0 0 31 4,6,9,11 ?":          input.CodeCronNever,
		"0 0 0 29 2 ? 2025,2100-2099":  input.CodeCronRange,
		"0 0 0 29 2 ? 2025-2027":       input.CodeCronNever,
		"0 0 0 ? 2 6#5 2026":           input.CodeCronNever,
		"0 0 * * 8":                    input.CodeCronRange,
		"1,,2 * * * *":                 input.CodeCronSyntax,
		"-1 * * * *":                   input.CodeCronSyntax,
		"JAN * * * *":                  input.CodeCronName,
		"0 0 * JANUARY *":              input.CodeCronName,
		"* * * * *\n* * * * *":         input.CodeCronControl,
		"* * * * *\r\n":                input.CodeCronControl,
		"*\u00a0* * * *":               input.CodeCronControl,
		"*\u200b * * * *":              input.CodeCronControl,
		"\u202e* * * * *":              input.CodeCronControl,
		"* * * * *\x00":                input.CodeCronControl,
		"\xff * * * *":                 input.CodeCronControl,
		"５ * * * *":                    input.CodeCronSyntax,
		"0x10 * * * *":                 input.CodeCronSyntax,
		"1.5 * * * *":                  input.CodeCronSyntax,
		"1e1 * * * *":                  input.CodeCronSyntax,
		"99999999999999999999 * * * *": input.CodeCronRange,
		strings.Repeat("1,", 50_000) + "1 * * * *": input.CodeCronTooLong,
		"TZ=UTC":                        input.CodeCronTZPrefix,
		"TZ=Local * * * * *":            input.CodeCronTZPrefix,
		"CRON_TZ=Asia/Tokyo 0 0 * * *":  input.CodeCronTZPrefix,
		"@every 0s":                     input.CodeRateMin,
		"@every -1m":                    input.CodeRateMin,
		"@every 1ns":                    input.CodeRateMin,
		"@every 999ms":                  input.CodeRateMin,
		"@every":                        input.CodeCronMacro,
		"@every ":                       input.CodeCronMacro,
		"@every soon":                   input.CodeRateSyntax,
		"@every 1500us":                 input.CodeRateMin,
		"@every 1s1us":                  input.CodeRateSyntax,
		"@reboot":                       input.CodeCronMacro,
		"@EVERY 1m":                     input.CodeCronMacro,
		"@Daily":                        input.CodeCronMacro,
		"rate(5)":                       input.CodeRateSyntax,
		"rate()":                        input.CodeRateSyntax,
		"rate(5 minutes":                input.CodeRateSyntax,
		"rate(5 fortnights)":            input.CodeRateSyntax,
		"rate(0 seconds)":               input.CodeRateMin,
		"rate(99999999999999 days)":     input.CodeRateMax,
		"rate(9999999999999999h)":       input.CodeRateMax,
		"? ? * * *":                     input.CodeCronSyntax,
		"0 0 * * ?":                     input.CodeCronSyntax,
		"0 0 L * *":                     input.CodeCronSyntax,
		"0 0 * * MON#1":                 input.CodeCronSyntax,
		"* * * * * *":                   input.CodeCronDays,
		"0 0 0 ? * ?":                   input.CodeCronDays,
		"at(2026-02-30T00:00:00Z)":      input.CodeTimeInvalid,
		"2026-02-30T00:00:00Z":          input.CodeTimeInvalid,
		"at(2026-12-31T23:59:60Z)":      input.CodeTimeInvalid,
		"at(2026-01-01T24:00:00Z)":      input.CodeTimeInvalid,
		"at(2026-01-01T00:00:00+24:00)": input.CodeTimeInvalid,
		"at(2026-01-01T00:00Z)":         input.CodeTimeInvalid,
		"at(2026-01-01T00:00:00Z":       input.CodeTimeInvalid,
		"at(1999-12-31T23:59:59Z)":      input.CodeTimeRange,
		"at(2201-01-01T00:00:00Z)":      input.CodeTimeRange,
		"at(2200-12-31T23:30:00-01:00)": input.CodeTimeRange,
		"at(9999-12-31T00:00:00Z)":      input.CodeTimeRange,
		"at()":                          input.CodeTimeInvalid,
		"at(2026-01-01T00:00:00)":       input.CodeTimeZoneMissing,
		"2026-01-01T00:00:00":           input.CodeTimeZoneMissing,
	} {
		t.Run(fmt.Sprintf("%.40q", expr), func(t *testing.T) {
			t.Parallel()
			got := slices.Compact(problemsOf(t, schedule.Spec{Expression: expr}))
			if diff := cmp.Diff([]string{"expression " + code}, got); diff != "" {
				_, err := schedule.Parse(schedule.Spec{Expression: expr})
				t.Errorf("problems (-want +got):\n%s%v", diff, err)
			}
		})
	}
}

func TestAllProblemsOfASpecAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	got := problemsOf(t, schedule.Spec{
		Expression: "61 24 32 * *", Dialect: "", Timezone: "+02:00", Gap: "jump", Overlap: "Last", RepeatCount: -1,
		StartAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), EndAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	})
	want := []string{
		"expression cron_range", "expression cron_range", "expression cron_range", "gap enum", "overlap enum",
		"timezone tz_offset", "start_at window_order", "repeat_count repeat_range",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestBadTimezonesAreRejectedWithAdvice(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]struct{ code, advice string }{
		"Mars/Olympus":               {input.CodeTZUnknown, "IANA"},
		"america/new_york":           {input.CodeTZUnknown, "did you mean America/New_York?"},
		"America/New York":           {input.CodeTZUnknown, "did you mean America/New_York?"},
		"Berlin":                     {input.CodeTZUnknown, "did you mean Europe/Berlin?"},
		"utc":                        {input.CodeTZUnknown, "did you mean UTC?"},
		"Local":                      {input.CodeTZUnknown, "depends on the host"},
		"localtime":                  {input.CodeTZUnknown, "depends on the host"},
		"posixrules":                 {input.CodeTZUnknown, "IANA"},
		"right/UTC":                  {input.CodeTZUnknown, "IANA"},
		"posix/UTC":                  {input.CodeTZUnknown, "IANA"},
		"Factory":                    {input.CodeTZUnknown, "IANA"},
		"+02:00":                     {input.CodeTZOffset, "Etc/GMT-2"},
		"UTC+2":                      {input.CodeTZOffset, "Etc/GMT-2"},
		"GMT-0500":                   {input.CodeTZOffset, "Etc/GMT+5"},
		"+00:00":                     {input.CodeTZOffset, "use UTC"},
		"+05:30":                     {input.CodeTZOffset, "Asia/Kolkata"},
		"-13":                        {input.CodeTZOffset, "place"},
		"../../etc/passwd":           {input.CodeTZUnknown, "IANA"},
		"/etc/localtime":             {input.CodeTZUnknown, "IANA"},
		"Europe/Berlin\x00":          {input.CodeTZUnknown, "IANA"},
		"Europe/Berlin ":             {input.CodeTZUnknown, "did you mean Europe/Berlin?"},
		"Europe//Berlin":             {input.CodeTZUnknown, "IANA"},
		"Europe":                     {input.CodeTZUnknown, "IANA"},
		strings.Repeat("A", 100_000): {input.CodeTZUnknown, "IANA"},
	} {
		t.Run(fmt.Sprintf("%.40q", zone), func(t *testing.T) {
			t.Parallel()
			spec := schedule.Spec{Expression: "0 0 * * *", Timezone: zone}
			if diff := cmp.Diff([]string{"timezone " + want.code}, problemsOf(t, spec)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if _, err := schedule.Parse(spec); !strings.Contains(err.Error(), want.advice) {
				t.Errorf("message %q does not say %q", err, want.advice)
			}
		})
	}
}

func TestMessagesNameTextRuleAndRemedy(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"* * * *":    "expected 5 fields (unix) or 6 or 7 (quartz), found 4",
		"daily":      "expected 5 fields (unix) or 6 or 7 (quartz), found 1; did you mean @daily?",
		"Hourly":     "expected 5 fields (unix) or 6 or 7 (quartz), found 1; did you mean @hourly?",
		"60 * * * *": "minute 60 is not in 0-59",
		"*/100 * * * *": "step 100 exceeds the range 0-59 of the minute field, so it is never reached" +
			"; write only the start, 0",
		"14 16-23/24 * * *": "step 24 exceeds the range 0-23 of the hour field, so it is never reached; write only the start, 16",
		"5-1 * * * *":       "start 5 is after end 1 in the minute field; write it as two ranges: 5-59,0-1",
		"0 0 30 2 *": "February never has 30 days, so this never fires" +
			"; write L for the last day of the month (quartz), or 28; for a job that is only run by hand, leave the trigger out",
		"* 5W * * *": "\"5W\" in the hour field at column 3 is not understood" +
			"; L, W and # are only valid in the day fields of dialects quartz and aws",
		"@reboot": "unknown macro" +
			"; a scheduler has no reboot (allowed: @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually)",
	} {
		_, err := schedule.Parse(schedule.Spec{Expression: expr})
		if err == nil {
			t.Errorf("Parse(%q) accepts it", expr)
			continue
		}
		want = fmt.Sprintf("expression %q: %s", expr, want)
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", expr, diff)
		}
	}
}

func TestDialectsAreRecognised(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]schedule.Dialect{
		"*/5 * * * *":               schedule.DialectUnix,
		" */5  *\t* * * ":           schedule.DialectUnix,
		"@daily":                    schedule.DialectUnix,
		"0 0 2 * * ?":               schedule.DialectQuartz,
		"0 0 2 * * ? 2026-2030":     schedule.DialectQuartz,
		"rate(5 minutes)":           schedule.DialectInterval,
		"rate(1 hour)":              schedule.DialectInterval,
		"rate(1h30m)":               schedule.DialectInterval,
		"@every 2s":                 schedule.DialectInterval,
		"at(2026-05-01T10:00:00Z)":  schedule.DialectAt,
		"2026-05-01T10:00:00+02:00": schedule.DialectAt,
	} {
		s, err := schedule.Parse(schedule.Spec{Expression: expr})
		if err != nil {
			t.Errorf("Parse(%q): %v", expr, err)
			continue
		}
		if got := s.Spec(); got.Dialect != want || got.Timezone != "UTC" || got.Expression != expr {
			t.Errorf("Parse(%q).Spec() = %+v, want dialect %s and timezone UTC", expr, got, want)
		}
	}
}
