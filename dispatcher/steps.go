package dispatcher

import "time"

// StepRetries tells why a backfill or a bulk action does not go on.
type StepRetries struct {
	// Waits says why it does not go on now, such as a quota that is used up or a step that failed; empty: it does.
	Waits string `json:"waits,omitempty"`
	// Tries counts how often its next step has failed, and TryAt is when it is tried again; nil: it has not failed.
	Tries int        `json:"tries,omitempty"`
	TryAt *time.Time `json:"try_at,omitempty"`
}

// OpenSteps is a backfill or a bulk action that has not ended, and when its next step is tried again; zero: it has not failed.
type OpenSteps struct {
	ID    int64
	TryAt time.Time
}
