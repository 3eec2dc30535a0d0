package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// AlertNotification is what one transition of an alert tells people. It is the input of the run that delivers it, and the
// body of a request in format carillon. It holds no link, because a node does not know where people reach it.
type AlertNotification struct {
	App   string `json:"app"`
	Alert string `json:"alert"`
	// Job is the job that the alert is about; empty only in a test.
	Job       string         `json:"job,omitempty"`
	Condition AlertCondition `json:"condition"`
	// Transition is what happened at At.
	Transition AlertTransition `json:"transition"`
	At         time.Time       `json:"at"`
	// Since is when the condition began to hold.
	Since time.Time `json:"since"`
	// Count is how often in a row it was met since then, for example of failures; 0: the condition has no count.
	Count int `json:"count,omitempty"`
	// Trigger, Run, Class, Error and ScheduledAt describe the run, or the missed fire, that caused the transition. They are
	// empty if none did; but for an objective, Error says how fast the error budget burns.
	Trigger     string     `json:"trigger,omitempty"`
	Run         string     `json:"run,omitempty"`
	Class       run.Class  `json:"class,omitempty"`
	Error       string     `json:"error,omitempty"`
	ScheduledAt *time.Time `json:"scheduled_at,omitempty"`
	// LateBy is how late the run began, or how long it has been overdue or running; 0: that is not what the alert is about.
	LateBy input.Duration `json:"late_by,omitempty"`
	// Description is that of the alert, and Labels are those of the job.
	Description string       `json:"description,omitempty"`
	Labels      input.Labels `json:"labels,omitempty"`
	// Sequence counts the transitions of the alert for the job and the condition, so that a receiver can put aside a
	// notification that comes after a later one.
	Sequence int64 `json:"sequence"`
	// By and Reason are who acknowledged, and why. A condition that ended without the job has a reason as well, such as that
	// the job was deleted.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// AlertCondition is what an alert watches.
type AlertCondition string

// The conditions.
const (
	AlertFailure   AlertCondition = "failure"    // runs failed, timed out or were lost
	AlertMissed    AlertCondition = "missed"     // a fire was missed
	AlertLate      AlertCondition = "late"       // a run began late, or has not begun
	AlertOverrun   AlertCondition = "overrun"    // a run takes too long
	AlertNoSuccess AlertCondition = "no_success" // nothing succeeded for a time
	AlertObjective AlertCondition = "objective"  // the error budget of the job's objective burns too fast
)

// AlertConditions are all conditions.
var AlertConditions = []AlertCondition{AlertFailure, AlertMissed, AlertLate, AlertOverrun, AlertNoSuccess, AlertObjective}

// AlertTransition is what a notification tells of a condition.
type AlertTransition string

// The transitions.
const (
	AlertFiring       AlertTransition = "firing"       // it holds now
	AlertStillFiring  AlertTransition = "still_firing" // it still holds, after as many more failures as the alert repeats at
	AlertResolved     AlertTransition = "resolved"     // it holds no longer
	AlertAcknowledged AlertTransition = "acknowledged" // a person knows of it
	AlertTest         AlertTransition = "test"         // somebody tests the destination
)
