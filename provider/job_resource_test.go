package provider_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	tfstate "github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

const fullJob = `
  description = "every attribute"
  enabled     = true
  priority    = 7
  delivery    = "at_most_once"
  concurrency_policy = "queue"
  max_concurrency    = 2
  queue_limit        = 7
  delete_after_completion = "168h"
  node_labels = { zone = "a", disk = "ssd" }
  retry {
    max_attempts      = 5
    base              = "1s"
    cap               = "60m"
    delays            = ["0s", "90s", "1h0m"]
    max_age           = "2h"
    stop_at_next_fire = true
  }
  target {
    webhook {
      url     = "https://example.com/hook/{{date \"%Y/%m\" .ScheduledAt}}?since={{.PreviousFire}}"
      method  = "PUT"
      timeout = "90s"
      headers = {
        "X-Team" = "crm"
        "X-Run"  = "{{.Run}}"
      }
      body = <<-EOT
        {"data": {{json .Payload}}, "until": {{json .NextFire}}, "literal": "{{"{{"}}"}
      EOT
      signing {
        secret {
          name      = "current"
          reference = "env:SECRET_CRM_KEY"
        }
        secret {
          name      = "next"
          reference = "file:crm/next"
        }
      }
      cloud_events  = "binary"
      success_codes = ["2xx", "404"]
      expect_body   = "^ok"
      tls { min_version = "1.3" }
    }
  }
  payload = jsonencode({ b = [1, 2.5, "<&>"], a = { c = null } })
  trigger {
    name          = "cron"
    expression    = "0 30 2 ? * MON-FRI"
    dialect       = "quartz"
    timezone      = "Europe/Berlin"
    start_at      = "2030-03-01T00:00:00+01:00"
    end_at        = "2031-03-01T00:00:00.25Z"
    repeat_count  = 10
    gap           = "next"
    overlap       = "first"
    misfire_after = "2h0m"
    misfire_policy  = "fire_all"
    catch_up_window = "48h"
    enabled       = true
  }
  trigger {
    name       = "interval"
    expression = "rate(5 minutes)"
  }
  trigger {
    name       = "once"
    expression = "at(2099-01-01T00:00:00Z)"
  }
  trigger {
    name       = "unix"
    expression = "*/5 * * * *"
    enabled    = false
  }
`

func TestJobWithEveryAttributeIsStoredAndImported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run(t,
		resource.TestStep{
			Config: f.config(job(fullJob)),
			ConfigPlanChecks: planned(
				// The plan shows the values that the API will resolve.
				expect("trigger", "1", "dialect").planned("interval"),
				expect("trigger", "3", "timezone").planned("UTC"),
				expect("id").planned("crm/nightly"),
			),
			ConfigStateChecks: []statecheck.StateCheck{
				expect("state").stored("executing"),
				expect("next_fire_times", "once").stored("2099-01-01T00:00:00Z"),
				expect("trigger", "0", "start_at").stored("2030-03-01T00:00:00+01:00"),
				expect("trigger", "0", "misfire_after").stored("2h0m"),
				expect("trigger", "0", "misfire_policy").stored("fire_all"),
				expect("trigger", "0", "catch_up_window").stored("48h"),
			},
		},
		resource.TestStep{
			ResourceName: "carillon_job.j", ImportState: true, ImportStateId: "crm/nightly", ImportStateVerify: true,
			// The API returns these in an equivalent spelling; TestImportedJobGivesAnEmptyPlan covers them.
			ImportStateVerifyIgnore: []string{
				"payload", "target.webhook.timeout", "retry.cap", "retry.delays.1", "retry.delays.2",
				"trigger.0.misfire_after", "trigger.0.start_at",
			},
		},
	)
}

func TestImportedJobGivesAnEmptyPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	resources := job(fullJob)
	f.directory(t, f.config(resources)).must(t, "apply", "-auto-approve")
	// A second, empty state imports the applied resources.
	resources += `
		import {
		  to = carillon_app.a
		  id = "crm"
		}
		import {
		  to = carillon_job.j
		  id = "crm/nightly"
		}`
	output := f.directory(t, f.config(resources)).must(t, "plan")
	mustSay(t, output, "2 to import, 0 to add, 0 to change, 0 to destroy")
}

