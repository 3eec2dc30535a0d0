package alert

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// State is the state of one condition of an alert for one job. It exists while the condition holds, while failures
// are counted towards it, for some time after its end, and as long as time is measured for it.
type State struct {
	App       string                `json:"app"`
	Alert     string                `json:"alert"`
	Job       string                `json:"job"`
	Condition target.AlertCondition `json:"condition"`
	// Firing is whether the condition holds.
	Firing bool `json:"firing"`
	// Since is when Firing last changed.
	Since time.Time `json:"since"`
	// Severity is that of incidents at the destination of the alert; empty if it has none.
	Severity target.AlertSeverity `json:"severity,omitempty"`
	// Count is the number of failures in a row, or of missed fires.
	Count int `json:"count"`
	// Run, Class and Error are from the latest run that met the condition; empty if there is none. For an objective,
	// Error says how fast the error budget burned.
	Run   string    `json:"run,omitempty" schema:"RunID"`
	Class run.Class `json:"class,omitempty"`
	// The error of the latest run that met the condition; for objective, how fast the error budget burned.
	Error string `json:"error,omitempty"`
	// Sequence counts the transitions.
	Sequence int64 `json:"sequence"`
	// Acknowledged is who acknowledged it; nil without an acknowledgement.
	Acknowledged *AcknowledgedAlert `json:"acknowledged,omitempty"`
	// MutedUntil is when the mute that holds its notification back ends; nil if none. An endless mute ends in 9999.
	MutedUntil *time.Time `json:"muted_until,omitempty"`
	// Notification is the latest notification; nil if there was none yet.
	Notification *Delivery `json:"notification,omitempty"`
}

// Compare orders states: by severity, then by condition, and those with the same words next to each other.
func (s State) Compare(o State) int {
	rank := func(s State) int {
		return s.Severity.Rank()*len(target.AlertConditions) + slices.Index(target.AlertConditions, s.Condition)
	}
	return cmp.Or(cmp.Compare(rank(s), rank(o)), cmp.Compare(s.App, o.App), cmp.Compare(s.Alert, o.Alert), cmp.Compare(s.Class, o.Class),
		cmp.Compare(s.Error, o.Error), cmp.Compare(s.Job, o.Job))
}

// Alike reports whether two states are of the same condition of an alert, with the same words.
func (s State) Alike(o State) bool {
	return s.App == o.App && s.Alert == o.Alert && s.Condition == o.Condition && s.Class == o.Class && s.Error == o.Error
}

// AcknowledgedAlert says who knows about a condition. Until it ends, the condition is not notified again. The end of
// the condition ends it, and is notified.
type AcknowledgedAlert struct {
	By     string     `json:"by"`
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until,omitempty"` // nil if it ends with the condition
	Reason string     `json:"reason,omitempty"`
}

// Delivery is the state of a notification.
type Delivery struct {
	// Run is the id of the run that delivers it.
	Run        string                 `json:"run" schema:"RunID"`
	Transition target.AlertTransition `json:"transition"`
	At         time.Time              `json:"at"`
	// To names the destination of the alert; empty if the alert was deleted.
	To string `json:"to,omitempty"`
	// State is the state of the run; empty if its history was removed. After failed, timed_out and lost, the
	// notification was not delivered; Class and Error say why.
	State run.State `json:"state,omitempty"`
	Class run.Class `json:"class,omitempty"`
	Error string    `json:"error,omitempty"`
}

// Fails reports whether a notification was not delivered, though an attempt was made.
func (d *Delivery) Fails() bool {
	return d != nil && d.Class != "" && d.State != run.Succeeded && d.State != run.Cancelled
}

// Acknowledgement is a request to acknowledge, by its body.
type Acknowledgement struct {
	Job string `json:"job" schema:"Name,required"`
	// Condition is the acknowledged condition; empty means all conditions of the alert that hold for the job.
	Condition target.AlertCondition `json:"condition,omitempty"`
	// Until is when it ends, in the future; nil if it ends with the condition.
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

// Covers reports whether a is about a condition.
func (a Acknowledgement) Covers(condition target.AlertCondition) bool {
	return a.Condition == "" || a.Condition == condition
}

// Decide returns the stored form of a, which is made at now. The error is Problems.
func (a Acknowledgement) Decide(by input.Change, now time.Time) (AcknowledgedAlert, error) {
	return AcknowledgedAlert{By: by.Actor, At: now, Until: input.WholeMillis(a.Until), Reason: a.Reason}, checkUntil(a.Until, now)
}

// Event is one past transition. It is kept as long as the app's history.
type Event struct {
	At         time.Time              `json:"at"`
	Alert      string                 `json:"alert"`
	Job        string                 `json:"job"`
	Condition  target.AlertCondition  `json:"condition"`
	Transition target.AlertTransition `json:"transition"`
	Sequence   int64                  `json:"sequence"`
	Count      int                    `json:"count,omitempty"`
	EventRun
	// Notified is whether its notification was delivered. If not, Kept says why none was sent, or Notification what became
	// of it.
	Notified bool `json:"notified"`
	// Why no notification was sent: it was muted or acknowledged, the alert omits recoveries, or the condition was never
	// notified.
	Kept Kept `json:"kept,omitempty"`
	// Notification is the delivery; nil if none was sent.
	Notification *Delivery `json:"notification,omitempty"`
	// By and Reason are as in AlertNotification.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Cursor is the key of the event in lists.
	Cursor string `json:"-"`
}

// EventRun is the run that caused an Event, if any. For an objective, Error is as in State.
type EventRun struct {
	Run   string    `json:"run,omitempty" schema:"RunID"`
	Class run.Class `json:"class,omitempty"`
	Error string    `json:"error,omitempty"`
}

// Kept is why a transition is not notified.
type Kept string

// The reasons.
const (
	KeptMuted        Kept = "muted"        // conditions that still hold at the end of the mute are notified then
	KeptAcknowledged Kept = "acknowledged" // a person knows already
	KeptRecovery     Kept = "recovery"     // the alert does not notify recoveries
	KeptUntold       Kept = "not_told"     // the condition ended before it was notified
	KeptFailing      Kept = "failing"      // the alert has told that the job fails, which explains late and no_success
	KeptTooSoon      Kept = "too_soon"     // its end was notified in the last minutes; it is notified if it still holds then
)
