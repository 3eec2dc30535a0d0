package provider_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

const manyRules = `dynamic "rule" {
	for_each = range(101)
	content { weekdays = ["SUN"] }
}`

// badCalendars are calendars that a plan must refuse, by their mistake.
var badCalendars = map[string]badDefinition{
	"name":                 {`name = "Holidays"`, []string{`name_format name`}},
	"app":                  {`app = "../x"`, []string{`name_format app`}},
	"description":          {`description = "\u001b[2J"`, []string{`text_invalid description`}},
	"zone unknown":         {`timezone = "CEST"`, []string{`tz_unknown timezone`}},
	"zone offset":          {`timezone = "+02:00"`, []string{`tz_offset timezone`}},
	"zone empty":           {`timezone = ""`, []string{`required timezone`}},
	"rule of no kind":      {rule(``), []string{`calendar_rule rule[0]`}},
	"rule of empty lists":  {rule(`dates = []; weekdays = []`), []string{`calendar_rule rule[0]`}},
	"rule of two kinds":    {rule(`dates = ["12-25"]; weekdays = ["SUN"]`), []string{`calendar_rule rule[0]`}},
	"too many rules":       {manyRules, []string{`calendar_rule rule`}},
	"too many dates":       {rule(`dates = [for i in range(1001) : "12-25"]`), []string{`calendar_rule rule[0].dates`}},
	"date in another form": {rule(`dates = ["12-25", "25.12."]`), []string{`time_invalid rule[0].dates[1]`}},
	"date that is none":    {rule(`dates = ["2026-02-30"]`), []string{`time_invalid rule[0].dates[0]`}},
	"span reversed":        {rule(`dates = ["2027-01-02/2026-12-24"]`), []string{`time_invalid rule[0].dates[0]`}},
	"span of two forms":    {rule(`dates = ["12-24/2027-01-02"]`), []string{`time_invalid rule[0].dates[0]`}},
	"date null":            {rule(`dates = [null]`), []string{`required rule[0].dates[0]`}},
	"weekday":              {rule(`weekdays = ["SAT", "MOO"]`), []string{`cron_name rule[0].weekdays[1]`}},
	"day 0":                {rule(`days_of_month = [0]`), []string{`cron_range rule[0].days_of_month[0]`}},
	"day 32":               {rule(`days_of_month = [1, 32]`), []string{`cron_range rule[0].days_of_month[1]`}},
	"day of a half":        {rule(`days_of_month = [1.5]`), []string{`cron_range rule[0].days_of_month[0]`}},
	"day null":             {rule(`days_of_month = [null]`), []string{`required rule[0].days_of_month[0]`}},
	"times of day":         {rule(`from = "9"; to = "25:00"`), []string{`time_invalid rule[0].from`, `time_invalid rule[0].to`}},
	"time empty":           {rule(`from = "09:00"; to = ""`), []string{`required rule[0].to`}},
	"expression":           {rule(`expression = "61 * * * *"`), []string{`cron_range rule[0].expression`}},
	"expression of H":      {rule(`expression = "H * * * *"`), []string{`cron_hash rule[0].expression`}},
	"interval":             {rule(`expression = "rate(5m)"`), []string{`calendar_rule rule[0].expression`}},
	"event without start":  {rule(`icalendar = "BEGIN:VEVENT\nEND:VEVENT\n"`), []string{`time_invalid rule[0].icalendar`}},
	"base name":            {`bases = ["holidays", "Bad"]`, []string{`name_format bases[1]`}},
	"base twice":           {`bases = ["holidays", "holidays"]`, []string{`calendar_base bases[1]`}},
	"base null":            {`bases = [null]`, []string{`required bases[0]`}},
	"too many bases":       {`bases = [for i in range(11) : "b${i}"]`, []string{`too_many bases`}},
	"all at once": {
		"name = \"A\"\n timezone = \"CEST\"\n bases = [\"B\"]\n" +
			`rule { weekdays = ["SUN"] }
			rule { dates = ["soon"] }
			rule { from = "9" }
			rule { days_of_month = [32] }`,
		[]string{
			`name_format name`, `tz_unknown timezone`, `name_format bases[0]`, `time_invalid rule[1].dates[0]`,
			`time_invalid rule[2].from`, `cron_range rule[3].days_of_month[0]`,
		},
	},
}

