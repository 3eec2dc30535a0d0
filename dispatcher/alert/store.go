package alert

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Alerts are the alerts of apps, their states and events. Definitions are written as in Definitions.
//
// The notifications of an alert are runs of a job that belongs to it, of kind alert: they are delivered, retried, listed and
// cancelled as other runs. A transition is stored in the transaction that queues its notification.
type Alerts interface {
	// PutAlert creates or replaces an alert. It returns it as stored, without the values of its secrets, and whether it was
	// created. ErrNotFound: the app does not exist. Problems: the definition is wrong, outside the bounds of the app, or one
	// too many, or its secrets cannot be stored. States of conditions that the alert no longer has, and of jobs that it no
	// longer selects, end within two handler intervals, with a notification to the new destination.
	PutAlert(ctx context.Context, alert Alert, change input.Change) (stored Alert, created bool, err error)
	// Alert returns ErrNotFound if the alert does not exist.
	Alert(ctx context.Context, app, name string) (Alert, error)
	// Alerts lists alerts by name.
	Alerts(ctx context.Context, app string, page input.Page) ([]Alert, error)
	// DeleteAlert removes an alert with its states. Waiting notifications are not delivered. The events stay.
	DeleteAlert(ctx context.Context, app, name string, change input.Change) error

	// MuteAlert mutes an alert until mute.Until, or until UnmuteAlert, besides the windows of its definition. It
	// replaces the current mute. Problems: Until is in the past.
	MuteAlert(ctx context.Context, app, name string, mute Mute, change input.Change) (Alert, error)
	// UnmuteAlert lifts an operator's mute, but no window of the definition. Notifications that the mute held back
	// are sent within two handler intervals. Without a mute it changes nothing.
	UnmuteAlert(ctx context.Context, app, name string, change input.Change) (Alert, error)

	// AlertStates lists the states of an app, by alert, job and condition. ErrNotFound: no such app or alert.
	AlertStates(ctx context.Context, query StateQuery) ([]State, error)
	// AcknowledgeAlert acknowledges conditions that hold for a job, notifies this once, and returns their states.
	// ErrNotFound: no such alert. ErrConflict: no condition holds for the job. Problems: Until is in the past.
	AcknowledgeAlert(ctx context.Context, app, alert string, ack Acknowledgement, change input.Change) ([]State, error)
	// WithdrawAcknowledgement undoes AcknowledgeAlert, for a job and a condition (empty: all), without a
	// notification. ErrNotFound: the alert does not exist.
	WithdrawAcknowledgement(ctx context.Context, app, alert string, ack Acknowledgement, change input.Change) ([]State, error)

	// AlertEvents lists the transitions of an app, latest first, including those of deleted alerts and jobs.
	AlertEvents(ctx context.Context, query EventQuery) ([]Event, error)
	// TestAlert queues a notification with transition test, also while the alert is muted, and returns its run.
	TestAlert(ctx context.Context, app, alert string, change input.Change) (run.Run, error)
}

// StateQuery selects states. Empty fields select all.
type StateQuery struct {
	App, Alert, Job string
	// Firing selects conditions that hold.
	Firing bool
	Now    time.Time  // the time for MutedUntil
	Page   input.Page // the cursor is State.Cursor
}

// EventQuery selects events. Empty fields select all.
type EventQuery struct {
	App, Alert, Job string
	// From and To bound their times, both inclusive; zero means unbounded.
	From, To time.Time
	Page     input.Page // the cursor is Event.Cursor
}

// Cursor returns the key of s in lists.
func (s *State) Cursor() string { return s.Alert + "/" + s.Job + "/" + string(s.Condition) }

// AlertsWatched is the result of one call of WatchAlerts.
type AlertsWatched struct {
	Jobs     int  // jobs that follow a change of alerts now
	Looked   int  // states that were checked
	Late     int  // jobs with a fire that has not begun in time
	Notified int  // runs with notifications that were queued
	More     bool // more is to be done now
}

// AlertWatch has the work of the handler for alerts. Follows judges the ends of runs.
type AlertWatch interface {
	// WatchAlerts does a portion of the due work: it makes jobs follow changes of alerts, checks conditions that
	// depend on time, and finds further fires that have not begun in time, at most limit of each. The first call of a
	// round gets a zero LateFire, the next one the result of the call before, which is nil at the end.
	WatchAlerts(ctx context.Context, after *LateFire, limit int, now time.Time) (AlertsWatched, *LateFire, error)
}

// LateFire is how far a round has searched for fires that have not begun in time; see WatchAlerts.
type LateFire struct {
	// DueAt and TriggerID are from the last unclaimed fire. AllDue is true if there are no more.
	DueAt     time.Time
	TriggerID int64
	AllDue    bool
	// JobID is the last job with a run that waits for its first attempt. AllWaiting is true if there are no more.
	JobID      int64
	AllWaiting bool
}
