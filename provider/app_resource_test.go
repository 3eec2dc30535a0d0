package provider_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

func TestAppIsCreatedChangedAndImported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := func(more string) string {
		return f.config(fmt.Sprintf("resource \"carillon_app\" \"a\" {\n name = \"crm\"\n%s\n}\n", more))
	}
	const name = "carillon_app.a"
	f.run(t,
		resource.TestStep{
			Config: config(""),
			Check: resource.ComposeTestCheckFunc(
				resource.TestCheckResourceAttr(name, "enabled", "true"),
				resource.TestCheckResourceAttr(name, "description", ""),
				resource.TestCheckResourceAttr(name, "retention", "720h"),
				resource.TestCheckResourceAttr(name, "revision", "1"),
			),
		},
		resource.TestStep{
			ResourceName: name, ImportState: true, ImportStateId: "crm",
			ImportStateVerify: true, ImportStateVerifyIdentifierAttribute: "name",
		},
		resource.TestStep{
			Config: config("enabled = false\nretention = \"2160h\"\ndescription = \"customers\""),
			Check: resource.ComposeTestCheckFunc(
				resource.TestCheckResourceAttr(name, "enabled", "false"),
				resource.TestCheckResourceAttr(name, "revision", "2"),
			),
		},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error {
				edited := access.App{Name: "crm", AppSpec: access.AppSpec{Description: "edited outside", Enabled: true}}
				_, err := f.outside.PutApp(ctx, edited, client.Condition{Existing: true})
				return err
			}),
			Config:           config("enabled = false\ndescription = \"customers\""),
			ConfigPlanChecks: planned(plancheck.ExpectResourceAction(name, plancheck.ResourceActionUpdate)),
		},
		resource.TestStep{Config: config("retention = \"4w\""), ExpectError: words("retention: duration \"4w\" uses weeks")},
		resource.TestStep{
			Config:      config("retention = \"1h\""),
			ExpectError: words("retention: duration 1h0m0s is less than the minimum of 24h0m0s"),
		},
		resource.TestStep{Config: config("retention = \"0s\""), ExpectError: words("retention: duration 0s is less than the minimum of 24h0m0s")},
		resource.TestStep{Config: config("description = \"\\u0007\""), ExpectError: words("description: text holds a control character")},
		resource.TestStep{Config: config("")}, // a valid configuration, so that destroy works
	)
}

func TestUnknownValuesOfAppsAreCheckedAtApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := func(retention string) string {
		return f.config(laterOf("l", retention) + "resource \"carillon_app\" \"a\" {\n name = \"crm\"\n" +
			" retention = terraform_data.l.output\n}\n")
	}
	f.run(t,
		resource.TestStep{Config: config(`"4w"`), ExpectError: words("retention: duration \"4w\" uses weeks")},
		resource.TestStep{Config: config(`"48h"`), Check: resource.TestCheckResourceAttr("carillon_app.a", "retention", "48h")},
	)
}

func TestAppWithForeignJobsIsNotDestroyed(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, providerBlock(""), app)
	d.must(t, "apply", "-auto-approve")
	_, err := f.outside.PutJob(t.Context(), dispatcher.Job{App: "crm", Name: "theirs", JobSpec: dispatcher.JobSpec{Target: target.Target{
		Webhook: &target.Webhook{URL: "https://example.com/"},
	}}}, client.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	d.mustFail(t, []string{"destroy", "-auto-approve"}, `refused to delete app "crm" (409)`,
		`app "crm" still has job "theirs"; delete its jobs, calendars, groups and alerts first`)
}

// The plan of another name says that history stays behind.
func TestRenamedAppIsWarnedOf(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(app))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, strings.Replace(f.config(app), `"crm"`, `"sales"`, 1))
	mustSay(t, d.must(t, "plan"), "must be replaced", "The app gets another name: crm",
		"Runs, misfires and the audit log stay under the former name")
}

// An app that is declared in another spelling of the same durations is the same app.
func TestRespeltDurationsOfAppAreNoChange(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	with := func(retention, quota, base, ceiling, age, delay string) string {
		return providerBlock("") + fmt.Sprintf(`
			resource "carillon_app" "a" {
			  name      = "crm"
			  retention = %q
			  default_retry {
			    base    = %q
			    cap     = %q
			    max_age = %q
			    delays  = [%q]
			  }
			  bounds {
			    quotas {
			      retention = %q
			    }
			  }
			}`, retention, base, ceiling, age, delay, quota)
	}
	d := f.directory(t, with("1000h", "2000h", "60s", "120m", "24h", "90s"))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, with("60000m", "120000m", "1m", "2h", "1440m", "1m30s"))
	mustSay(t, d.must(t, "plan", "-detailed-exitcode"), "No changes")
	d.must(t, "apply", "-auto-approve")
	d.must(t, "plan", "-detailed-exitcode")
}
