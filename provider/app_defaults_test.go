package provider_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// withDefaults returns an app with these attributes, and a job without any attribute that an app can provide.
func withDefaults(attributes string) string {
	return "resource \"carillon_app\" \"a\" {\n name = \"crm\"\n" + attributes + "}\n" + `
resource "carillon_job" "j" {
  app  = carillon_app.a.name
  name = "nightly"
  target {
    webhook {
      url     = "https://example.com/hook"
      headers = { X-Own = "o" }
    }
  }
  trigger {
    name       = "t"
    expression = "0 30 4 * * ?"
  }
}
`
}

const someDefaults = `
  default_timezone           = "Europe/Berlin"
  default_headers            = { X-Team = "crm", x-own = "of the app" }
  default_misfire_policy     = "skip"
  default_concurrency_policy = "forbid"
  default_retry {
    max_attempts = 5
    delays       = ["1s", "1m"]
  }
`

// A job gets its app's defaults, in the plan and in the API. A second plan is empty, and a changed
// default changes the jobs that leave the attribute out.
func TestJobsGetTheDefaultsOfTheirApp(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	f.run(t,
		resource.TestStep{
			Config: f.config(withDefaults(someDefaults)),
			ConfigPlanChecks: planned(
				expect("concurrency_policy").planned("forbid"), expect("trigger", "0", "timezone").planned("Europe/Berlin"),
				expect("trigger", "0", "misfire_policy").planned("skip"),
			),
			Check: f.stores(t, func(j dispatcher.Job) bool {
				return j.Retry.MaxAttempts == 5 && len(j.Retry.Delays) == 2 && j.ConcurrencyPolicy == run.ConcurrencyForbid &&
					j.Triggers["t"].Timezone == "Europe/Berlin" && j.Triggers["t"].MisfirePolicy == dispatcher.Skip &&
					maps.Equal(j.Target.Webhook.Headers, map[string]string{"X-Team": "crm", "X-Own": "o"})
			}),
		},
		resource.TestStep{
			Config: f.config(withDefaults(`
				default_timezone = "UTC"
				default_headers  = { X-Team = "sales" }
				default_retry {
					max_attempts = 2
				}
			`)),
			ConfigPlanChecks: planned(
				action(plancheck.ResourceActionUpdate), expect("concurrency_policy").planned("allow"),
				expect("trigger", "0", "timezone").planned("UTC"),
			),
			Check: f.stores(t, func(j dispatcher.Job) bool {
				return j.Retry.MaxAttempts == 2 && j.ConcurrencyPolicy == run.ConcurrencyAllow &&
					maps.Equal(j.Target.Webhook.Headers, map[string]string{"X-Team": "sales", "X-Own": "o"})
			}),
		},
		resource.TestStep{ // an import returns the configured values
			Config: f.config(withDefaults(someDefaults)),
		},
		resource.TestStep{
			ResourceName: "carillon_job.j", ImportState: true, ImportStateId: "crm/nightly", ImportStateVerify: true,
			ImportStateVerifyIgnore: []string{"target.webhook.headers"}, // X-Team is shown until the app is planned
		},
		resource.TestStep{ // the app's default is changed outside of Terraform
			PreConfig: do(t, func(ctx context.Context) error {
				return f.change(ctx, func(j *dispatcher.Job) { j.Retry.MaxAttempts, j.ConcurrencyPolicy = 7, run.ConcurrencyQueue })
			}),
			Config:            f.config(withDefaults(someDefaults)),
			ConfigPlanChecks:  planned(action(plancheck.ResourceActionUpdate)),
			ConfigStateChecks: []statecheck.StateCheck{expect("concurrency_policy").stored("forbid")},
			Check:             f.stores(t, func(j dispatcher.Job) bool { return j.Retry.MaxAttempts == 5 }),
		},
	)
}

