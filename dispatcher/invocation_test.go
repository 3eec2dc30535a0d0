package dispatcher_test

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestFencesGrow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	last := int64(0)
	for _, call := range []target.Call{
		{Key: run.Key{ScheduledAt: at}, Attempt: 1},
		{Key: run.Key{ScheduledAt: at}, Attempt: 2},
		{Key: run.Key{ScheduledAt: at}, Attempt: 999},
		{Key: run.Key{ScheduledAt: at.Add(time.Millisecond)}, Attempt: 1},
		{Key: run.Key{ScheduledAt: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}, Attempt: 5000},
	} {
		if fence := call.Fence(); fence <= last || int64(float64(fence)) != fence || fence > 1<<53 {
			t.Errorf("fence of %s attempt %d = %d after %d, want more, and exact as a float", call.Key.ScheduledAt, call.Attempt, fence, last)
		} else {
			last = fence
		}
	}
}
