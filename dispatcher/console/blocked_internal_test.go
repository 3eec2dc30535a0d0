package console

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestJobIsBlockedByASlotThatIsHeldForUnusuallyLong(t *testing.T) {
	t.Parallel()
	at := func(minutes int) time.Time {
		return time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC).Add(time.Duration(minutes) * time.Minute)
	}
	holder := run.Key{TriggerID: 7, ScheduledAt: at(10), Kind: run.KindSchedule}
	ran := run.Run{ScheduledAt: at(0), State: run.Succeeded, Attempt: 1, StartedAt: new(at(0)), EndedAt: new(at(9))}
	later := func(minute int, state run.State, attempt int) run.Run {
		return run.Run{ScheduledAt: at(minute), State: state, Attempt: attempt}
	}
	skips := []run.Run{later(13, run.Skipped, 0), later(12, run.Skipped, 0), later(11, run.Skipped, 0), ran}
	for name, tt := range map[string]struct {
		runs    []run.Run
		now     int
		blocked bool
	}{
		"after three times the longest run": {skips, 38, true},
		"before that":                       {skips, 37, false},
		"two fires were skipped":            {skips[1:], 60, false},
		"a later run has begun":             {append([]run.Run{later(14, run.Running, 1)}, skips...), 60, false},
		"a run has waited for long":         {[]run.Run{later(50, run.Queued, 0), ran}, 60, true},
		"a run waits":                       {[]run.Run{later(51, run.Queued, 0), ran}, 60, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := blockedBy([]dispatcher.Slot{{Run: holder.String(), Since: at(10)}}, tt.runs, at(tt.now))
			if (got != nil) != tt.blocked {
				t.Errorf("blocked by %v, want that it is blocked: %v", got, tt.blocked)
			}
		})
	}
	if got := blockedBy(nil, skips, at(60)); got != nil {
		t.Errorf("without a slot, it is blocked by %v", got)
	}
}
