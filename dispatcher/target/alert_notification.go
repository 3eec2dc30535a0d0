package target

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// AlertNotification is the message about one transition of an alert. It is the input of the run that delivers it and,
// with Installation and Links, which the delivering node adds, the body of a request in format carillon.
type AlertNotification struct {
	// Installation is the id of the database.
	Installation string `json:"installation,omitempty"`
	App          string `json:"app"`
	Alert        string `json:"alert"`
	// Job is the job that the alert is about; empty only in a test.
	Job       string         `json:"job,omitempty"`
	Condition AlertCondition `json:"condition"`
	// Transition is the event at At.
	Transition AlertTransition `json:"transition"`
	At         time.Time       `json:"at"`
	// Since is when the condition began.
	Since time.Time `json:"since"`
	// Count is how often in a row it was met since then, such as the failures; 0 for conditions without a count.
	Count int `json:"count,omitempty"`
	// Trigger, Run, Class, Error and ScheduledAt describe the run, or the missed fire, that caused the transition.
	// Otherwise they are empty, except that Error says why a fire is late, how long a run takes, how fast an error budget
	// burns, or what blocks a job and what to do. Run has the slot then.
	Trigger     string     `json:"trigger,omitempty"`
	Run         string     `json:"run,omitempty"`
	Class       run.Class  `json:"class,omitempty"`
	Error       string     `json:"error,omitempty"`
	ScheduledAt *time.Time `json:"scheduled_at,omitempty"`
	// LateBy is how late the run began, or how long it has been overdue or running, or has had the slot of a blocked job; 0
	// for other conditions.
	LateBy input.Duration `json:"late_by,omitempty"`
	// Response is the beginning of the response to the attempt that failed, on one line; empty for other conditions.
	Response string `json:"response,omitempty"`
	// LastSuccess is when a run of the job last succeeded, and DeclaredAt is when the job was declared, if no run has
	// succeeded since. Both are nil if older runs are not known, or the condition does not hold.
	LastSuccess *time.Time `json:"last_success,omitempty"`
	DeclaredAt  *time.Time `json:"declared_at,omitempty"`
	// Description is the alert's. JobDescription, RunbookURL and Labels are the job's.
	Description    string       `json:"description,omitempty"`
	JobDescription string       `json:"job_description,omitempty"`
	RunbookURL     string       `json:"runbook_url,omitempty"`
	Labels         input.Labels `json:"labels,omitempty"`
	// Sequence counts the transitions of the alert for the job and the condition, so that a receiver can ignore a
	// notification that arrives after a later one.
	Sequence int64 `json:"sequence"`
	// By and Reason are who acknowledged, and why. A condition that ended for another cause, such as the deletion of
	// the job, has a Reason, too.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Others are notifications of other jobs, of the same alert, condition, transition, host and class, that the message tells,
	// too; without descriptions, and with short errors.
	Others []AlertNotification `json:"others,omitempty"`
	// ID is the id of the run that would deliver one of Others alone, and Previous that of the run that delivered the
	// notification before together with others.
	ID       string `json:"id,omitempty" schema:"RunID"`
	Previous string `json:"previous,omitempty" schema:"RunID"`
	// Links are pages of the console; nil if the node does not know its URL.
	Links *AlertLinks `json:"links,omitempty"`
}

// shownError is how much of their error Others have, in bytes.
const shownError = 200

// With returns n with another notification that the same message tells.
func (n AlertNotification) With(other AlertNotification) AlertNotification {
	other.Description, other.JobDescription, other.Response, other.Labels = "", "", "", nil
	other.Error = input.Cut(other.Error, shownError)
	n.Others = append(n.Others, other)
	return n
}

// All returns n without Others, followed by them.
func (n AlertNotification) All() []AlertNotification {
	others := n.Others
	n.Others = nil
	return append([]AlertNotification{n}, others...)
}

// AlertLinks are URLs of the console for a notification; empty where it names no such thing.
type AlertLinks struct {
	// Run is the page of the run, or, if the fire had no run yet, the page that says what became of the fire.
	Run   string `json:"run,omitempty"`
	Job   string `json:"job,omitempty"`
	Alert string `json:"alert,omitempty"`
}

// From returns n as a node sends it: with the id of its database, and links to its console, whose URL may be nil.
func (n AlertNotification) From(installation string, console *url.URL) AlertNotification {
	n.Installation = installation
	n.Others = slices.Clone(n.Others)
	for i := range n.Others {
		n.Others[i] = n.Others[i].From(installation, console)
	}
	if console == nil {
		return n
	}
	app := console.JoinPath("console", "apps", n.App)
	n.Links = &AlertLinks{Alert: app.JoinPath("alerts", n.Alert).String()}
	if n.Run != "" {
		n.Links.Run = console.JoinPath("console", "runs", n.Run).String()
	}
	if n.Job != "" {
		job := app.JoinPath("jobs", n.Job)
		n.Links.Job = job.String()
		if n.Run == "" && n.Trigger != "" && n.ScheduledAt != nil {
			fire := job.JoinPath("triggers", n.Trigger, "explain")
			fire.RawQuery = url.Values{"at": {input.FormatInstant(*n.ScheduledAt)}}.Encode()
			n.Links.Run = fire.String()
		}
	}
	return n
}

