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
)

const holidays = "carillon_calendar.c"

// calendar returns a calendar crm/holidays with these attributes besides app and name.
func calendar(attributes string) string {
	return fmt.Sprintf("resource \"carillon_calendar\" \"c\" {\n app = carillon_app.a.name\n name = \"holidays\"\n%s\n}\n", attributes)
}

// careful is a job whose trigger names the calendar.
const careful = hook + "triggers = { t = { expression = \"0 0 2 * * ?\", calendar = carillon_calendar.c.name } }\n"

func TestCalendarLives(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := func(attributes string) string { return f.config(app + calendar(attributes)) }
	const full = `description = "all kinds"
  timezone = "Europe/Berlin"
  rules = [
    { dates = ["12-24/12-26", "2030-04-22"] },
    { weekdays = ["SAT", "SUN"] },
    { days_of_month = [1, 31] },
    { only = true, from = "09:00", to = "17:30" },
    { to = "06:00" },
    { expression = "0 12 * * *" },
    { icalendar = "BEGIN:VEVENT\nDTSTART;VALUE=DATE:20301225\nEND:VEVENT\n" },
  ]`
	f.run(t,
		resource.TestStep{Config: config(full), Check: resource.ComposeTestCheckFunc(
			resource.TestCheckResourceAttr(holidays, "rules.#", "7"),
			resource.TestCheckResourceAttr(holidays, "rules.2.days_of_month.1", "31"),
			resource.TestCheckResourceAttr(holidays, "revision", "1"),
		)},
		resource.TestStep{
			ResourceName: holidays, ImportState: true, ImportStateId: "crm/holidays",
			ImportStateVerify: true, ImportStateVerifyIdentifierAttribute: "name",
		},
		// Empty and null stay as they were written.
		resource.TestStep{Config: config("rules = [{ dates = [\"12-25\"], weekdays = [] }]\nbases = []")},
		resource.TestStep{Config: config("rules = []")},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error {
				_, err := f.outside.PutCalendar(ctx, dispatcher.Calendar{
					App: "crm", Name: "holidays", Rules: []schedule.CalendarRule{{Weekdays: []string{"SUN"}}},
				}, client.Condition{})
				return err
			}),
			Config:           config(""),
			ConfigPlanChecks: planned(plancheck.ExpectResourceAction(holidays, plancheck.ResourceActionUpdate)),
		},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error {
				return f.outside.DeleteCalendar(ctx, "crm", "holidays", client.Condition{})
			}),
			Config:           config(""),
			ConfigPlanChecks: planned(plancheck.ExpectResourceAction(holidays, plancheck.ResourceActionCreate)),
		},
		resource.TestStep{
			Config: config("description = \"changed\""),
			ConfigPlanChecks: planned(between(func(ctx context.Context) error {
				_, err := f.outside.PutCalendar(ctx, dispatcher.Calendar{App: "crm", Name: "holidays"}, client.Condition{})
				return err
			})),
			ExpectError: words("The calendar was changed outside of Terraform"),
		},
		resource.TestStep{Config: config("")},
	)
}

func TestBadCalendarsAreRefusedAtPlan(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var steps []resource.TestStep
	for attributes, want := range map[string]string{
		`timezone = "CEST"`:                                    `timezone:`,
		`rules = [{ dates = ["12-25", "25.12."] }]`:            `rules[0].dates[1]: rules/0/dates/1`,
		`rules = [{}]`:                                         `rules[0]: rules/0: a rule has exactly one of`,
		`rules = [{ weekdays = ["SAT", "MOO"] }]`:              `rules[0].weekdays[1]:`,
		`rules = [{ days_of_month = [1.5] }]`:                  `rules[0].days_of_month[0]: 1.5 is not a whole number`,
		`rules = [{ from = "9", to = "" }]`:                    `rules[0].from:`,
		`rules = [{ expression = "61 * * * *" }]`:              `rules[0].expression:`,
		`bases = ["holidays", "Bad"]`:                          `bases[1]:`,
		`rules = [{ dates = ["12-25"], weekdays = ["SUN"] }]`:  `this has 2`,
		`rules = [{ icalendar = "BEGIN:VEVENT\nEND:VEVENT" }]`: `rules[0].icalendar:`,
	} {
		steps = append(steps, resource.TestStep{Config: f.config(app + calendar(attributes)), PlanOnly: true, ExpectError: words(want)})
	}
	f.run(t, steps...)
}

