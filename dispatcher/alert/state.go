package alert

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// State is what is known of one condition of an alert for one job. There is one while the condition holds, while failures
// are counted towards it, and for some time after it ended; and for as long as time is measured for it.
type State struct {
	App       string                `json:"app"`
	Alert     string                `json:"alert"`
	Job       string                `json:"job"`
	Condition target.AlertCondition `json:"condition"`
	// Firing is whether the condition holds.
	Firing bool `json:"firing"`
	// Since is when Firing began to be what it is.
	Since time.Time `json:"since"`
	// Count is how many failures in a row, or missed fires, there were.
	Count int `json:"count"`
	// Run, Class and Error are those of the latest run that the condition was met by; empty: none. For an objective, Error says
	// how fast the error budget burned.
	Run   string    `json:"run,omitempty" schema:"RunID"`
	Class run.Class `json:"class,omitempty"`
	// Of the latest run that the condition was met by; for objective, how fast the error budget burned.
	Error string `json:"error,omitempty"`
	// Sequence counts the transitions.
	Sequence int64 `json:"sequence"`
	// Acknowledged is who knows of it; nil: nobody said so.
	Acknowledged *AcknowledgedAlert `json:"acknowledged,omitempty"`
	// MutedUntil is when the mute that keeps its notification back ends; nil: none does. A mute without an end ends in 9999.
	MutedUntil *time.Time `json:"muted_until,omitempty"`
	// Notification is the latest one; nil: there was none yet.
	Notification *Delivery `json:"notification,omitempty"`
}

// AcknowledgedAlert says who knows that a condition holds. Until it ends, nobody is told that the condition still holds. It ends
// when the condition does, which is notified.
type AcknowledgedAlert struct {
	By     string     `json:"by"`
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until,omitempty"` // nil: until the condition ends
	Reason string     `json:"reason,omitempty"`
}

// Delivery is what became of a notification.
type Delivery struct {
	// Run is the id of the run that delivers it.
	Run        string                 `json:"run" schema:"RunID"`
	Transition target.AlertTransition `json:"transition"`
	At         time.Time              `json:"at"`
	// State is that of the run; empty: its history was removed. Failed, timed_out and lost: nobody was told. Class and Error say why.
	State run.State `json:"state,omitempty"`
	Class run.Class `json:"class,omitempty"`
	Error string    `json:"error,omitempty"`
}

// Acknowledgement is a request to acknowledge, by its body.
type Acknowledgement struct {
	Job string `json:"job" schema:"Name,required"`
	// Condition is the one that holds; empty: all of the alert that hold for the job.
	Condition target.AlertCondition `json:"condition,omitempty"`
	// Until is when it ends, in the future; nil: when the condition does.
	Until *time.Time `json:"until,omitempty"`
	// Reason is free text of at most 1024 characters.
	Reason string `json:"reason,omitempty" schema:"max=1024"`
}

// Validate returns everything wrong with a, as Problems, or nil.
func (a Acknowledgement) Validate() error {
	var problems input.Problems
	input.CheckName(&problems, "/job", a.Job)
	if a.Condition != "" {
		input.CheckEnum(&problems, "/condition", "condition", a.Condition, target.AlertConditions)
	}
	input.CheckText(&problems, "/reason", a.Reason)
	return problems.Err()
}

// Covers tells whether a is about a condition.
func (a Acknowledgement) Covers(condition target.AlertCondition) bool {
	return a.Condition == "" || a.Condition == condition
}

// Decide returns what is noted of a that is made at now. The error is Problems.
func (a Acknowledgement) Decide(by input.Change, now time.Time) (AcknowledgedAlert, error) {
	return AcknowledgedAlert{By: by.Actor, At: now, Until: input.WholeMillis(a.Until), Reason: a.Reason}, checkUntil(a.Until, now)
}

// Event is one transition of the past. It is kept as long as the app's history.
type Event struct {
	At         time.Time              `json:"at"`
	Alert      string                 `json:"alert"`
	Job        string                 `json:"job"`
	Condition  target.AlertCondition  `json:"condition"`
	Transition target.AlertTransition `json:"transition"`
	Sequence   int64                  `json:"sequence"`
	Count      int                    `json:"count,omitempty"`
	// Run, Class and Error are those of the run that caused it; empty: none did. For an objective, Error is as in State.
	Run   string    `json:"run,omitempty" schema:"RunID"`
	Class run.Class `json:"class,omitempty"`
	Error string    `json:"error,omitempty"`
	// Notified is whether it was notified at once; if not, Kept says why: muted, acknowledged, recovery, or not_told, for the end of
	// something that nobody was told of.
	Notified bool `json:"notified"`
	// Why it was not: the alert was muted, somebody had acknowledged, it does not tell of recoveries, or it
	// ended before anybody was told that it began.
	Kept Kept `json:"kept,omitempty"`
	// By and Reason are as those of AlertNotification.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Cursor is the key of the event in lists.
	Cursor string `json:"-"`
}

// Kept is why a transition is not notified.
type Kept string

// The reasons.
const (
	KeptMuted        Kept = "muted"        // what still holds at the end of the mute is notified then
	KeptAcknowledged Kept = "acknowledged" // a person knows already
	KeptRecovery     Kept = "recovery"     // the alert does not tell of recoveries
	KeptUntold       Kept = "not_told"     // it ended before anybody was told that it began
)
