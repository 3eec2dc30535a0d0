package dispatcher_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// A preview would be worth nothing if the declared trigger fired at other times.
func TestPreviewIsWhatATriggerDeclaredThenDoes(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{minutely, "rate(7 minutes)", "at(2026-03-02T10:00:01Z)", "0 0 12 ? * MON#2"} {
		asked := dispatcher.PreviewRequest{PreviewSchedule: dispatcher.PreviewSchedule{Expression: expression}, From: &monday, Count: 1}
		preview, err := asked.Preview(monday.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		declared, _ := revise(t, nil, job(expression), monday)
		if got := declared.Triggers["t"].NextFireTime; len(preview.FireTimes) != 1 || !got.Equal(preview.FireTimes[0]) {
			t.Errorf("%s: preview %v, declared %v", expression, preview.FireTimes, got)
		}
	}
}

// What a PUT refuses, a preview must not promise.
func TestPreviewRefusesWhatATriggerRefuses(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{"", "delay(30s)", "0 0 30 2 *"} {
		asked := dispatcher.PreviewRequest{PreviewSchedule: dispatcher.PreviewSchedule{Expression: expression}, Count: 1}
		if diff := cmp.Diff(trigger(expression).Validate(), asked.Validate()); diff != "" || asked.Validate() == nil {
			t.Errorf("%q: faults (-trigger +preview):\n%s", expression, diff)
		}
	}
}

func TestPreviewResolvesAndEnds(t *testing.T) {
	t.Parallel()
	asked := dispatcher.PreviewRequest{
		PreviewSchedule: dispatcher.PreviewSchedule{Expression: minutely, RepeatCount: 2}, Count: 5,
	}
	got, err := asked.Preview(monday)
	want := dispatcher.Preview{
		PreviewSchedule: dispatcher.PreviewSchedule{Expression: minutely, Dialect: schedule.DialectUnix, Timezone: "UTC", RepeatCount: 2},
		From:            monday, FireTimes: []time.Time{monday.Add(time.Minute), monday.Add(2 * time.Minute)},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Preview: %v (-want +got):\n%s", err, diff)
	}
}
