package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/need"
)

// estate is a directory with the files of a folder and the block of the provider.
func (f *fixture) estate(t *testing.T, folder, arguments string) directory {
	t.Helper()
	d := f.directory(t, providerBlock(arguments))
	if err := os.CopyFS(d.path, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	return d
}

// A story: 40 jobs of a YAML file. The plan after an apply is empty, also as refresh-only; one job is applied by
// -target, one gets another key and name with its history, and destroy leaves nothing.
func TestStoryJobsOfAYAMLFile(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		d := f.estate(t, "testdata/yaml", `default_labels = { env = "test", owner = "crm" }`)
		mustSay(t, d.must(t, "apply", "-auto-approve"), "41 added")
		mustChangeNothing(t, d)
		if output, code := d.exitCode(t, "plan", "-refresh-only", "-detailed-exitcode"); code != 0 {
			t.Errorf("a refresh finds changes:\n%s", output)
		}
		job, err := f.outside.Job(t.Context(), "crm", "cleanup-3")
		want := input.Labels{"team": "platform", "env": "production", "owner": "crm"}
		if err != nil || job.Retry.MaxAttempts != 3 || !job.Labels.Have(want) || job.Triggers["nightly"].Timezone != "Europe/Berlin" {
			t.Errorf("the job is %+v, %v, want the defaults of its app and labels %v", job, err, want)
		}

		jobs := filepath.Join(d.path, "jobs.yaml")
		text := contents(t, jobs)
		write(t, jobs, strings.NewReplacer("rate(10 minutes)", "rate(5 minutes)", "90s", "1m30s").Replace(text))
		mustSay(t, d.must(t, "apply", "-auto-approve", `-target=carillon_job.each["mails-1"]`), "0 added, 1 changed, 0 destroyed")
		mustSay(t, d.must(t, "apply", "-auto-approve"), "0 added, 7 changed, 0 destroyed")

		write(t, jobs, strings.Replace(contents(t, jobs), "manual:", "handmade:", 1))
		moved := ""
		for i := range 8 {
			moved += fmt.Sprintf("moved {\n  from = carillon_job.each[\"manual-%d\"]\n  to   = carillon_job.each[\"handmade-%[1]d\"]\n}\n", i)
		}
		d.rewrite(t, providerBlock(`default_labels = { env = "test", owner = "crm" }`)+moved)
		mustSay(t, d.must(t, "apply", "-auto-approve"), "Warning: Rename: crm/manual-", "0 added, 8 changed, 0 destroyed")
		mustChangeNothing(t, d)
		mustSay(t, d.must(t, "destroy", "-auto-approve"), "41 destroyed")
	})
}

// A story: 1,000 jobs of modules in three levels. The second plan is empty, and a change of one team shows its jobs.
func TestStoryThousandJobsOfModulesInThreeLevels(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	d := newFixture(t).estate(t, "testdata/estate", "")
	d.must(t, "get")
	mustSay(t, d.must(t, "apply", "-auto-approve"), "1001 added, 0 changed, 0 destroyed")
	write(t, filepath.Join(d.path, "terraform.tfvars"), "hours = {}")
	mustChangeNothing(t, d)
	write(t, filepath.Join(d.path, "terraform.tfvars"), "hours = { d3-t7 = 4 }")
	mustSay(t, d.must(t, "apply", "-auto-approve"), `module.division["d3"].module.team["d3-t7"].module.job["d3-t7-j9"].carillon_job.j`,
		"0 added, 10 changed, 0 destroyed")
}

// withNothing is a module with a variable for each argument, each with the type of what a caller may leave out.
const withNothing = `
variable "job" {
  type = object({
    description      = optional(string)
    payload          = optional(string)
    labels           = optional(map(string))
    node_labels      = optional(map(string))
    acknowledge      = optional(list(string))
    max_concurrency  = optional(number)
    carry_state      = optional(bool)
    runbook_url      = optional(string)
    headers          = optional(map(string))
    success_codes    = optional(list(string))
    timeout          = optional(string)
    triggers         = optional(map(object({ expression = string, jitter = optional(string) })), {})
    on_failure       = optional(object({ jobs = optional(list(string)), webhook = optional(object({ url = string })) }))
    retry            = optional(object({ max_attempts = optional(number), base = optional(string), delays = optional(list(string)) }))
  })
  default = VALUE
}

resource "carillon_app" "crm" {
  name             = "crm"
  default_timezone = "UTC"
}

resource "carillon_job" "j" {
  app             = carillon_app.crm.name
  name            = "nightly"
  description     = var.job.description
  payload         = var.job.payload
  labels          = var.job.labels
  node_labels     = var.job.node_labels
  acknowledge     = var.job.acknowledge
  max_concurrency = var.job.max_concurrency
  carry_state     = var.job.carry_state
  runbook_url     = var.job.runbook_url
  target {
    webhook {
      url           = "https://example.com/hook"
      headers       = var.job.headers
      success_codes = var.job.success_codes
      timeout       = var.job.timeout
    }
  }
  dynamic "trigger" {
    for_each = var.job.triggers
    content {
      name       = trigger.key
      expression = trigger.value.expression
      jitter     = trigger.value.jitter
    }
  }
  dynamic "on_failure" {
    for_each = var.job.on_failure[*]
    content {
      jobs = on_failure.value.jobs
      dynamic "webhook" {
        for_each = on_failure.value.webhook[*]
        content {
          url = webhook.value.url
        }
      }
    }
  }
  dynamic "retry" {
    for_each = var.job.retry[*]
    content {
      max_attempts = retry.value.max_attempts
      base         = retry.value.base
      delays       = retry.value.delays
    }
  }
}
`

