package run

import (
	"testing"
	"time"
)

func TestRetryingRunReportsItsWait(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	for want, run := range map[string]Run{
		"waits for its next attempt at 2026-05-01T10:00:00.000Z": {State: Retrying, NextAttemptAt: &at},
		"waits for host h:443, whose circuit is open; the next probe is at 2026-05-01T10:00:00.000Z": {
			State: Retrying, WaitsFor: "h:443", ProbeAt: &at,
		},
		"waits for host h:443, which responds again":                           {State: Retrying, WaitsFor: "h:443"},
		"waits for endpoint w-1, at which another run of the job is under way": {State: Queued, WaitsForEndpoint: "w-1"},
		"": {State: Failed, NextAttemptAt: &at},
	} {
		if got := run.Waiting(); got != want {
			t.Errorf("Waiting() of %+v = %q, want %q", run, got, want)
		}
	}
}
