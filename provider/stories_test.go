package provider_test

import (
	"regexp"
	"strings"
	"testing"
)

// A story: what an operator does not allow the app is told at plan, also if the same plan creates the app. What is
// allowed is applied, and a second plan is empty.
func TestLambdaOutsideOfTheBoundsIsToldAtPlan(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const dir = "testdata/lambda/"
	main := contents(t, dir+"main.tf")
	d := f.directory(t, main, providerBlock(""))
	golden(t, dir+"misspelt.txt", errorsOf(d.mustFail(t, []string{"plan"})))
	main = strings.Replace(main, `"event"`, `"Event"`, 1)
	d.rewrite(t, main)
	golden(t, dir+"refused.txt", errorsOf(d.mustFail(t, []string{"plan"})))
	d.rewrite(t, strings.NewReplacer("payroll-close", "finance-close", "role/admin", "role/finance-close").Replace(main))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
}

// A story: a job for one instant. One in the past, and a local time without a zone, are refused at plan.
func TestInstantOfAOneShotJobIsCheckedAtPlan(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const dir = "testdata/one_shot/"
	main := contents(t, dir+"main.tf")
	d := f.directory(t, main, providerBlock(""))
	now := regexp.MustCompile(`it\s+is\s+20[-0-9TZ:]+`)
	golden(t, dir+"refused.txt", now.ReplaceAllString(errorsOf(d.mustFail(t, []string{"plan"})), "it is NOW"))
	main = strings.Replace(main, "2020-05-01T10:00:00Z", "2098-05-01T10:00:00Z", 1)
	d.rewrite(t, strings.Replace(main, `"at(2099-05-01T10:00:00)"`, "\"at(2099-05-01T10:00:00)\"\n    timezone   = \"Europe/Berlin\"", 1))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
}

// errorsOf is what terraform printed, without the plan before its first error.
func errorsOf(output string) string {
	if at := strings.Index(output, "\nError: "); at >= 0 {
		return output[at:]
	}
	return output
}
