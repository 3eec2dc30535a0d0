package schedule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// The times are those of Quartz 2.3.2 for the same fields.
func TestEventBridgeRangesThatWrap(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"cron(0/30 20-2 ? * MON-FRI *)": "2026-11-30T00:00:00Z 2026-11-30T00:30:00Z 2026-11-30T01:00:00Z 2026-11-30T01:30:00Z " +
			"2026-11-30T02:00:00Z 2026-11-30T02:30:00Z 2026-11-30T20:00:00Z",
		"cron(0 17 ? * FRI-MON *)":  "2026-11-28T17:00:00Z 2026-11-29T17:00:00Z 2026-11-30T17:00:00Z 2026-12-04T17:00:00Z",
		"cron(0 7 ? * MON-SUN *)":   "2026-11-28T07:00:00Z 2026-11-29T07:00:00Z 2026-11-30T07:00:00Z 2026-12-01T07:00:00Z",
		"cron(0 7 ? * 7-2 *)":       "2026-11-28T07:00:00Z 2026-11-29T07:00:00Z 2026-11-30T07:00:00Z 2026-12-05T07:00:00Z",
		"cron(0 7 1 NOV-FEB ? *)":   "2026-12-01T07:00:00Z 2027-01-01T07:00:00Z 2027-02-01T07:00:00Z 2027-11-01T07:00:00Z",
		"cron(0 7 30-1 * ? *)":      "2026-11-30T07:00:00Z 2026-12-01T07:00:00Z 2026-12-30T07:00:00Z 2026-12-31T07:00:00Z",
		"cron(50-10/10 7 * * ? *)":  "2026-11-28T07:00:00Z 2026-11-28T07:10:00Z 2026-11-28T07:50:00Z 2026-11-29T07:00:00Z",
		"cron(0 22-2/2 1 1 ? 2027)": "2027-01-01T00:00:00Z 2027-01-01T02:00:00Z 2027-01-01T22:00:00Z",
	} {
		s := mustParse(t, schedule.Spec{Expression: expression, Dialect: schedule.DialectAWS})
		got := utc(timesBetween(s, instant(t, "2026-11-28T06:30:00Z"), farFuture, strings.Count(want, " ")+1))
		if diff := cmp.Diff(strings.Fields(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
		six := "0 " + strings.TrimSuffix(strings.TrimPrefix(expression, "cron("), ")")
		quartz := mustParse(t, schedule.Spec{Expression: six, Dialect: schedule.DialectQuartz})
		if diff := cmp.Diff(got, utc(timesBetween(quartz, instant(t, "2026-11-28T06:30:00Z"), farFuture, len(got)))); diff != "" {
			t.Errorf("%s as dialect quartz (-aws +quartz):\n%s", expression, diff)
		}
	}
}

func TestDailyIntervalOnWeekdaysThatWrap(t *testing.T) {
	t.Parallel()
	s := mustParse(t, schedule.Spec{Expression: "every 24 hours from 9:00 on FRI-MON"})
	want := []string{"2026-11-28T09:00:00Z", "2026-11-29T09:00:00Z", "2026-11-30T09:00:00Z", "2026-12-04T09:00:00Z"}
	if diff := cmp.Diff(want, utc(timesBetween(s, instant(t, "2026-11-28T06:30:00Z"), farFuture, 4))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEventBridgeTakesPluralUnitsAfterOne(t *testing.T) {
	t.Parallel()
	for plural, singular := range map[string]string{
		"rate(1 days)": "rate(1 day)", "rate(1 hours)": "rate(1 hour)", "rate(1 minutes)": "rate(1 minute)",
	} {
		from := instant(t, "2026-11-28T06:30:00Z")
		var fires [2][]string
		for i, expression := range []string{plural, singular} {
			s := mustParse(t, schedule.Spec{Expression: expression, Dialect: schedule.DialectAWS, Anchor: from})
			fires[i] = utc(timesBetween(s, from, farFuture, 3))
		}
		if diff := cmp.Diff(fires[1], fires[0]); diff != "" || len(fires[0]) != 3 {
			t.Errorf("%s fires at other times than %s (-want +got):\n%s", plural, singular, diff)
		}
	}
	_, err := schedule.Parse(schedule.Spec{Expression: "rate(5 minute)", Dialect: schedule.DialectAWS})
	if err == nil || !strings.Contains(err.Error(), "write rate(5 minutes)") {
		t.Errorf("rate(5 minute): %v, want the advice rate(5 minutes)", err)
	}
}

// A hint that is followed literally is accepted, and means the hinted schedule.
func TestHintsCanBeFollowed(t *testing.T) {
	t.Parallel()
	for refused, followed := range map[[2]string]string{
		{"unix", "0 0 * * MON-SUN"}:          "0 0 * * MON-SAT,SUN",
		{"unix", "0 0 * * fri-mon"}:          "0 0 * * FRI-SAT,SUN-MON",
		{"unix", "0 0 * * sat-sun"}:          "0 0 * * SAT,SUN",
		{"unix", "0 0 * * 5-1"}:              "0 0 * * 5-6,0-1",
		{"unix", "0 0 * * 6-0"}:              "0 0 * * 6,0",
		{"unix", "0 0 1 NOV-FEB *"}:          "0 0 1 NOV-DEC,JAN-FEB *",
		{"unix", "0 0 1 11-2 *"}:             "0 0 1 11-12,1-2 *",
		{"unix", "0 22-2/2 * * *"}:           "0 22,0,2 * * *",
		{"unix", "50-5/10 * * * *"}:          "50,0 * * * *",
		{"unix", "0 0 * * FRI-MON/2"}:        "0 0 * * 5,0",
		{"unix", "14 16-23/24 * * *"}:        "14 16 * * *",
		{"unix", "5/60 * * * *"}:             "5 * * * *",
		{"unix", "*/60 * * * *"}:             "0 * * * *",
		{"unix", "0 0 */32 * *"}:             "0 0 1 * *",
		{"unix", "0 12 * * ?"}:               "0 12 * * *",
		{"unix", "0 12 ? * *"}:               "0 12 * * *",
		{"unix", "@every 5m"}:                "@every 5m",
		{"unix", "0 0 1 * H(5-2)"}:           "0 0 1 * H(0-7)",
		{"quartz", "0 0 0 1 1 ? 2030-2028"}:  "0 0 0 1 1 ? 2028-2030",
		{"quartz", "0 ? 0 * * ?"}:            "0 * 0 * * ?",
		{"quartz", "0 0 7-20/24 * * ?"}:      "0 0 7 * * ?",
		{"quartz", "0 0 /24 * * ?"}:          "0 0 0 * * ?",
		{"aws", "cron(0 0 1 1 ? 2030-2028)"}: "cron(0 0 1 1 ? 2028-2030)",
	} {
		dialect, expression := schedule.Dialect(refused[0]), refused[1]
		_, err := schedule.Parse(schedule.Spec{Expression: expression, Dialect: dialect, Identity: "a/b/c"})
		if err == nil {
			t.Errorf("%s is accepted, want a hint", expression)
			continue
		}
		hint := hinted(expression, followed)
		if !strings.HasSuffix(err.Error(), hint) {
			t.Errorf("%s: %v, want it to end with %q", expression, err, hint)
		}
		if expression == followed {
			dialect = "" // the hint
		}
		mustParse(t, schedule.Spec{Expression: followed, Dialect: dialect, Identity: "a/b/c"})
	}
}

// People write a date that never comes for a job that they only run by hand.
func TestDatesThatNeverComeLeadToAJobWithoutATrigger(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{"0 0 31 2 *", "cron(0 21 31 2 ? *)", "0 0 0 1 1 ? 2999", "0 0 31 4 *"} {
		_, err := schedule.Parse(schedule.Spec{Expression: expression})
		if want := "for a job that is only run by hand, leave the trigger out"; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want it to end with %q", expression, err, want)
		}
	}
}

// hinted is the word in which a followed expression differs from the refused one.
func hinted(refused, followed string) string {
	if refused == followed {
		return "omit dialect, or write interval"
	}
	was, is := strings.Fields(refused), strings.Fields(followed)
	for i, word := range is {
		if i < len(was) && was[i] != word {
			if strings.HasPrefix(refused, "cron(") {
				word = strings.TrimSuffix(word, ")")
			}
			return " " + word
		}
	}
	panic(fmt.Sprintf("%s is %s", refused, followed))
}
