package run

import (
	"fmt"
	"time"

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

// waitNames name the reasons in sentences.
var waitNames = map[WaitReason]string{WaitSlot: "a slot of its job", WaitCircuit: "its host, which failed too often",
	WaitHostRate: "the rate of its host", WaitOther: "the run that it tells about"}

// SlotWait is the slot of its job, or of an endpoint, that a run waits for.
type SlotWait struct {
	// Run has the slot; of several slots, it has had one for longest. Since is when it got the slot. Both are set when
	// a single run is read, unless the slot has just become free.
	Run string `json:"run,omitempty" schema:"RunID"`
	// When it got the slot.
	Since *time.Time `json:"since,omitempty"`
}

// taken says which run has the slot, in words that follow its name; otherwise, if that is not known.
func (w *SlotWait) taken(otherwise string) string {
	if w == nil || w.Since == nil {
		return otherwise
	}
	return ", which run " + w.Run + " has had since " + input.FormatInstant(*w.Since)
}

// place says which place it is, in words that follow the queue.
func (q *QueuePlace) place() string {
	if q == nil {
		return ""
	}
	return fmt.Sprintf(", as number %d of %d", q.Place, q.Of)
}

// Waiting says what a run waits for, in words that follow its name. It is empty for runs that are not held, retrying
// or spread, and do not wait for a slot.
func (r *Run) Waiting() string {
	switch {
	case r.Held != "":
		return "waits, because " + r.Held
	case r.WaitsForEndpoint != "":
		return "waits for endpoint " + r.WaitsForEndpoint + r.SlotWait.taken(", at which another run of the job is under way")
	case r.SlotWait != nil || r.Queue != nil:
		return "waits for a slot of its job" + r.SlotWait.taken("") + r.Queue.place()
	case r.State == WaitingShards && r.Shards != nil:
		return fmt.Sprintf("waits for %d of its %d shards; %d succeeded, %d failed", r.Shards.Live, r.Shards.Total,
			r.Shards.Succeeded, r.Shards.Failed)
	case r.State == WaitingShards:
		return "waits for its shards"
	case r.Callback != nil:
		return "waits for the callback of its target until " + input.FormatInstant(r.Callback.Deadline)
	case r.State != Retrying:
		return ""
	case r.Class == ClassHostRate && r.NextAttemptAt != nil:
		return "waits for the rate of its host until " + input.FormatInstant(*r.NextAttemptAt)
	case r.WaitsFor != "" && r.ProbeAt == nil:
		return "waits for host " + r.WaitsFor + ", which responds again"
	case r.WaitsFor != "":
		return "waits for host " + r.WaitsFor + ", whose circuit is open; the next probe is at " + input.FormatInstant(*r.ProbeAt)
	case r.NextAttemptAt != nil:
		return "waits for its next attempt at " + input.FormatInstant(*r.NextAttemptAt)
	}
	return ""
}

// HasWaited says how long a run waited before its first attempt, and for what; empty if its job did not ask for that.
func (r *Run) HasWaited() string {
	began := r.Began()
	if r.Waited == "" || began == nil || r.Kind != KindSchedule && r.Kind != KindManual {
		return ""
	}
	return input.Duration(began.Sub(r.ScheduledAt)).Rounded() + " for " + waitNames[r.Waited]
}
