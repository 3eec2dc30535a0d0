package dispatcher_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestAttemptsOfARunShareATraceAndEachIsASpan(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-01$`)
	traces, spans := map[string]bool{}, map[string]bool{}
	for _, id := range []string{"evt_1", "evt_2"} {
		for attempt := 1; attempt <= 3; attempt++ {
			call := dispatcher.Call{EventID: id, Attempt: attempt}
			parts := form.FindStringSubmatch(call.Traceparent())
			if again := call.Traceparent(); parts == nil || again != parts[0] {
				t.Fatalf("traceparent of %s attempt %d = %q, then %q", id, attempt, parts, again)
			}
			traces[parts[1]], spans[parts[2]] = true, true
		}
	}
	if len(traces) != 2 || len(spans) != 6 {
		t.Errorf("2 runs of 3 attempts have %d traces and %d spans, want 2 and 6", len(traces), len(spans))
	}
}

func TestFencesGrow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	last := int64(0)
	for _, call := range []dispatcher.Call{
		{Key: dispatcher.RunKey{ScheduledAt: at}, Attempt: 1},
		{Key: dispatcher.RunKey{ScheduledAt: at}, Attempt: 2},
		{Key: dispatcher.RunKey{ScheduledAt: at}, Attempt: 999},
		{Key: dispatcher.RunKey{ScheduledAt: at.Add(time.Millisecond)}, Attempt: 1},
		{Key: dispatcher.RunKey{ScheduledAt: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}, Attempt: 5000},
	} {
		if fence := call.Fence(); fence <= last || int64(float64(fence)) != fence || fence > 1<<53 {
			t.Errorf("fence of %s attempt %d = %d after %d, want more, and exact as a float", call.Key.ScheduledAt, call.Attempt, fence, last)
		} else {
			last = fence
		}
	}
}
