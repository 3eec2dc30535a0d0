package console

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func TestCalendarShowsTheLatestExcludedFires(t *testing.T) {
	t.Parallel()
	weekdays := dispatcher.Calendar{App: "billing", Name: "weekdays",
		CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{Weekdays: []string{"SAT", "SUN"}}}}}
	saturday := time.Date(2026, 11, 28, 18, 0, 0, 0, time.UTC)
	for expression, want := range map[string]struct {
		latest  time.Time
		shown   int
		partial bool
	}{
		"0 */5 * * * ?": {saturday, 100, true},
		"* * * * * ?":   {saturday, 100, true},
		"0 0 6 * * ?":   {saturday.Add(-12 * time.Hour), 2, false}, // and the Sunday before
		"0 0 6 ? * MON": {},
	} {
		job := dispatcher.Job{App: "billing", Name: "mails", JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{
			"t": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: expression, Dialect: schedule.DialectQuartz,
				Timezone: "UTC", Calendar: "weekdays"}}},
		}}}
		page := calendarPage{Calendar: weekdays, From: saturday.Add(-excludedSpan), To: saturday}
		page.findExcluded(t.Context(), []dispatcher.Job{job}, []dispatcher.Calendar{weekdays})
		if len(page.Excluded) != want.shown || page.Partial != want.partial {
			t.Errorf("%s: %d fires, partial %v; want %d, %v", expression, len(page.Excluded), page.Partial, want.shown, want.partial)
		}
		if want.shown > 0 && len(page.Excluded) > 0 && !page.Excluded[0].At.Equal(want.latest) {
			t.Errorf("%s: the latest is of %s, want %s", expression, page.Excluded[0].At, want.latest)
		}
	}
}
