package provider_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/test/need"
)

const holidays = "carillon_calendar.c"

// calendar returns a calendar crm/holidays with these attributes in addition to app and name.
func calendar(attributes string) string {
	return fmt.Sprintf("resource \"carillon_calendar\" \"c\" {\n app = carillon_app.a.name\n name = \"holidays\"\n%s\n}\n", attributes)
}

// careful is the rest of a job with a trigger that names the calendar.
const careful = hook + "trigger {\n  name       = \"t\"\n  expression = \"0 0 2 * * ?\"\n  calendar   = carillon_calendar.c.name\n}\n"

func TestCalendarIsCreatedChangedAndImported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := func(attributes string) string { return f.config(app + calendar(attributes)) }
	const full = `description = "all kinds"
  timezone = "Europe/Berlin"
  rule { dates = ["12-24/12-26", "2030-04-22"] }
  rule { weekdays = ["SAT", "SUN"] }
  rule { days_of_month = [1, 31] }
  rule {
    only = true
    from = "09:00"
    to   = "17:30"
  }
  rule { to = "06:00" }
  rule { expression = "0 12 * * *" }
  rule { icalendar = "BEGIN:VEVENT\nDTSTART;VALUE=DATE:20301225\nEND:VEVENT\n" }`
	f.run(t,
		resource.TestStep{Config: config(full), Check: resource.ComposeTestCheckFunc(
			resource.TestCheckResourceAttr(holidays, "rule.#", "7"),
			resource.TestCheckResourceAttr(holidays, "rule.2.days_of_month.1", "31"),
			resource.TestCheckResourceAttr(holidays, "id", "crm/holidays"),
			resource.TestCheckResourceAttr(holidays, "revision", "1"),
		)},
		resource.TestStep{
			ResourceName: holidays, ImportState: true, ImportStateId: "crm/holidays",
			ImportStateVerify: true,
		},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error {
				_, err := f.outside.PutCalendar(ctx, dispatcher.Calendar{
					App: "crm", Name: "holidays", CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{Weekdays: []string{"SUN"}}}},
				}, client.Condition{Existing: true})
				return err
			}),
			Config:           config(""),
			ConfigPlanChecks: planned(plancheck.ExpectResourceAction(holidays, plancheck.ResourceActionUpdate)),
		},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error {
				return f.outside.DeleteCalendar(ctx, "crm", "holidays", client.Condition{Existing: true})
			}),
			Config:           config(""),
			ConfigPlanChecks: planned(plancheck.ExpectResourceAction(holidays, plancheck.ResourceActionCreate)),
		},
		resource.TestStep{
			Config: config("description = \"changed\""),
			ConfigPlanChecks: planned(between(func(ctx context.Context) error {
				_, err := f.outside.PutCalendar(ctx, dispatcher.Calendar{App: "crm", Name: "holidays"}, client.Condition{Existing: true})
				return err
			})),
			ExpectError: words(`The calendar was changed outside of Terraform`),
		},
		resource.TestStep{
			Config: config(""), Destroy: true,
			ConfigPlanChecks: planned(between(func(ctx context.Context) error {
				theirs := dispatcher.Calendar{App: "crm", Name: "holidays", CalendarSpec: dispatcher.CalendarSpec{Description: "theirs"}}
				_, err := f.outside.PutCalendar(ctx, theirs, client.Condition{Existing: true})
				return err
			})),
			ExpectError: words("The calendar was changed outside of Terraform"),
		},
		resource.TestStep{Config: config("")},
	)
}

func TestScheduleAttributesAreStoredAndImported(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	const triggers = `
  trigger {
    name         = "delayed"
    expression   = "delay(1h)"
    repeat_count = 3
  }
  trigger {
    name       = "drifts"
    expression = "every 1 day"
    drift_hour = true
  }
  trigger {
    name       = "hashed"
    expression = "H H * * *"
    jitter     = "90s"
  }
  trigger {
    name        = "moved"
    expression  = "0 3 * * *"
    calendar    = carillon_calendar.c.name
    on_excluded = "next_included"
  }
  trigger {
    name        = "skipped"
    expression  = "0 3 * * *"
    calendar    = carillon_calendar.c.name
    on_excluded = "skip"
    jitter      = "0s"
  }
`
	f.run(t,
		resource.TestStep{Config: f.config(job(hook+triggers) + calendar("")), Check: resource.ComposeTestCheckFunc(
			resource.TestCheckResourceAttr("carillon_job.j", "trigger.2.jitter", "90s"),
			resource.TestCheckResourceAttr("carillon_job.j", "trigger.0.drift_hour", "false"),
			resource.TestCheckResourceAttr("carillon_job.j", "next_fire_times.%", "5"),
		)},
		resource.TestStep{
			ResourceName: "carillon_job.j", ImportState: true, ImportStateId: "crm/nightly", ImportStateVerify: true,
			ImportStateVerifyIgnore: []string{"trigger.2.jitter"}, // 1m30s is equivalent
		},
	)
}
