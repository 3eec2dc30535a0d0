package schedule_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func TestPreviousIsTheLastInstantBefore(t *testing.T) {
	t.Parallel()
	weekend := schedule.CalendarRule{Weekdays: []string{"SAT", "SUN"}}
	calendar, err := schedule.NewCalendar(schedule.CalendarSpec{Rules: []schedule.CalendarRule{weekend}})
	if err != nil {
		t.Fatal(err)
	}
	start := instant(t, "2026-05-01T00:00:00Z")
	for name, tt := range map[string]struct {
		spec     schedule.Spec
		at, want string
	}{
		"an instant is not its own previous": {
			schedule.Spec{Expression: "0/5 * * * * ?"}, "2026-03-29T01:00:05Z", "2026-03-29T01:00:00Z",
		},
		"a moment later it is": {
			schedule.Spec{Expression: "0/5 * * * * ?"}, "2026-03-29T01:00:05.000001Z", "2026-03-29T01:00:05Z",
		},
		"leap days": {
			schedule.Spec{Expression: "0 0 29 2 *"}, "2027-01-01T00:00:00Z", "2024-02-29T00:00:00Z",
		},
		"a skipped hour": {
			schedule.Spec{Expression: "30 2 * * *", Timezone: "Europe/Berlin"}, "2026-03-30T00:30:00Z",
			"2026-03-28T01:30:00Z",
		},
		"a repeated hour": {
			schedule.Spec{Expression: "30 2 * * *", Timezone: "Europe/Berlin"}, "2026-10-26T01:30:00Z",
			"2026-10-25T01:30:00Z",
		},
		"over an excluded weekend": {
			schedule.Spec{Expression: "0 9 * * *", Calendar: calendar}, "2026-05-04T09:00:00Z",
			"2026-05-01T09:00:00Z",
		},
		"dense, and long over": {
			schedule.Spec{Expression: "* * * * * ?", EndAt: start}, "2030-01-01T00:00:00Z", "2026-05-01T00:00:00Z",
		},
		"the start": {
			schedule.Spec{Expression: "rate(1h)", StartAt: start}, "2026-05-01T01:00:00Z", "2026-05-01T00:00:00Z",
		},
		"none before the start":  {schedule.Spec{Expression: "rate(1h)", StartAt: start}, "2026-05-01T00:00:00Z", ""},
		"none before its anchor": {schedule.Spec{Expression: "rate(1h)", Anchor: start}, "2026-05-01T01:00:00Z", ""},
		"one instant":            {schedule.Spec{Expression: "at(2026-05-01T00:00:00Z)"}, "2026-05-01T00:00:00Z", ""},
		"after the one": {
			schedule.Spec{Expression: "at(2026-05-01T00:00:00Z)"}, "2099-05-01T00:00:00Z", "2026-05-01T00:00:00Z",
		},
		"a fixed delay": {schedule.Spec{Expression: "delay(1m)", Anchor: start}, "2030-01-01T00:00:00Z", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := schedule.Parse(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := s.Previous(instant(t, tt.at))
			if ok != (tt.want != "") || ok && !got.Equal(instant(t, tt.want)) {
				t.Errorf("Previous(%s) = %v, %v, want %q", tt.at, got, ok, tt.want)
			}
		})
	}
}

func TestPreviousUndoesNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, err := schedule.Parse(specs.Draw(t, "spec"))
		if err != nil {
			t.Skip() // also with CI=true: the draw is skipped, not the test
		}
		at := instants.Draw(t, "at")
		previous, ok := s.Previous(at)
		if !ok {
			// Then no instant from 1970 on may be before at.
			if first, some := s.Next(time.UnixMilli(-1)); some && first.Before(at) {
				t.Fatalf("Previous(%s) finds none, but there is %s", at, first)
			}
			return
		}
		next, some := s.Next(previous)
		again, is := s.Next(previous.Add(-time.Millisecond))
		if !is || !again.Equal(previous) || !previous.Before(at) || some && next.Before(at) {
			t.Fatalf("Previous(%s) = %s, after which comes %s (%v)", at, previous, next, some)
		}
	})
}
