package provider_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// A story: one apply deletes a calendar with its last use, and a job, whose history stays. Then the
// app cannot be deleted, because it has a job of another configuration.
func TestStoryDeletionKeepsHistoryAndOtherDeclarations(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		const dir = "testdata/deletion/"
		main := contents(t, dir+"main.tf")
		d := f.directory(t, main, providerBlock(""))
		d.must(t, "apply", "-auto-approve")
		if err := f.fire(t.Context()); err != nil {
			t.Fatal(err)
		}

		resources := strings.SplitAfter(main, "\n}\n")
		kept := slices.DeleteFunc(resources, func(r string) bool {
			return strings.Contains(r, `"carillon_calendar"`) || strings.Contains(r, `"nightly"`)
		})
		last := strings.Join(kept, "")
		last = strings.Replace(last, "    calendar   = carillon_calendar.weekends.name\n", "", 1)
		d.rewrite(t, last)
		plan := d.must(t, "plan", "-out=saved.plan")
		tonight := regexp.MustCompile(`\d{4}-\d\d-\d\dT04:30:00Z`)
		golden(t, f.client.file(dir+"removed.txt"), tonight.ReplaceAllString(planOf(t, plan)+warningsOf(t, plan), "yyyy-mm-ddT04:30:00Z"))
		mustSay(t, d.must(t, "apply", "saved.plan"), "1 changed, 2 destroyed")
		mustChangeNothing(t, d)

		d.rewrite(t, last+"data \"carillon_runs\" \"all\" {\n app = \"crm\"\n}\n"+
			"output \"ran\" {\n value = [for run in data.carillon_runs.all.runs : \"${run.job} ${run.trigger} ${run.state}\"]\n}\n")
		mustSay(t, d.must(t, "apply", "-auto-approve"), `ran = [ "nightly nightly claimed", ]`)

		theirs := dispatcher.Job{App: "crm", Name: "theirs",
			JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &target.Webhook{URL: "https://example.com/"}}}}
		if _, err := f.outside.PutJob(t.Context(), theirs, client.Condition{}); err != nil {
			t.Fatal(err)
		}
		request := regexp.MustCompile(`Request id: \S+`)
		golden(t, dir+"refused.txt", request.ReplaceAllString(errorsOf(d.mustFail(t, []string{"destroy", "-auto-approve"})), "Request id: ID"))
		if err := f.outside.DeleteJob(t.Context(), "crm", "theirs", client.Condition{Existing: true}); err != nil {
			t.Fatal(err)
		}
		mustSay(t, d.must(t, "destroy", "-auto-approve"), "1 destroyed")
	})
}