func rule(attributes string) string { return "rule {\n" + lines(attributes) + "}\n" }

func TestInvalidCalendarsAreRefusedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	refusedAtPlan(t, "carillon_calendar", badCalendars)
}

func TestCalendarDefaultsEqualTheirExplicitValues(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := func(attributes string) string { return f.config(app + calendar(attributes)) }
	same := planned(plancheck.ExpectEmptyPlan())
	f.run(t,
		resource.TestStep{Config: config("")},
		resource.TestStep{Config: config("bases = []\ntimezone = \"UTC\""), ConfigPlanChecks: same},
		resource.TestStep{Config: config(`rule { dates = ["12-25"] }`)},
		resource.TestStep{
			Config: config(`rule {
				dates         = ["12-25"]
				weekdays      = []
				days_of_month = null
				only          = false
			}`),
			ConfigPlanChecks: same,
		},
	)
}

func TestImportedCalendarGivesAnEmptyPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	resources := app + calendar(`bases = []
		rule {
			dates    = ["12-25"]
			weekdays = []
		}
		rule {
			days_of_month = [1]
			only          = true
		}
		rule {
			from  = "22:00"
			to    = "06:00"
			dates = []
		}`)
	f.directory(t, f.config(resources)).must(t, "apply", "-auto-approve")
	// Another client omits the default time zone.
	stored, err := f.outside.Calendar(t.Context(), "crm", "holidays")
	if err != nil {
		t.Fatal(err)
	}
	stored.Timezone = ""
	if _, err := f.outside.PutCalendar(t.Context(), stored, client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	// A second, empty state imports the applied resources.
	resources += `
		import {
		  to = carillon_app.a
		  id = "crm"
		}
		import {
		  to = carillon_calendar.c
		  id = "crm/holidays"
		}`
	d := f.directory(t, f.config(resources))
	mustSay(t, d.must(t, "plan"), "2 to import, 0 to add, 0 to change, 0 to destroy")
	d = f.directory(t, f.config(app+calendar("")))
	d.mustFail(t, []string{"import", "carillon_calendar.c", "holidays"},
		`The id "holidays" does not have the form app/calendar`, "(import_id)")
	d.mustFail(t, []string{"import", "carillon_calendar.c", "crm/absent"}, "Cannot import non-existent remote object")
}

// laterOf returns a resource with an output that is known only after apply.
func laterOf(name, value string) string {
	return fmt.Sprintf("resource \"terraform_data\" %q {\n input = %s\n}\n", name, value)
}