// Requests to endpoint groups get the headers of the app, like webhooks.
func TestRequestsToGroupsGetTheHeadersOfTheirApp(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	grouped := `resource "carillon_app" "a" {
  name            = "crm"
  default_headers = { X-Team = "crm", x-own = "of the app" }
}
resource "carillon_endpoint_group" "g" {
  app  = carillon_app.a.name
  name = "workers"
  endpoint {
    name = "one"
    url  = "https://one.example.com"
  }
}
resource "carillon_job" "j" {
  app  = carillon_app.a.name
  name = "nightly"
  target {
    group {
      name    = carillon_endpoint_group.g.name
      headers = { X-Own = "o" }
    }
  }
  trigger {
    name       = "t"
    expression = "rate(1h)"
  }
}
`
	d := f.directory(t, f.config(grouped))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	job, err := f.readJob(t.Context())
	if err != nil || !maps.Equal(job.Target.Group.Headers, map[string]string{"X-Team": "crm", "X-Own": "o"}) {
		t.Errorf("job = %+v, %v; want the headers of the app and its own", job.Target.Group, err)
	}
	d.rewrite(t, f.config(strings.Replace(grouped, `X-Team = "crm"`, `X-Team = "sales"`, 1)))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	if job, err := f.readJob(t.Context()); err != nil || job.Target.Group.Headers["X-Team"] != "sales" {
		t.Errorf("job = %+v, %v; want the new header of the app", job.Target.Group, err)
	}
}

// An app of another configuration is read once.
func TestDefaultsOfAnAppElsewhereAreRead(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	app := access.App{Name: "crm", AppSpec: access.AppSpec{Enabled: true, Defaults: &dispatcher.JobDefaults{
		Timezone: "Asia/Kolkata", Headers: map[string]string{"X-Team": "crm"},
	}}}
	if _, err := f.outside.PutApp(t.Context(), app, client.Condition{}); err != nil {
		t.Fatal(err)
	}
	d := f.directory(t, f.config(`resource "carillon_job" "j" {
		app  = "crm"
		name = "nightly"
	`+hook+`trigger {
		name       = "t"
		expression = "@daily"
	}
	}`))
	mustSay(t, d.must(t, "plan"), `timezone = "Asia/Kolkata"`)
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
}

// Without a default, a trigger must name its time zone, and the plan says so. Intervals of elapsed
// time need none, and an unknown default is not reported.
func TestTimezoneIsRequiredAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(withDefaults("")))
	d.mustFail(t, []string{"plan"}, "The time zone is missing",
		`trigger["t"].timezone: timezone is missing: expression "0 30 4 * * ?" follows the wall clock of a place`,
		"or give the app a default_timezone (timezone_required)")
	d.rewrite(t, f.config(laterOf("zone", `"Europe/Berlin"`)+withDefaults("default_timezone = terraform_data.zone.output\n")))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "timezone = (known after apply)")
	mustChangeNothing(t, d)
	if job, err := f.readJob(t.Context()); err != nil || job.Triggers["t"].Timezone != "Europe/Berlin" {
		t.Errorf("job = %+v, %v", job, err)
	}
	local := strings.ReplaceAll(withDefaults("default_timezone = \"UTC\"\n"), "0 30 4 * * ?", "at(2099-01-01T00:00:00)")
	d.rewrite(t, f.config(local))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
	d.rewrite(t, f.config(strings.Replace(local, "default_timezone = \"UTC\"", "", 1)))
	d.mustFail(t, []string{"plan"}, `"at(2099-01-01T00:00:00)"`, "(time_zone_missing)")
	elapsed := withDefaults(`default_headers = { X-Team = "crm" }` + "\n")
	d.rewrite(t, f.config(strings.ReplaceAll(elapsed, "0 30 4 * * ?", "rate(5 minutes)")))
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
}

func TestInvalidDefaultsAreRefused(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(`resource "carillon_app" "a" {
		name                       = "crm"
		default_timezone           = "CEST"
		default_misfire_policy     = "fire-once"
		default_concurrency_policy = "Forbid"
		default_headers            = { Host = "x" }
		default_retry {
			max_attempts = 0
			base         = "30"
		}
	}`))
	d.mustFail(t, []string{"validate"}, `default_timezone: "CEST"`, "did you mean fire_once?", "did you mean forbid?",
		`default_headers["Host"]:`, `default_retry.base: duration "30" has no unit`, "default_retry.max_attempts:")
}

// The plans of jobs can only show their former retry as removed, so the plan of the app says what the change means.
func TestChangeOfTheDefaultRetryIsExplained(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	withRetry := func(attempts int) string {
		return f.config(withDefaults(fmt.Sprintf("default_timezone = \"UTC\"\ndefault_retry {\n max_attempts = %d\n}\n", attempts)))
	}
	d := f.directory(t, withRetry(5))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, withRetry(6))
	mustSay(t, d.must(t, "plan"), "Warning: Retries of jobs without the block retry change: crm",
		"max_attempts 5 -> 6. The plans of these jobs show their former retry as a removed block.")
	d.must(t, "apply", "-auto-approve")
	mustChangeNothing(t, d)
}
