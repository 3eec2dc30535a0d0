package provider_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/need"
)

// One apply creates a calendar before the job that uses it, and updates the job before it destroys
// the calendar.
func TestCalendarAndItsJobChangeInOneApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := func(attributes, description string) string {
		// This makes Terraform update the job before it destroys the calendar.
		attributes += "\n" + createFirst
		return f.config(job(careful+"description = \""+description+"\"\n") + calendar(attributes))
	}
	moved := func(want int64) resource.TestCheckFunc {
		return resource.TestCheckResourceAttr("carillon_job.j", "revision", fmt.Sprint(want))
	}
	f.run(t,
		resource.TestStep{Config: config("", "one"), Check: moved(1)},
		resource.TestStep{Config: config(`rule { weekdays = ["SUN"] }`, "two"), Check: moved(2)},
		// A change of the calendar keeps the revision of its job, so no later plan is refused.
		resource.TestStep{Config: config(`rule { weekdays = ["SAT"] }`, "two"), Check: moved(2)},
		resource.TestStep{Config: config(`rule { weekdays = ["SAT"] }`, "three"), Check: moved(3)},
		resource.TestStep{Config: f.config(job(hook + daily))}, // removes the calendar from the job and destroys it
	)
}

// Another object names the calendar that Terraform destroys. It stays until then, and can be declared again.
func TestDestroyedCalendarStaysUntilItsLastUse(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	theirs := dispatcher.Calendar{App: "crm", Name: "theirs", CalendarSpec: dispatcher.CalendarSpec{Bases: []string{"holidays"}}}
	d := f.directory(t, f.config(app+calendar("")))
	d.must(t, "apply", "-auto-approve")
	if _, err := f.outside.PutCalendar(t.Context(), theirs, client.Condition{}); err != nil {
		t.Fatal(err)
	}
	waits := func(want bool) {
		t.Helper()
		stored, err := f.outside.Calendar(t.Context(), "crm", "holidays")
		if err != nil || (stored.RemovalRequestedAt != nil) != want {
			t.Errorf("calendar = %+v, %v; want it to wait for its last use: %v", stored, err, want)
		}
	}
	d.rewrite(t, f.config(app))
	d.must(t, "apply", "-auto-approve")
	waits(true)
	d.rewrite(t, f.config(app+calendar("")))
	d.must(t, "apply", "-auto-approve")
	waits(false)
	mustChangeNothing(t, d)

	d.rewrite(t, f.config(app))
	d.must(t, "apply", "-auto-approve")
	if err := f.outside.DeleteCalendar(t.Context(), "crm", "theirs", client.Condition{Existing: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.outside.Calendar(t.Context(), "crm", "holidays"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("the calendar is still there without its last use: %v", err)
	}
	mustChangeNothing(t, d)
}

// named returns a job with a trigger that names the calendar, and the calendar with that name.
func named(calendar, lifecycle string) string {
	return job(careful) + fmt.Sprintf(
		"resource \"carillon_calendar\" \"c\" {\n app = carillon_app.a.name\n name = %q\n%s}\n", calendar, lifecycle)
}

const createFirst = "lifecycle {\n create_before_destroy = true\n}\n"

// A calendar is renamed together with the job that uses it, in one apply and in either order.
func TestRenamedCalendarAndItsJobChangeInOneApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	follows := func(name string) resource.TestCheckFunc {
		return resource.ComposeTestCheckFunc(
			resource.TestCheckResourceAttr("carillon_job.j", "trigger.0.calendar", name),
			resource.TestCheckResourceAttr("carillon_calendar.c", "id", "crm/"+name),
		)
	}
	f.run(t,
		resource.TestStep{Config: f.config(named("holidays", ""))},
		resource.TestStep{Config: f.config(named("days-off", "")), Check: follows("days-off")},
		resource.TestStep{Config: f.config(named("closed", createFirst)), Check: follows("closed")},
	)
	for _, old := range []string{"holidays", "days-off"} {
		if _, err := f.outside.Calendar(t.Context(), "crm", old); !errors.Is(err, dispatcher.ErrNotFound) {
			t.Errorf("calendar %s is still there: %v", old, err)
		}
	}
}

// A story: one apply destroys a calendar and its last use. Terraform destroys it before it updates the job.
func TestCalendarGoesWithItsLastUseInOneApply(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, f.config(named("holidays", "")))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, f.config(job(hook+daily)))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "carillon_calendar.c: Destruction complete", "1 changed, 1 destroyed")
	if _, err := f.outside.Calendar(t.Context(), "crm", "holidays"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("the calendar is still there: %v", err)
	}
	mustChangeNothing(t, d)
}