// links returns the pages that a message links to, the most useful first.
func (n AlertNotification) links() []fact {
	pages := AlertLinks{}
	if n.Links != nil {
		pages = *n.Links
	}
	label := "Run"
	if n.Run == "" {
		label = "Fire"
	}
	return given(fact{label, pages.Run}, fact{"Runbook", n.RunbookURL}, fact{"Job", pages.Job}, fact{"Alert", pages.Alert})
}

// AlertCondition is a condition that an alert watches.
type AlertCondition string

// The conditions.
const (
	AlertFailure   AlertCondition = "failure"    // runs failed, timed out or were lost
	AlertMissed    AlertCondition = "missed"     // a fire was missed
	AlertLate      AlertCondition = "late"       // a run began late, or has not begun
	AlertOverrun   AlertCondition = "overrun"    // a run takes too long
	AlertNoSuccess AlertCondition = "no_success" // no run succeeded for a time
	AlertObjective AlertCondition = "objective"  // the error budget of the job's objective burns too fast
	AlertBlocked   AlertCondition = "blocked"    // no fire runs, because a run has had the slot for unusually long
)

// AlertConditions are all conditions.
var AlertConditions = []AlertCondition{AlertFailure, AlertMissed, AlertLate, AlertOverrun, AlertNoSuccess, AlertObjective, AlertBlocked}

// AlertTransition is the event of a condition that a notification reports.
type AlertTransition string

// The transitions.
const (
	AlertFiring       AlertTransition = "firing"       // it holds now
	AlertStillFiring  AlertTransition = "still_firing" // it still holds, after as many more failures as the alert repeats at
	AlertResolved     AlertTransition = "resolved"     // it holds no longer
	AlertAcknowledged AlertTransition = "acknowledged" // a person knows of it
	AlertTest         AlertTransition = "test"         // somebody tests the destination
	AlertFollowed     AlertTransition = "followed"     // a job names the alert in its on_success, on_failure or on_misfire, the condition
)

// ofNotification returns the value of a field of a notification; is is false for a field of the delivery.
func (f field) ofNotification(n *AlertNotification) (text string, at time.Time, is bool) {
	var scheduled time.Time
	if n.ScheduledAt != nil {
		scheduled = *n.ScheduledAt
	}
	late := ""
	if n.LateBy > 0 {
		late = n.LateBy.String()
	}
	var pages AlertLinks
	if n.Links != nil {
		pages = *n.Links
	}
	var success time.Time
	if n.LastSuccess != nil {
		success = *n.LastSuccess
	}
	switch value := map[field]any{
		fieldApp: n.App, fieldAlert: n.Alert, fieldJob: n.Job, fieldTrigger: n.Trigger, fieldRun: n.Run, fieldScheduledAt: scheduled,
		fieldCondition: string(n.Condition), fieldTransition: string(n.Transition), fieldTitle: n.Title(), fieldAt: n.At,
		fieldSince: n.Since, fieldCount: strconv.Itoa(n.Count), fieldClass: string(n.Class), fieldError: n.Error, fieldLateBy: late,
		fieldBy: n.By, fieldReason: n.Reason, fieldRunURL: pages.Run, fieldJobURL: pages.Job, fieldAlertURL: pages.Alert,
		fieldRunbookURL: n.RunbookURL, fieldJobDescription: n.JobDescription, fieldResponse: n.Response, fieldLastSuccess: success,
	}[f].(type) {
	case string:
		return value, at, true
	case time.Time:
		return "", value, true
	}
	return "", at, false
}

// sampleNotificationCall is sampleCall for the target of an alert. The error has many lines, so that a header with it
// is refused when it is declared.
func sampleNotificationCall() Call {
	c := sampleCall(nil)
	at := c.Key.ScheduledAt
	c.Notification = &AlertNotification{
		App: c.App, Alert: c.Job, Job: c.Job, Condition: AlertObjective, Transition: AlertStillFiring, At: at, Since: at, Count: 1e9,
		Trigger: c.Trigger, Run: c.Key.String(), Class: run.ClassTimeout, Error: strings.Repeat("a \"line\"\n", 400), ScheduledAt: &at,
		LateBy: input.Duration(time.Hour), By: "a person", Reason: "a reason\nof two lines", LastSuccess: &at,
		RunbookURL: "https://example.com/?a=\"b\"", JobDescription: "a \"job\"\nof two lines", Response: "{\"a\": \"b\"}",
		Links: &AlertLinks{"https://example.com/r", "https://example.com/j", "https://example.com/a"},
	}
	return c
}
