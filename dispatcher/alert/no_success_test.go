package alert

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A job with a schedule that has ended misses no success, until it is changed.
func TestNoSuccessIsNotMissedAfterTheLastFire(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	ended := func(after time.Time) (time.Time, bool) { return noon, after.Before(noon) }
	alert := Alert{Spec: Spec{AlertConditionsOf: AlertConditionsOf{NoSuccessFor: input.Duration(time.Hour)}}}
	for name, tt := range map[string]struct {
		succeeded time.Time
		fires     bool
	}{
		"the last fire succeeded": {noon.Add(time.Second), false},
		"the last fire failed":    {noon.Add(-time.Minute), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			track := Track{Condition: target.AlertNoSuccess, MeasuredFrom: tt.succeeded, LookAt: tt.succeeded.Add(time.Hour)}
			for range 5 {
				track, _ = track.Look(alert, Rule{After: 1, Recovery: true}, Facts{Watched: true, LastSuccess: tt.succeeded, Next: ended}, track.LookAt)
			}
			if track.Firing != tt.fires {
				t.Errorf("firing: %v, want %v", track.Firing, tt.fires)
			}
		})
	}
}

// The time without success counts only while fires are scheduled.
func TestNoSuccessKnowsTheSchedule(t *testing.T) {
	t.Parallel()
	const layout = "2006-01-02T15:04:05"
	for name, tt := range map[string]struct {
		expression     string // empty: without a schedule
		bound          time.Duration
		succeeded, due string // when it fires, to the second
	}{
		"a daily job":                     {"0 0 2 * * ?", 26 * time.Hour, "2026-03-04T02:00:30", "2026-03-05T04:00:30"},
		"a job of weekdays on a Thursday": {"0 0 2 ? * MON-FRI", 26 * time.Hour, "2026-03-05T02:00:30", "2026-03-06T04:00:30"},
		"a job of weekdays on a Friday":   {"0 0 2 ? * MON-FRI", 26 * time.Hour, "2026-03-06T02:00:30", "2026-03-09T04:00:00"},
		"a frequent job of weekdays":      {"0 0/5 * ? * MON-FRI", time.Hour, "2026-03-06T23:55:02", "2026-03-09T00:55:00"},
		"a job that fires too seldom":     {"0 0 2 ? * MON", 26 * time.Hour, "2026-03-02T02:00:30", "2026-03-10T04:00:00"},
		"a job without a schedule":        {"", 26 * time.Hour, "2026-03-06T02:00:30", "2026-03-07T04:00:30"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			instant := func(text string) time.Time {
				at, err := time.Parse(layout, text)
				if err != nil {
					t.Fatal(err)
				}
				return at
			}
			facts := Facts{Watched: true, LastSuccess: instant(tt.succeeded)}
			if tt.expression != "" {
				s, err := schedule.Parse(schedule.Spec{Expression: tt.expression})
				if err != nil {
					t.Fatal(err)
				}
				facts.Next = s.Next
			}
			alert := Alert{Spec: Spec{AlertConditionsOf: AlertConditionsOf{NoSuccessFor: input.Duration(tt.bound)}}}
			track := Track{Condition: target.AlertNoSuccess, MeasuredFrom: facts.LastSuccess, LookAt: facts.LastSuccess.Add(tt.bound)}
			for looks := 0; !track.Firing; looks++ {
				if looks == 5 {
					t.Fatalf("it does not fire; %+v", track)
				}
				now := track.LookAt
				var made []Made
				if track, made = track.Look(alert, Rule{After: 1, Recovery: true}, facts, now); len(made) > 0 && !now.Equal(instant(tt.due)) {
					t.Errorf("fires at %s, want %s", now.Format(layout), tt.due)
				}
			}
		})
	}
}
