package alert

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Alerts are the alerts of apps, their states and events. Writes of definitions are as those of Definitions.
//
// The notifications of an alert are runs of a job that belongs to it, of kind alert: they are delivered, retried, listed and
// cancelled as other runs. A transition is stored in the transaction that queues its notification.
type Alerts interface {
	// PutAlert creates or replaces an alert. It returns it as stored, without the values of its secrets, and whether it was
	// created. ErrNotFound: the app does not exist. Problems: the definition is wrong, outside the bounds of the app, or one
	// too many, or its secrets cannot be stored. States of conditions that the alert no longer has, and of jobs that it no
	// longer selects, end within two handler intervals, with a notification to the new destination.
	PutAlert(ctx context.Context, alert Alert, change input.Change) (stored Alert, created bool, err error)
	// Alert returns ErrNotFound if there is none of that name.
	Alert(ctx context.Context, app, name string) (Alert, error)
	// Alerts lists by name.
	Alerts(ctx context.Context, app string, page input.Page) ([]Alert, error)
	// DeleteAlert removes an alert with its states. Notifications that wait are not delivered. The events stay.
	DeleteAlert(ctx context.Context, app, name string, change input.Change) error

	// MuteAlert mutes an alert until mute.Until, or until UnmuteAlert, whatever its definition says. It replaces the mute
	// that stands. Problems: Until is in the past.
	MuteAlert(ctx context.Context, app, name string, mute Mute, change input.Change) (Alert, error)
	// UnmuteAlert lifts an operator's mute, but no window of the definition. What was kept back is notified within two handler
	// intervals. Without a mute it changes nothing.
	UnmuteAlert(ctx context.Context, app, name string, change input.Change) (Alert, error)

	// AlertStates lists the states of an app, by alert, job and condition. ErrNotFound: there is no such app, or alert if the
	// query names one.
	AlertStates(ctx context.Context, query StateQuery) ([]State, error)
	// AcknowledgeAlert acknowledges what holds for a job, and notifies of it once. It returns the states that it acknowledged.
	// ErrNotFound: there is no such alert. ErrConflict: nothing of it holds for the job. Problems: Until is in the past.
	AcknowledgeAlert(ctx context.Context, app, alert string, ack Acknowledgement, change input.Change) ([]State, error)
	// WithdrawAcknowledgement takes back what AcknowledgeAlert did, for a job and a condition, empty: all. It notifies nobody.
	// ErrNotFound: there is no such alert.
	WithdrawAcknowledgement(ctx context.Context, app, alert string, ack Acknowledgement, change input.Change) ([]State, error)

	// AlertEvents lists the transitions of an app, latest first; also those of deleted alerts and jobs.
	AlertEvents(ctx context.Context, query EventQuery) ([]Event, error)
	// TestAlert queues a notification with transition test, also while the alert is muted, and returns its run.
	TestAlert(ctx context.Context, app, alert string, change input.Change) (run.Run, error)
}

// StateQuery selects states. Empty fields select all.
type StateQuery struct {
	App, Alert, Job string
	// Firing selects conditions that hold.
	Firing bool
	Now    time.Time  // MutedUntil is told by it
	Page   input.Page // the cursor is State.Cursor
}

// EventQuery selects events. Empty fields select all.
type EventQuery struct {
	App, Alert, Job string
	// From and To bound when they happened, both inclusive; zero: unbounded.
	From, To time.Time
	Page     input.Page // the cursor is Event.Cursor
}

// Cursor is the key of s in lists.
func (s *State) Cursor() string { return s.Alert + "/" + s.Job + "/" + string(s.Condition) }

// AlertsWatched is what one call of WatchAlerts did.
type AlertsWatched struct {
	Jobs     int  // jobs that follow a change of alerts now
	Looked   int  // states that were looked at
	Late     int  // jobs of which a fire has not begun in time
	Notified int  // notifications that were queued
	More     bool // there is more to do now
}

// AlertWatch is what the handler does for alerts. The ends of runs are judged by Follows.
type AlertWatch interface {
	// WatchAlerts does a portion of what is due: it lets jobs follow the changes of alerts, looks at conditions that time
	// decides about, and finds fires after a late one that have not begun in time, at most limit of each. The first call of a
	// round is given a zero LateFire, and the next one what the call before it returned; nil: there are no more late fires.
	WatchAlerts(ctx context.Context, after *LateFire, limit int, now time.Time) (AlertsWatched, *LateFire, error)
}

// LateFire says up to where a round has looked for fires that have not begun in time; see WatchAlerts.
type LateFire struct {
	// DueAt and TriggerID are of the last fire that no node has claimed. AllDue: there are no more.
	DueAt     time.Time
	TriggerID int64
	AllDue    bool
	// JobID is the last job of which a run waits for its first attempt. AllWaiting: there are no more.
	JobID      int64
	AllWaiting bool
}