// What a calendar and a job need of one another happens in one apply, in both directions.
func TestCalendarAndItsJobChangeTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := func(attributes, description string) string {
		// With it Terraform lets the job go of the calendar before it destroys the calendar.
		attributes += "\nlifecycle { create_before_destroy = true }\n"
		return f.config(job(careful+"description = \""+description+"\"\n") + calendar(attributes))
	}
	moved := func(want int64) resource.TestCheckFunc {
		return resource.TestCheckResourceAttr("carillon_job.j", "revision", fmt.Sprint(want))
	}
	f.run(t,
		resource.TestStep{Config: config("", "one"), Check: moved(1)},
		resource.TestStep{Config: config(`rules = [{ weekdays = ["SUN"] }]`, "two"), Check: moved(2)},
		// A calendar alone leaves the revision of its job, so no later plan is refused.
		resource.TestStep{Config: config(`rules = [{ weekdays = ["SAT"] }]`, "two"), Check: moved(2)},
		resource.TestStep{Config: config(`rules = [{ weekdays = ["SAT"] }]`, "three"), Check: moved(3)},
		resource.TestStep{Config: f.config(job(hook + daily))}, // lets go of the calendar and destroys it
	)
}

func TestCalendarInUseByOthersIsNotDestroyed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, providerBlock(""), app+calendar(""))
	d.must(t, "apply", "-auto-approve")
	_, err := f.outside.PutCalendar(t.Context(), dispatcher.Calendar{App: "crm", Name: "theirs", Bases: []string{"holidays"}}, client.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	d.mustFail(t, []string{"destroy", "-auto-approve"}, `refused to delete calendar "crm/holidays" (409)`, `base of calendar "theirs"`)
}

func TestRenamedCalendarMovesItsTriggersFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	named := func(name string) string {
		return f.config(job(careful) + fmt.Sprintf("resource \"carillon_calendar\" \"c\" {\n app = carillon_app.a.name\n name = %q\n"+
			" lifecycle { create_before_destroy = true }\n}\n", name))
	}
	f.run(t,
		resource.TestStep{Config: named("holidays")},
		resource.TestStep{Config: named("days-off"), Check: resource.TestCheckResourceAttr("carillon_job.j", "triggers.t.calendar", "days-off")},
	)
}

func TestTriggerFieldsOfSchedulesAreStoredAndImported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const triggers = `
  triggers = {
    hashed  = { expression = "H H * * *", jitter = "90s" }
    moved   = { expression = "0 3 * * *", calendar = carillon_calendar.c.name, on_excluded = "next_included" }
    skipped = { expression = "0 3 * * *", calendar = carillon_calendar.c.name, on_excluded = "skip", jitter = "0s" }
    drifts  = { expression = "every 1 day", drift_hour = true }
    delayed = { expression = "delay(1h)", repeat_count = 3 }
  }
`
	f.run(t,
		resource.TestStep{Config: f.config(job(hook+triggers) + calendar("")), Check: resource.ComposeTestCheckFunc(
			resource.TestCheckResourceAttr("carillon_job.j", "triggers.hashed.jitter", "90s"),
			resource.TestCheckResourceAttr("carillon_job.j", "triggers.delayed.drift_hour", "false"),
			resource.TestCheckResourceAttr("carillon_job.j", "next_fire_times.%", "5"),
		)},
		resource.TestStep{
			ResourceName: "carillon_job.j", ImportState: true, ImportStateId: "crm/nightly", ImportStateVerify: true,
			ImportStateVerifyIgnore: []string{"triggers.hashed.jitter"}, // 1m30s, which is the same
		},
	)
	steps := []resource.TestStep{}
	for trigger, want := range map[string]string{
		`{ expression = "* * * * *", on_excluded = "skip" }`:                `triggers["t"].on_excluded:`,
		`{ expression = "* * * * *", calendar = "Holidays" }`:               `triggers["t"].calendar:`,
		`{ expression = "* * * * *", jitter = "25h" }`:                      `triggers["t"].jitter:`,
		`{ expression = "delay(1m)", calendar = carillon_calendar.c.name }`: `triggers["t"].on_excluded:`,
		`{ expression = "H(5-3) * * * *" }`:                                 `triggers["t"].expression:`,
	} {
		steps = append(steps, resource.TestStep{
			Config: f.config(job(hook+"triggers = { t = "+trigger+" }\n") + calendar("")), PlanOnly: true, ExpectError: words(want),
		})
	}
	f.run(t, steps...)
}