// The plan reports a missing calendar, but not one that the same apply creates.
func TestMissingCalendarsAreReportedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	uses := func(calendar, more string) string {
		return f.config(job(hook + "trigger {\n name = \"t\"\n expression = \"0 0 2 * * ?\"\n calendar = \"" + calendar + "\"\n}\n" + more))
	}
	const missing = `trigger["t"].calendar: app "crm" has no calendar "holiday"`
	d := f.directory(t, uses("holiday", ""))
	d.mustFail(t, []string{"plan"}, "The calendar does not exist", missing, "declare it as a carillon_calendar and refer to its name")
	d.rewrite(t, uses("holidays", "depends_on = [carillon_calendar.c]")+calendar(""))
	d.must(t, "apply", "-auto-approve")
	d.rewrite(t, uses("holiday", "")+calendar(""))
	d.mustFail(t, []string{"plan"}, missing, "Terraform creates it first; did you mean holidays?")
	d.rewrite(t, uses("holidays", "")+calendar(`bases = ["absent"]`))
	d.mustFail(t, []string{"plan"}, `bases[0]: app "crm" has no calendar "absent"`)
}

func TestMissingCalendarsAndAppsAreReported(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	f.run(t,
		resource.TestStep{
			Config: f.config(job(hook + `trigger {
				name       = "t"
				expression = "@daily"
				calendar   = "absent"
			}`)),
			ExpectError: words(`The calendar does not exist`),
		},
		resource.TestStep{
			Config:      f.config(app + calendar(`bases = ["absent"]`)),
			ExpectError: words(`bases[0]: app "crm" has no calendar "absent"`),
		},
		resource.TestStep{
			Config:      f.config(app + calendar(`bases = ["holidays"]`)),
			ExpectError: words(`bases[0]: calendar "holidays" builds on itself`),
		},
		resource.TestStep{
			Config:      strings.ReplaceAll(f.config(calendar("")), "carillon_app.a.name", `"gone"`),
			ExpectError: words(`there is no app "gone"`),
		},
	)
}

// The calendar of the trigger is removed outside of Terraform; the next apply restores it.
func TestRemovedCalendarOfTriggerIsPlannedAgain(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	config := f.config(named("holidays", ""))
	f.run(t,
		resource.TestStep{Config: config},
		resource.TestStep{
			PreConfig: do(t, func(ctx context.Context) error {
				return f.change(ctx, func(j *dispatcher.Job) {
					t := j.Triggers["t"]
					t.Calendar, t.Jitter = "", input.Duration(time.Minute)
					j.Triggers["t"] = t
				})
			}),
			Config:           config,
			ConfigPlanChecks: planned(action(plancheck.ResourceActionUpdate)),
			ConfigStateChecks: []statecheck.StateCheck{
				expect("trigger", "0", "calendar").stored("holidays"), expect("trigger", "0", "jitter").stored("0s"),
			},
		},
	)
}

func TestCalendarExampleIsAppliedAndDestroyed(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	d := f.directory(t, providerBlock(""), contents(t, filepath.Join(examplesDir, "resources", "carillon_calendar", "resource.tf")))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "4 added")
	d.must(t, "plan", "-detailed-exitcode")
	mustSay(t, d.must(t, "destroy", "-auto-approve"), "4 destroyed")
}