func TestUnknownCalendarValuesAreCheckedAtApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	all := laterOf("l", `{
		name = "holidays", zone = "Asia/Tokyo", text = "any", day = "12-25", days = [1], time = "22:00"
		rules = [{ weekdays = ["SUN"] }]
	}`) + app + `
		resource "carillon_calendar" "c" {
		  app         = carillon_app.a.name
		  name        = terraform_data.l.output.name
		  timezone    = terraform_data.l.output.zone
		  description = terraform_data.l.output.text
		  rule { dates = ["12-24", terraform_data.l.output.day] }
		  rule { days_of_month = terraform_data.l.output.days }
		  rule {
		  	from = terraform_data.l.output.time
		  	to   = "06:00"
		  }
		}
		resource "carillon_calendar" "d" {
		  app   = carillon_app.a.name
		  name  = "open"
		  bases = [terraform_data.l.output.name, carillon_calendar.c.name]
		  dynamic "rule" {
		    for_each = terraform_data.l.output.rules
		    content { weekdays = rule.value.weekdays }
		  }
		}`
	distinct := strings.Replace(all, "bases = [terraform_data.l.output.name, ", "bases = [", 1)
	f.run(t,
		resource.TestStep{Config: f.config(all), ExpectError: words(`bases[1]: base "holidays" is named twice`)},
		resource.TestStep{
			Config: f.config(distinct),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(holidays, tfjsonpath.New("id"), knownvalue.StringExact("crm/holidays")),
				statecheck.ExpectKnownValue("carillon_calendar.d", tfjsonpath.New("rule"), knownvalue.ListSizeExact(1)),
			},
		},
		// Known values next to unknown ones are still checked at plan.
		resource.TestStep{
			Config: f.config(app + laterOf("m", `"12-25"`) +
				calendar(rule(`dates = [terraform_data.m.output, "25.12."]; from = terraform_data.m.output`))),
			ConfigPlanChecks: planned(between(func(context.Context) error { return errors.New("it was planned") })),
			ExpectError:      words("rule[0].dates[1]:"),
		},
		resource.TestStep{
			Config: f.config(app + laterOf("n", `"22:00"`) + calendar(rule(`dates = ["12-25"]; from = terraform_data.n.output`))),
			// Only apply can report it: the unknown value might have been null.
			ExpectError: words("rule[0]:"),
		},
		resource.TestStep{Config: f.config(app)}, // a valid configuration, so that destroy works
	)
}

// H hashes the names of app and job, so an expression with H can be checked only when both are
// known.
func TestUnknownScheduleValuesAreCheckedAtApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	named := func(later, attributes string) string {
		values := laterOf(later, `{
			name = "nightly", calendar = "holidays", on = "next_included", jitter = "5m", drift = true, enabled = false
		}`)
		unknown := strings.ReplaceAll(job(attributes), `"nightly"`, "later.name")
		return f.config(values + strings.ReplaceAll(unknown, "later.", "terraform_data."+later+".output.") + calendar(""))
	}
	dialect := func(trigger int) tfjsonpath.Path {
		return tfjsonpath.New("trigger").AtSliceIndex(trigger).AtMapKey("dialect")
	}
	var applied bool
	f.run(t,
		resource.TestStep{
			Config: named("l", hook+`trigger {
				name       = "hashed"
				expression = "H 2 * * *"
			}
			trigger {
				name        = "plain"
				expression  = "0 2 * * *"
				calendar    = carillon_calendar.c.name
				on_excluded = "skip"
			}
			trigger {
				name        = "careful"
				expression  = "delay(1h)"
				calendar    = later.calendar
				on_excluded = later.on
				jitter      = later.jitter
			}
			trigger {
				name       = "drifts"
				expression = "every 1 day"
				drift_hour = later.drift
			}
			depends_on = [carillon_calendar.c]`),
			ConfigPlanChecks: planned(
				plancheck.ExpectUnknownValue("carillon_job.j", tfjsonpath.New("id")),
				plancheck.ExpectUnknownValue("carillon_job.j", dialect(0)),
				plancheck.ExpectUnknownValue("carillon_job.j", dialect(2)),
				expect("trigger", "1", "dialect").planned("unix"),
			),
			ConfigStateChecks: []statecheck.StateCheck{
				expect("id").stored("crm/nightly"), expect("trigger", "0", "dialect").stored("unix"),
				expect("trigger", "2", "calendar").stored("holidays"), expect("trigger", "2", "jitter").stored("5m"),
			},
		},
		resource.TestStep{
			Config: named("m", hook+`trigger {
				name       = "t"
				expression = "H(5-3) 2 * * *"
			}`),
			ConfigPlanChecks: planned(between(func(context.Context) error {
				applied = true
				return nil
			})),
			ExpectError: words(`trigger["t"].expression:`),
		},
		// A disabled job may have a past time.
		resource.TestStep{Config: named("n", hook+"enabled = later.enabled\n"+`trigger {
			name       = "t"
			expression = "at(2001-01-01T00:00:00Z)"
		}`)},
		resource.TestStep{Config: f.config(app)},
	)
	if !applied {
		t.Error("an expression of H was judged before the name of its job was known")
	}
}
