package run

import (
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// WaitReason is what a run waited for before its first attempt.
type WaitReason string

// The reasons.
const (
	WaitSlot     WaitReason = "slot"                       // of its job, or of an endpoint
	WaitCircuit             = WaitReason(ClassCircuitOpen) // its host failed too often
	WaitHostRate            = WaitReason(ClassHostRate)    // too many requests to its host
	WaitOther               = WaitReason(ClassOther)       // the run that it tells about had not ended
)

// Waiting says what a run waits for, in words that follow its name. It is empty for runs that are not held, retrying
// or spread, and do not wait for an endpoint.
func (r *Run) Waiting() string {
	switch {
	case r.Held != "":
		return "waits, because " + r.Held
	case r.WaitsForEndpoint != "":
		return "waits for endpoint " + r.WaitsForEndpoint + ", at which another run of the job is under way"
	case r.State == WaitingShards && r.Shards != nil:
		return fmt.Sprintf("waits for %d of its %d shards; %d succeeded, %d failed", r.Shards.Live, r.Shards.Total,
			r.Shards.Succeeded, r.Shards.Failed)
	case r.State == WaitingShards:
		return "waits for its shards"
	case r.Callback != nil:
		return "waits for the callback of its target until " + input.FormatInstant(r.Callback.Deadline)
	case r.State != Retrying:
		return ""
	case r.WaitsFor != "" && r.ProbeAt == nil:
		return "waits for host " + r.WaitsFor + ", which responds again"
	case r.WaitsFor != "":
		return "waits for host " + r.WaitsFor + ", whose circuit is open; the next probe is at " + input.FormatInstant(*r.ProbeAt)
	case r.NextAttemptAt != nil:
		return "waits for its next attempt at " + input.FormatInstant(*r.NextAttemptAt)
	}
	return ""
}
