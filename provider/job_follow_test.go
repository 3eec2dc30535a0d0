package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

const (
	followDir = "testdata/follow/"
	oldToken  = "TF_VAR_token=whsec_CANARY1aCANARY1bCANARY1cCANARY1d"
	newToken  = "TF_VAR_token=whsec_CANARY2aCANARY2bCANARY2cCANARY2d"
)

// A story: one apply creates jobs that follow one another, which are read back unchanged and
// imported. Changes outside of Terraform are drift.
func TestFollowStory(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	main := contents(t, followDir+"main.tf")
	d := f.directory(t, main, providerBlock("")).with(oldToken)
	printed := d.must(t, "plan")
	golden(t, followDir+"plan.txt", printed)
	printed += d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	job, err := f.outside.Job(t.Context(), "shop", "load")
	if err != nil {
		t.Fatal(err)
	}
	want := dispatcher.Follow{Jobs: []string{"report", "wipe"}, Payload: dispatcher.FollowResult}
	if diff := cmp.Diff(&want, job.OnSuccess); diff != "" {
		t.Errorf("on_success (-want +got):\n%s", diff)
	}
	if job.OnMisfire == nil || job.OnMisfire.Lambda.Function != "missed" || job.OnMisfire.Payload != dispatcher.FollowOwn {
		t.Errorf("on_misfire = %+v", job.OnMisfire)
	}

	d.must(t, "state", "rm", "carillon_job.load")
	d.must(t, "import", "carillon_job.load", "shop/load")
	d.must(t, "apply", "-auto-approve") // sends the token, of which an import knows no version
	mustChangeNothing(t, d)

	if job, err = f.outside.Job(t.Context(), "shop", "load"); err != nil {
		t.Fatal(err)
	}
	job.OnSuccess.Jobs, job.OnFailure = []string{"report"}, nil
	job.OnMisfire.Lambda.Function = "missed:live"
	if _, err := f.outside.PutJob(t.Context(), job, client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	golden(t, followDir+"drift.txt", d.must(t, "plan"))
	printed += d.must(t, "apply", "-auto-approve") + d.must(t, "state", "pull")
	mustChangeNothing(t, d)
	mustNotHold(t, "the output of terraform", printed)

	d.rewrite(t, strings.Replace(main, "on_misfire {", "on_misfire {\n    jobs = []", 1))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	without, _, _ := strings.Cut(main, "  on_success {")
	_, rest, _ := strings.Cut(main, "resource \"carillon_job\" \"report\"")
	d.rewrite(t, without+"}\nresource \"carillon_job\" \"report\""+rest)
	mustSay(t, d.must(t, "apply", "-auto-approve"), "0 added, 1 changed")
	if job, err = f.outside.Job(t.Context(), "shop", "load"); err != nil || job.FollowMask() != 0 {
		t.Errorf("mask of the job without blocks = %d, %v", job.FollowMask(), err)
	}
	mustSay(t, d.must(t, "destroy", "-auto-approve"), "4 destroyed")
}

// The signing secret of a delivery is sent by version, like that of the job's target, and not to another server.
func TestFollowSecretsAreSentByVersion(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	main := contents(t, followDir+"main.tf")
	d := f.directory(t, main, providerBlock(""))
	d.with(oldToken).must(t, "apply", "-auto-approve")
	d = d.with(newToken)
	mustChangeNothing(t, d)

	elsewhere := strings.Replace(main, "oncall.example.com", "evil.example.com", 1)
	d.rewrite(t, elsewhere)
	golden(t, followDir+"elsewhere.txt", errorsOf(d.mustFail(t, []string{"plan"})))
	d.rewrite(t, strings.Replace(elsewhere, "value_version = 1", "value_version = 2", 1))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
}

// A story: all problems of followers are reported at once, at their lines.
func TestWrongFollowersAreReportedAtTheirLines(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	needTerraform(t)
	d := (&fixture{}).directory(t, contents(t, followDir+"wrong.tf"), providerBlock(""))
	golden(t, followDir+"wrong.txt", d.mustFail(t, []string{"validate"}))
	d.rewrite(t, strings.Replace(contents(t, followDir+"main.tf"), "on_success", "on_succes", 1))
	d.mustFail(t, []string{"validate"}, `Did you mean "on_success"?`)
}

// jobOfShop returns a job of app shop; followed is one with a follower that runs after success.
func jobOfShop(name, attributes string) string {
	return fmt.Sprintf("resource \"carillon_job\" %q {\n  app  = \"shop\"\n  name = %[1]q\n%s%s}\n", name, hook, attributes)
}

func followed(name, by string) string {
	return jobOfShop(name, "  on_success {\n    jobs = ["+by+"]\n  }\n")
}

// The plan warns of missing jobs, but not of jobs that the same apply creates.
func TestMissingFollowersAreReportedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	main := contents(t, followDir+"main.tf")
	d := f.directory(t, strings.ReplaceAll(main, "carillon_job.wipe.name", `"wpie"`), providerBlock("")).with(oldToken)
	golden(t, followDir+"missing.txt", warningsOf(t, d.must(t, "plan")))
	d.rewrite(t, main)
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, strings.ReplaceAll(main, "carillon_job.wipe.name", `"wipe"`)) // it exists
	mustChangeNothing(t, d)
	d.rewrite(t, strings.ReplaceAll(main, "carillon_job.wipe.name", `"wpie"`))
	mustSay(t, d.must(t, "plan"), "did you mean wipe?")
}

