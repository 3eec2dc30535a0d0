package provider_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

// A story: between a plan and its apply, Ann changes a calendar and a job and deletes another job;
// later she changes the app. An apply overwrites none of it, and says who changed what and when.
func TestStoryConflictsSayWhoChangedWhatAndWhen(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		const dir = "testdata/conflict/"
		main := contents(t, dir+"main.tf")
		d := f.directory(t, main, providerBlock(""))
		d.must(t, "apply", "-auto-approve")
		ann, err := client.New(f.endpoint, f.newToken(t, access.APIToken{Name: "ann",
			TokenSpec: access.TokenSpec{Scopes: access.Scopes()}}), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		existing := client.Condition{Existing: true}
		since := time.Now().UTC().Truncate(time.Second)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		// refused plans other descriptions, lets Ann make a change, and returns the output of the apply.
		refused := func(resources string, does func()) string {
			d.rewrite(t, regexp.MustCompile(`(`+resources+`)" "\w+" {[^}]*?description += "`).ReplaceAllString(main, "${0}Planned: "))
			d.must(t, "plan", "-out=saved.plan")
			does()
			output := d.mustFail(t, []string{"apply", "saved.plan"})
			instant := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
			for _, text := range instant.FindAllString(output, -1) {
				if at, err := time.Parse(time.RFC3339, text); err != nil || at.Before(since) || at.After(time.Now()) {
					t.Errorf("changed at %s (%v), want an instant between %s and now", text, err, since)
				}
			}
			return errorsOf(instant.ReplaceAllString(output, "yyyy-mm-ddThh:mm:ssZ"))
		}

		golden(t, dir+"refused.txt", refused("job|calendar", func() {
			_, err := ann.PutCalendar(t.Context(), dispatcher.Calendar{App: "crm", Name: "weekends",
				CalendarSpec: dispatcher.CalendarSpec{Description: "Ann's"}}, existing)
			must(err)
			job, err := ann.Job(t.Context(), "crm", "nightly")
			must(err)
			job.Description = "Ann's"
			_, err = ann.PutJob(t.Context(), job, existing)
			must(err)
			must(ann.DeleteJob(t.Context(), "crm", "weekly", existing))
		}))
		golden(t, dir+"app_refused.txt", refused("app", func() {
			_, err := ann.PutApp(t.Context(), access.App{Name: "crm", AppSpec: access.AppSpec{Enabled: true, Description: "Ann's"}}, existing)
			must(err)
		}))
		stored, err := f.outside.App(t.Context(), "crm")
		must(err)
		calendar, err := f.outside.Calendar(t.Context(), "crm", "weekends")
		must(err)
		if got := strings.Join([]string{stored.Description, calendar.Description}, ", "); got != "Ann's, Ann's" {
			t.Errorf("the descriptions are %q, want Ann's", got)
		}
	})
}
