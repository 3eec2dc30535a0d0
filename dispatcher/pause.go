package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Pause says who paused a job or a trigger, when, and why. It is empty for what is not paused.
type Pause struct {
	// PausedBy is the actor that the audit log names: a token, or the command line.
	PausedBy string     `json:"paused_by,omitempty"`
	PausedAt *time.Time `json:"paused_at,omitempty"`
	// PauseReason and PausedUntil are what PauseRequest gave.
	PauseReason string     `json:"pause_reason,omitempty"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
}

// PauseRequest is the body of a request to pause a job or a trigger, which may be left out.
type PauseRequest struct {
	// Reason is shown with the pause; free text of at most 1024 characters.
	Reason string `json:"reason,omitempty"`
	// Until is when the pause ends by itself, within a handler interval; nil: somebody has to end it.
	Until *time.Time `json:"until,omitempty"`
}

// Validate returns everything wrong with p, as Problems, or nil.
func (p PauseRequest) Validate() error {
	var problems input.Problems
	input.CheckText(&problems, "/reason", p.Reason)
	return problems.Err()
}
