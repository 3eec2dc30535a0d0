package dispatcher_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// A preview would be useless if the declared trigger fired at other times.
func TestPreviewMatchesADeclaredTrigger(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{minutely, "rate(7 minutes)", "at(2026-03-02T10:00:01Z)", "0 0 12 ? * MON#2"} {
		asked := view.PreviewRequest{Schedule: dispatcher.Schedule{Expression: expression}, From: &monday, Count: 1}
		preview, err := asked.Preview(t.Context(), nil, monday.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		declared, _ := revise(t, nil, job(expression), monday)
		if got := declared.Triggers["t"].NextFireTime; len(preview.FireTimes) != 1 || !got.Equal(preview.FireTimes[0]) {
			t.Errorf("%s: preview %v, declared %v", expression, preview.FireTimes, got)
		}
	}
}

// A preview must refuse schedules that a PUT refuses.
func TestPreviewRefusesInvalidSchedules(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{"", "delay(30d)", "0 0 30 2 *"} {
		asked := view.PreviewRequest{Schedule: dispatcher.Schedule{Expression: expression}, Count: 1}
		declared := job(minutely, withTrigger(func(t *dispatcher.Trigger) { t.Expression = expression }))
		var preview input.Problems
		preview.AddError("/triggers/t", asked.Validate())
		if diff := cmp.Diff(declared.Validate(), preview.Err()); diff != "" || len(preview) == 0 {
			t.Errorf("%q: faults (-trigger +preview):\n%s", expression, diff)
		}
	}
}

func TestPreviewResolvesAndEnds(t *testing.T) {
	t.Parallel()
	asked := view.PreviewRequest{
		Schedule: dispatcher.Schedule{Expression: minutely, RepeatCount: 2}, Count: 5,
	}
	got, err := asked.Preview(t.Context(), nil, monday)
	want := view.Preview{
		Schedule: dispatcher.Schedule{Expression: minutely, Dialect: schedule.DialectUnix, Timezone: "UTC", RepeatCount: 2},
		From:     monday, FireTimes: []time.Time{monday.Add(time.Minute), monday.Add(2 * time.Minute)},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Preview: %v (-want +got):\n%s", err, diff)
	}
}