func TestJobUpdateKeepsUnchangedAttributes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run(t,
		resource.TestStep{Config: f.config(job(hook + daily))},
		resource.TestStep{
			Config: f.config(job(hook + `trigger {
				name       = "t"
				expression = "*/5 * * * *"
			}
			trigger {
				name       = "u"
				expression = "@hourly"
			}`)),
			ConfigPlanChecks: planned(
				action(plancheck.ResourceActionUpdate),
				expect("trigger", "0", "dialect").planned("unix"),
				expect("id").planned("crm/nightly"),
				plancheck.ExpectUnknownValue("carillon_job.j", tfjsonpath.New("next_fire_times")),
			),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("carillon_job.j", tfjsonpath.New("revision"), knownvalue.Int64Exact(2)),
				statecheck.ExpectKnownValue("carillon_job.j", tfjsonpath.New("next_fire_times"), knownvalue.MapSizeExact(2)),
			},
		},
		resource.TestStep{
			Config: f.config(job(hook + "enabled = false\n" + daily)),
			ConfigStateChecks: []statecheck.StateCheck{
				expect("state").stored("init"),
				statecheck.ExpectKnownValue("carillon_job.j", tfjsonpath.New("next_fire_times"), knownvalue.MapSizeExact(0)),
			},
		},
		resource.TestStep{
			Config: f.config(strings.ReplaceAll(job(hook+""), "carillon_app.a.name", "carillon_app.other.name") +
				"resource \"carillon_app\" \"other\" {\n name = \"other\"\n}\n"),
			ConfigPlanChecks: planned(action(plancheck.ResourceActionReplace)),
		},
	)
}

func TestOutsideChangesAreUndone(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := f.config(job(hook + daily))
	var declared dispatcher.Job
	steps := []resource.TestStep{{Config: config}}
	for _, edit := range []func(*dispatcher.Job){
		func(j *dispatcher.Job) { j.Target.Webhook.URL = "https://elsewhere.example.com/" },
		func(j *dispatcher.Job) { j.Target.Webhook.Timeout = target.DefaultTimeout / 2 },
		func(j *dispatcher.Job) { j.Target.Webhook.Headers = map[string]string{"X-A": "b"} },
		func(j *dispatcher.Job) { j.Payload = json.RawMessage(`7`) },
		func(j *dispatcher.Job) { j.Enabled = false },
		func(j *dispatcher.Job) { j.Triggers["other"] = j.Triggers["t"] },
		func(j *dispatcher.Job) { // an attribute that the configuration leaves out
			t := j.Triggers["t"]
			t.Timezone = "Asia/Tokyo"
			j.Triggers["t"] = t
		},
	} {
		steps = append(steps, resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) (err error) {
				if declared, err = f.readJob(ctx); err != nil {
					return err
				}
				return f.change(ctx, edit)
			}),
			Config:           config,
			ConfigPlanChecks: planned(action(plancheck.ResourceActionUpdate)),
			Check: func(*tfstate.State) error {
				got, err := f.readJob(context.Background())
				if err != nil {
					return err
				}
				ignore := cmpopts.IgnoreFields(dispatcher.Job{}, "Revision", "UpdatedAt")
				moves := cmpopts.IgnoreFields(dispatcher.Trigger{}, "AnchorAt")
				if diff := cmp.Diff(declared, got, ignore, moves); diff != "" {
					return fmt.Errorf("apply did not bring the declared job back (-want +got):\n%s", diff)
				}
				return nil
			},
		})
	}
	f.run(t, steps...)
}

func TestOutsidePauseIsNoChange(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	f.run(t,
		resource.TestStep{Config: f.config(job(hook + daily))},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error {
				_, err := f.store.PauseJob(ctx, "crm", "nightly", "", true, input.Change{Actor: "operator"})
				return err
			}),
			Config:           f.config(job(hook + daily)),
			ConfigPlanChecks: planned(plancheck.ExpectEmptyPlan()),
		},
		// The pause changed the revision; a plan made afterwards must still apply.
		resource.TestStep{Config: f.config(job(hook + daily + `description = "changed"`))},
	)
}

func TestJobDeletedOutsideIsCreatedAgain(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	f.run(t,
		resource.TestStep{Config: f.config(job(hook + daily))},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error {
				if err := f.outside.DeleteJob(ctx, "crm", "nightly", client.Condition{Existing: true}); err != nil {
					return err
				}
				return f.outside.DeleteApp(ctx, "crm", client.Condition{Existing: true})
			}),
			Config: f.config(job(hook + daily)),
			ConfigPlanChecks: planned(
				action(plancheck.ResourceActionCreate), plancheck.ExpectResourceAction("carillon_app.a", plancheck.ResourceActionCreate),
			),
		},
	)
}

func TestChangeBetweenPlanAndApplyIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	changed := f.config(job(hook + daily + `description = "planned"`))
	edit := between(func(ctx context.Context) error {
		return f.change(ctx, func(j *dispatcher.Job) { j.Description += "edited outside" })
	})
	remove := between(func(ctx context.Context) error {
		return f.outside.DeleteJob(ctx, "crm", "nightly", client.Condition{Existing: true})
	})
	editApp := between(func(ctx context.Context) error {
		edited := access.App{Name: "crm", AppSpec: access.AppSpec{Description: "edited outside", Enabled: true}}
		_, err := f.outside.PutApp(ctx, edited, client.Condition{Existing: true})
		return err
	})
	f.run(t,
		resource.TestStep{Config: f.config(job(hook + daily))},
		resource.TestStep{
			Config: changed, ConfigPlanChecks: planned(edit),
			ExpectError: words(`made for revision 1 of job "crm/nightly", but it is now at revision 2`),
		},
		resource.TestStep{
			Config: f.config(job(hook + daily)), ConfigPlanChecks: planned(edit), Destroy: true,
			ExpectError: words(`made for revision 2 of job "crm/nightly", but it is now at revision 3`),
		},
		resource.TestStep{
			Config: changed, ConfigPlanChecks: planned(remove),
			ExpectError: words(`revision 3 of job "crm/nightly", which no longer exists`),
		},
		resource.TestStep{
			Config: strings.ReplaceAll(f.config(app), `"crm"`, "\"crm\"\n description = \"planned\""), ConfigPlanChecks: planned(editApp),
			ExpectError: words(`made for revision 1 of app "crm", but it is now at revision 2`),
		},
		resource.TestStep{Config: f.config(app)}, // a valid configuration, so that destroy works
	)
	if _, err := f.readJob(t.Context()); err == nil {
		t.Error("the deleted job was created again")
	}
}

func TestDestroyOfMissingJobSucceeds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	remove := between(func(ctx context.Context) error {
		return f.outside.DeleteJob(ctx, "crm", "nightly", client.Condition{Existing: true})
	})
	f.run(t,
		resource.TestStep{Config: f.config(job(hook + daily))},
		resource.TestStep{Config: f.config(job(hook + daily)), ConfigPlanChecks: planned(remove), Destroy: true},
	)
}

func TestExistingJobIsNotOverwritten(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	create := between(func(ctx context.Context) error {
		_, err := f.outside.PutApp(ctx, access.App{Name: "crm", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{})
		return err
	})
	createJob := between(func(ctx context.Context) error {
		_, err := f.outside.PutJob(ctx, dispatcher.Job{App: "crm", Name: "nightly", JobSpec: dispatcher.JobSpec{Target: target.Target{
			Webhook: &target.Webhook{URL: "https://elsewhere.example.com/", Method: "POST", Timeout: target.DefaultTimeout},
		}}}, client.Condition{})
		return err
	})
	byName := strings.ReplaceAll(job(hook+"trigger {\n  name = \"t\"\n  expression = \"rate(1h)\"\n}\n"), "carillon_app.a.name", `"crm"`)
	f.run(t,
		resource.TestStep{
			Config: f.config(strings.TrimPrefix(byName, app)), ExpectError: words(`there is no app "crm"`),
		},
		resource.TestStep{
			Config: f.config(app), ConfigPlanChecks: planned(create),
			ExpectError: words(`import { to = carillon_app.NAME id = "crm" }`),
		},
		resource.TestStep{
			Config: f.config(strings.TrimPrefix(byName, app)), ConfigPlanChecks: planned(createJob),
			ExpectError: words(`import { to = carillon_job.NAME id = "crm/nightly" }`),
		},
	)
	if got, err := f.readJob(t.Context()); err != nil || got.Revision != 1 {
		t.Errorf("job after refused create = revision %d, %v; want 1", got.Revision, err)
	}
}

func TestInvalidImportIDsAreRefused(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	step := func(id, want string) resource.TestStep {
		return resource.TestStep{
			Config: f.config(job(hook + daily)), ResourceName: "carillon_job.j",
			ImportState: true, ImportStateId: id, ExpectError: words(want),
		}
	}
	f.run(t,
		step("x", `The id "x" does not have the form app/job`),
		step("crm/nightly/t", `(import_id)`),
		step("crm/Nightly", `(import_id)`),
		step("crm/absent", `Cannot import non-existent remote object`),
		resource.TestStep{
			Config: f.config(app), ResourceName: "carillon_app.a", ImportState: true, ImportStateId: "a b", ExpectError: words(`(import_id)`),
		},
	)
}