// A story: a module passes on what its caller leaves out, or gives as empty. Each apply has an empty plan after it.
func TestStoryModuleThatPassesNothingOn(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		d := f.directory(t, "", providerBlock(""))
		for _, value := range []string{
			"{}",
			`{ description = "", labels = {}, node_labels = {}, acknowledge = [], headers = {}, triggers = {}, retry = {} }`,
			`{ triggers = { t = { expression = "@daily" } }, retry = { delays = [] } }`,
			`{ on_failure = { webhook = { url = "https://example.com/failed" } }, triggers = { t = { expression = "@daily" } } }`,
			`{ on_failure = { jobs = [], webhook = { url = "https://example.com/failed" } } }`,
			"{}",
		} {
			d.rewrite(t, strings.Replace(withNothing, "VALUE", value, 1))
			d.must(t, "apply", "-auto-approve")
			mustChangeNothing(t, d)
		}
	})
}

// A story: count goes from one to none and back. The job is deleted, and then has its history again.
func TestStoryJobComesAndGoesByCount(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		d := f.directory(t, "variable \"n\" {\n  type = number\n}\n"+job("count = var.n\n"+hook+daily), providerBlock(""))
		for i, says := range []string{"2 added", "0 added, 0 changed, 1 destroyed", "1 added"} {
			count := fmt.Sprintf("-var=n=%d", (i+1)%2)
			mustSay(t, d.must(t, "apply", "-auto-approve", count), says)
			if output, err := d.terraform(t, "plan", "-detailed-exitcode", count); err != nil {
				t.Errorf("the plan is not empty: %v\n%s", err, output)
			}
		}
		if got := f.jobOf(t, "nightly").Revision; got < 2 {
			t.Errorf("the job begins again at revision %d", got)
		}
	})
}

// A story: two aliases of the provider manage two installations with one configuration.
func TestStoryAliasesManageTwoInstallations(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		other := newFixture(t)
		config := providerBlock("") + fmt.Sprintf("provider \"carillon\" {\n  alias = \"other\"\n  endpoint = %q\n  token = %q\n}\n",
			other.endpoint, other.token)
		mine := job(hook + daily)
		theirs := strings.NewReplacer(`"a"`, `"b"`, `"j"`, `"k"`, "carillon_app.a", "carillon_app.b", "{\n name", "{\n name",
			"app = ", "provider = carillon.other\n app = ", "  name             =", "  provider = carillon.other\n  name =",
			"example.com", "other.example.com").Replace(mine)
		d := f.directory(t, config+mine+theirs)
		mustSay(t, d.must(t, "apply", "-auto-approve"), "4 added")
		mustChangeNothing(t, d)
		for f, want := range map[*fixture]string{f: "https://example.com/hook", other: "https://other.example.com/hook"} {
			if got := f.jobOf(t, "nightly").Target.Webhook.URL; got != want {
				t.Errorf("the job calls %s, want %s", got, want)
			}
		}
		mustSay(t, d.must(t, "destroy", "-auto-approve"), "4 destroyed")
	})
}

// A story: two states declare jobs of one app and apply at the same time. Of a job in both, one state gets the block
// that imports it, and after that the plans of both are empty.
func TestStoryTwoStatesShareAnApp(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		f.directory(t, app, providerBlock("")).must(t, "apply", "-auto-approve")
		var states [2]directory
		outputs := make(chan string, len(states))
		for i := range states {
			own := strings.TrimPrefix(strings.ReplaceAll(jobNamed(fmt.Sprint("own-", i), hook), "carillon_app.a.name", `"crm"`), app)
			both := strings.NewReplacer(`"j"`, `"both"`, fmt.Sprint("own-", i), "both").Replace(own)
			states[i] = f.directory(t, own+both, providerBlock(""))
			go func() {
				output, _ := states[i].terraform(t, "apply", "-auto-approve")
				outputs <- output
			}()
		}
		all := <-outputs + <-outputs
		if n := strings.Count(all, "Error: The job already exists"); n != 1 {
			t.Fatalf("%d states are refused, want 1:\n%s", n, all)
		}
		mustSay(t, all, `id = "crm/both"`)
		for _, d := range states {
			if state := d.must(t, "state", "list"); !strings.Contains(state, "carillon_job.both") {
				write(t, filepath.Join(d.path, "import.tf"), "import {\n  to = carillon_job.both\n  id = \"crm/both\"\n}\n")
				mustSay(t, d.must(t, "apply", "-auto-approve"), "1 imported, 0 added, 0 changed, 0 destroyed")
			}
			mustChangeNothing(t, d)
		}
	})
}

// A story: a job is replaced. With create_before_destroy it cannot be, and the message says the way that works.
func TestStoryReplacedJobIsDestroyedFirst(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		d := f.directory(t, job(hook+daily+createFirst), providerBlock(""))
		d.must(t, "apply", "-auto-approve")
		replace := []string{"apply", "-auto-approve", "-replace=carillon_job.j"}
		d.mustFail(t, replace, "The job already exists", "take create_before_destroy out of its lifecycle")
		mustChangeNothing(t, d)
		d.rewrite(t, job(hook+daily))
		mustSay(t, d.must(t, replace...), "1 added, 0 changed, 1 destroyed")
		mustChangeNothing(t, d)
	})
}
