package provider_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// outputs returns the values of expressions, planned without a node.
func (f *fixture) outputs(t *testing.T, expressions ...string) string {
	t.Helper()
	var b strings.Builder
	for i, e := range expressions {
		b.WriteString("output \"o" + string(rune('a'+i)) + "\" {\n  value = " + e + "\n}\n")
	}
	return f.directory(t, providerBlock(""), b.String()).must(t, "plan")
}

func TestFunctionsReturnFiresAndDescriptions(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		mustSay(t, f.outputs(t,
			`provider::carillon::next_fires("0 30 2 * * ?", "Europe/Berlin", "2030-03-30T00:00:00+01:00", 2)`,
			`provider::carillon::next_fires("rate(90m)", "UTC", "2030-01-01T00:00:00Z", 2)`,
			`provider::carillon::next_fires("at(2029-01-01T00:00:00Z)", "UTC", "2030-01-01T00:00:00Z", 2)`,
			`provider::carillon::describe("0 30 2 ? * MON-FRI", "Europe/Berlin")`,
			`provider::carillon::describe("every 3 months", "UTC")`,
			`provider::carillon::from_eventbridge("cron(30 2 ? * MON-FRI *)", "Europe/Berlin")`,
			`provider::carillon::from_eventbridge("rate(5 minutes)", null)`,
			`provider::carillon::from_eventbridge("rate(1 days)", null)`,
			`provider::carillon::next_fires("cron(0 17 ? * FRI-MON *)", "UTC", "2026-11-30T00:00:00Z", 2)`,
		),
			`+ oa = [ + "2030-03-30T02:30:00+01:00", + "2030-04-01T02:30:00+02:00", ]`,
			`+ ob = [ + "2030-01-01T01:30:00Z", + "2030-01-01T03:00:00Z", ]`,
			`+ oc = []`,
			`+ od = "at 02:30 on Monday to Friday; Europe/Berlin"`,
			`+ oe = "every 3 months on the calendar; UTC"`,
			`+ of = { + dialect = "aws" + expression = "cron(30 2 ? * MON-FRI *)" + timezone = "Europe/Berlin" }`,
			`+ og = { + dialect = "aws" + expression = "rate(5 minutes)" + timezone = "UTC" }`,
			`+ oh = { + dialect = "aws" + expression = "rate(1 days)" + timezone = "UTC" }`,
			`+ oi = [ + "2026-11-30T17:00:00Z", + "2026-12-04T17:00:00Z", ]`,
		)
	})
}

func TestFunctionsRefuseInvalidArguments(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	for call, want := range map[string]string{
		`next_fires("0 30 2 * *", "Europe/Berlin", "yesterday", 2)`:      `time "yesterday" is not an instant`,
		`next_fires("0 30 2 * *", "UTC", "2030-01-01T00:00:00Z", 0)`:     "count 0 is not between 1 and 100",
		`next_fires("0 30 2 * *", "", "2030-01-01T00:00:00Z", 1)`:        `timezone is empty; write a zone such as "Europe/Berlin", or "UTC"`,
		`describe("0 30 2", "UTC")`:                                      "0 30 2",
		`describe("0 30 2 * * ?", "Europe/Berlim")`:                      "Europe/Berlim",
		`from_eventbridge("0 30 2 * * ?", "UTC")`:                        "not cron(...), rate(...) or at(...)",
		`from_eventbridge("cron(30 2 * * MON-FRI *)", "Europe/Berlin")`:  "?",
		`next_fires("H 2 * * *", "UTC", "2030-01-01T00:00:00Z", 1)`:      "H",
		`next_fires("delay(30s)", "UTC", "2030-01-01T00:00:00", 1)`:      "2030-01-01T00:00:00",
		`next_fires("@daily", "UTC", "2030-01-01T00:00:00Z", "several")`: "a number is required",
	} {
		d := f.directory(t, providerBlock(""), "output \"o\" {\n  value = provider::carillon::"+call+"\n}\n")
		d.mustFail(t, []string{"plan"}, want)
	}
}