// A story: jobs of one for_each name one another. Only the first plan may warn, of jobs that it plans later.
func TestJobsOfOneForEachFollowOneAnother(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := func(last string) string {
		return `
variable "estate" {
  type    = map(list(string))
  default = { extract = ["load"], load = ["report"], report = [` + last + `] }
}
resource "carillon_app" "shop" {
  name = "shop"
}
resource "carillon_job" "j" {
  for_each = var.estate
  app      = carillon_app.shop.name
  name     = each.key
` + hook + `
  dynamic "on_success" {
    for_each = length(each.value) > 0 ? [1] : []
    content {
      jobs = each.value
    }
  }
}
`
	}
	d := f.directory(t, config(""), providerBlock(""))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "4 added")
	mustChangeNothing(t, d)
	if printed := d.must(t, "plan"); strings.Contains(printed, "follow_unknown") {
		t.Errorf("a plan of jobs that exist warns:\n%s", printed)
	}
	d.rewrite(t, config(`"extract"`))
	d.mustFail(t, []string{"plan"}, "in a circle")
	d.rewrite(t, strings.Replace(config(""), "report = []", "reports = []", 1))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "1 added, 0 changed, 1 destroyed")
	mustSay(t, d.must(t, "plan"), "follow_unknown", "did you mean reports?", "No changes.")
	mustSay(t, d.must(t, "destroy", "-auto-approve"), "4 destroyed")
}

// The plan reports jobs that follow one another in a circle: as an error if it has all of them, else as a warning.
func TestCyclesOfFollowersAreReportedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	if _, err := f.outside.PutApp(t.Context(), access.App{Name: "shop",
		AppSpec: access.AppSpec{Enabled: true}}, client.Condition{Absent: true}); err != nil {
		t.Fatal(err)
	}
	chain := followed("a", "carillon_job.b.name") + followed("b", "carillon_job.c.name")
	d := f.directory(t, chain+jobOfShop("c", ""), providerBlock(""))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, chain+followed("c", `"a"`))
	golden(t, followDir+"cycle.txt", errorsOf(d.mustFail(t, []string{"plan"})))

	alone := f.directory(t, "import {\n  to = carillon_job.c\n  id = \"shop/c\"\n}\n"+followed("c", `"a"`), providerBlock(""))
	golden(t, followDir+"cycle_warning.txt", warningsOf(t, alone.must(t, "plan")))
}

// A job names an alert, which may watch the job: a plan warns only of an alert that neither exists nor is planned.
func TestJobNamesAnAlert(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	alert := func(name string) string {
		return "resource \"carillon_alert\" \"night\" {\n  app = carillon_app.a.name\n" +
			"  name = \"" + name + "\"\n  jobs = [carillon_job.j.name]\n" +
			"  missed = true\n  destination {\n    webhook {\n      url = \"https://pager.example.com\"\n    }\n  }\n}\n"
	}
	naming := job(hook + daily + "on_failure {\n  alert = \"night\"\n}\n")
	d := f.directory(t, naming+alert("nights"), providerBlock(""))
	d.must(t, "apply", "-auto-approve")
	mustSay(t, d.must(t, "plan"), `on_failure.alert: app "crm" has no alert "night" yet`, "did you mean nights?", "No changes.")
	d.rewrite(t, naming+alert("night"))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "1 added, 0 changed, 1 destroyed")
	mustChangeNothing(t, d)
	if printed := d.must(t, "plan"); strings.Contains(printed, "follow_unknown") {
		t.Errorf("a plan of an alert that exists warns:\n%s", printed)
	}
	d.must(t, "state", "rm", "carillon_job.j")
	d.must(t, "import", "carillon_job.j", "crm/nightly")
	mustChangeNothing(t, d)
	stored, err := f.readJob(t.Context())
	if err != nil || stored.OnFailure == nil || stored.OnFailure.Alert != "night" {
		t.Errorf("on_failure = %+v, %v", stored.OnFailure, err)
	}
	d.rewrite(t, naming)
	mustSay(t, d.must(t, "apply", "-auto-approve"), "0 added, 0 changed, 1 destroyed")
	d.rewrite(t, job(hook+daily))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "0 added, 1 changed, 0 destroyed")
	mustChangeNothing(t, d)
}

// A story: one apply destroys a job and takes its name out of others. Terraform destroys it first.
func TestFollowerGoesWithItsNameInOneApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	main := contents(t, followDir+"main.tf")
	d := f.directory(t, main, providerBlock("")).with(oldToken)
	d.must(t, "apply", "-auto-approve")
	unnamed := strings.NewReplacer(", carillon_job.wipe.name", "", "    jobs = [carillon_job.wipe.name]\n    webhook", "    webhook",
		"  on_success {\n    jobs = [carillon_job.wipe.name]\n  }\n", "").Replace(main)
	without, _, _ := strings.Cut(unnamed, "resource \"carillon_job\" \"wipe\"")
	d.rewrite(t, without)
	mustSay(t, d.must(t, "apply", "-auto-approve"), "0 added, 2 changed, 1 destroyed")
	mustChangeNothing(t, d)
}
