package run

import (
	"slices"
)

// FollowEvent is an event of a job that may have followers. Its name is the field of the job.
type FollowEvent string

// The events. A run that was cancelled or skipped has none, so nothing follows it.
const (
	OnSuccess FollowEvent = "on_success" // a run succeeded
	OnFailure FollowEvent = "on_failure" // a run ended as failed, timed_out or lost
	OnMisfire FollowEvent = "on_misfire" // a decision about missed fires; see Misfire
)

// FollowEvents are all events.
var FollowEvents = []FollowEvent{OnSuccess, OnFailure, OnMisfire}

// FollowMask is the set of a job's events that have followers, and whether alerts watch the job, as a sum.
type FollowMask int

// The parts of a FollowMask.
const (
	FollowsSuccess FollowMask = 1 << iota // the job has on_success
	FollowsFailure                        // the job has on_failure
	FollowsMisfire                        // the job has on_misfire
	FollowsAlerts                         // alerts watch the job
)

// Mask returns the part of a FollowMask that stands for an event.
func (e FollowEvent) Mask() FollowMask { return 1 << max(slices.Index(FollowEvents, e), 0) }

// Ref is a run that followed another one.
type Ref struct {
	Run string `json:"run" schema:"RunID"`
	App string `json:"app"`
	// Job is the name of the job. For a delivery to a target it is the name of the followed job, a dot and On.
	Job   string      `json:"job"`
	On    FollowEvent `json:"on"`
	State State       `json:"state"`
}

// ChainLink is the place of runs in a chain; see Cause.
type ChainLink struct{ Depth, MayFollow int }
