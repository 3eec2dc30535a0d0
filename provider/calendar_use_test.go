package provider_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

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

