package provider_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

// story runs a test with terraform and with OpenTofu, each with its own API. The output of both is
// compared with the same files.
func story(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	eachClient(t, func(t *testing.T, client clientProgram) {
		f := newFixture(t)
		f.client = client
		test(t, f)
	})
}

// clientProgram is terraform or tofu, with its path.
type clientProgram struct{ name, path string }

// file returns the name of a golden file that differs for OpenTofu, which shows other unchanged attributes.
func (c clientProgram) file(name string) string {
	if c.name == "tofu" {
		return strings.TrimSuffix(name, ".txt") + "_tofu.txt"
	}
	return name
}

// eachClient runs a test with terraform and with OpenTofu.
func eachClient(t *testing.T, test func(t *testing.T, client clientProgram)) {
	t.Helper()
	for _, name := range []string{"terraform", "tofu"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, clientProgram{name, need.Client(t, name)})
		})
	}
}

// golden compares Terraform's output with a file, or writes the file with -update.
func golden(t *testing.T, file, printed string) {
	t.Helper()
	overrides := regexp.MustCompile(`(?s)\n?Warning: Provider development overrides.*?applying\s+changes\s+may.*?releases\.\n`)
	printed = strings.TrimSpace(asTerraform(overrides.ReplaceAllString(printed, ""))) + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(printed), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(contents(t, file), printed); diff != "" {
		t.Errorf("terraform prints something else than %s; write it with -update (-want +got):\n%s", file, diff)
	}
}

// planOf returns the actions of a plan with their count.
func planOf(t *testing.T, output string) string {
	t.Helper()
	from, count := strings.Index(output, "\n  # "), strings.Index(output, "\nPlan: ")
	if from < 0 || count < from {
		t.Fatalf("no plan in:\n%s", output)
	}
	_, after, _ := strings.Cut(output[count+1:], "\n")
	return output[from : len(output)-len(after)]
}

// asTerraform replaces the words of OpenTofu by those of Terraform.
func asTerraform(printed string) string {
	return strings.NewReplacer("OpenTofu", "Terraform", " (current -> planned)", "").Replace(printed)
}

// A story: violations of the operator's bounds are reported at plan, even if the same plan creates
// the app. A permitted function is applied, and a second plan is empty.
func TestStoryLambdaOutsideOfTheBoundsIsReportedAtPlan(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
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
	})
}

// A story: a one-shot job. A past time, and a local time without a zone, are refused at plan. After
// its fire the job is deleted by itself, and a plan says why it is missing.
func TestStoryInstantOfAOneShotJobIsCheckedAtPlan(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		const dir = "testdata/one_shot/"
		main := contents(t, dir+"main.tf")
		d := f.directory(t, main, providerBlock(""))
		now := regexp.MustCompile(`it\s+is\s+20[-0-9TZ:]+`)
		golden(t, dir+"refused.txt", now.ReplaceAllString(errorsOf(d.mustFail(t, []string{"plan"})), "it is NOW"))
		main = strings.Replace(main, "2020-05-01T10:00:00Z", "2098-05-01T10:00:00Z", 1)
		d.rewrite(t, strings.Replace(main, `"at(2099-05-01T10:00:00)"`, "\"at(2099-05-01T10:00:00)\"\n    timezone   = \"Europe/Berlin\"", 1))
		d.must(t, "apply", "-auto-approve")
		mustChangeNothing(t, d)
		if err := f.outside.DeleteJob(t.Context(), "crm", "migration", client.Condition{Existing: true}); err != nil {
			t.Fatal(err)
		}
		plan := d.must(t, "plan")
		mustSay(t, plan, "carillon_job.migration will be created")
		golden(t, dir+"deleted.txt", warningsOf(t, plan))
	})
}

// errorsOf returns Terraform's output from the first error on.
func errorsOf(output string) string {
	if at := strings.Index(output, "\nError: "); at >= 0 {
		return output[at:]
	}
	return output
}
