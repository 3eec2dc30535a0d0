package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Anyone who asks why a trigger does not fire finds its bounds, its calendar and its rules for daylight saving.
func TestRulesOfASchedule(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	end := start.AddDate(1, 0, 0)
	var all lines
	addRules(&all, dispatcher.Schedule{StartAt: &start, EndAt: &end, RepeatCount: 7, Gap: schedule.GapNext, Overlap: schedule.OverlapFirst,
		DriftHour: true, Calendar: "holidays", Jitter: input.Duration(time.Minute)})
	var got []string
	for _, row := range all.table.rows {
		got = append(got, fmt.Sprintf("%s: %s", row[0], cellOf(row[1], false)))
	}
	want := []string{"  starts: 2026-12-01T06:00:00.000Z", "  ends: 2027-12-01T06:00:00.000Z", "  repeat count: 7",
		`  calendar: holidays (on_excluded = "skip")`, "  gap: next", "  overlap: first", "  drift hour: yes", "  jitter: up to 1m0s"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	var none lines
	if addRules(&none, dispatcher.Schedule{Expression: "rate(1h)"}); len(none.table.rows) > 0 {
		t.Errorf("a schedule without rules has %q", none.table.rows)
	}
}
