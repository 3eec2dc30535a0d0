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
		"waits for the rate of its host until 2026-05-01T10:00:00.000Z":        {State: Retrying, Class: ClassHostRate, NextAttemptAt: &at},
		"waits for a slot of its job, which run r1 has had since 2026-05-01T10:00:00.000Z": {
			State: Queued, SlotWait: &SlotWait{Run: "r1", Since: &at},
		},
		"": {State: Failed, NextAttemptAt: &at},
	} {
		if got := run.Waiting(); got != want {
			t.Errorf("Waiting() of %+v = %q, want %q", run, got, want)
		}
	}
}

func TestRunThatBeganLateReportsItsWait(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	began := at.Add(75*time.Second + 230*time.Millisecond)
	for why, want := range map[WaitReason]string{
		WaitSlot: "1m15s for a slot of its job", WaitCircuit: "1m15s for its host, which failed too often",
		WaitHostRate: "1m15s for the rate of its host", WaitOther: "1m15s for the run that it tells about", "": "",
	} {
		r := Run{Kind: KindSchedule, ScheduledAt: at, Attempt: 1, StartedAt: &began, Waited: why}
		if got := r.HasWaited(); got != want {
			t.Errorf("HasWaited() after %q = %q, want %q", why, got, want)
		}
	}
}
