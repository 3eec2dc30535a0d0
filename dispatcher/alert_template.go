package dispatcher

import (
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// templateFields returns the fields that the templates of a call's target may use.
func (c *Call) templateFields() []string {
	if c.Notification != nil {
		return AlertTemplateFields
	}
	return TemplateFields
}

// ofNotification returns the value of a field that a notification has; is is false for one of the delivery.
func (f field) ofNotification(n *AlertNotification) (text string, at time.Time, is bool) {
	switch f {
	case fieldApp:
		text = n.App
	case fieldAlert:
		text = n.Alert
	case fieldJob:
		text = n.Job
	case fieldCondition:
		text = string(n.Condition)
	case fieldTransition:
		text = string(n.Transition)
	case fieldTitle:
		text = n.Title()
	case fieldAt:
		at = n.At
	case fieldSince:
		at = n.Since
	case fieldCount:
		text = strconv.Itoa(n.Count)
	case fieldTrigger:
		text = n.Trigger
	case fieldRun:
		text = n.Run
	case fieldScheduledAt:
		if n.ScheduledAt != nil {
			at = *n.ScheduledAt
		}
	case fieldClass:
		text = string(n.Class)
	case fieldError:
		text = n.Error
	case fieldLateBy:
		if n.LateBy > 0 {
			text = n.LateBy.String()
		}
	case fieldBy:
		text = n.By
	case fieldReason:
		text = n.Reason
	default:
		return "", at, false
	}
	return text, at, true
}

// sampleNotificationCall is sampleCall for the target of an alert. The error has many lines, so that a header that holds it
// is refused when it is declared.
func sampleNotificationCall() Call {
	c := sampleCall(nil)
	at := c.Key.ScheduledAt
	c.Notification = &AlertNotification{
		App: c.App, Alert: c.Job, Job: c.Job, Condition: AlertObjective, Transition: AlertStillFiring, At: at, Since: at, Count: 1e9,
		Trigger: c.Trigger, Run: c.Key.String(), Class: run.ClassTimeout, Error: strings.Repeat("a \"line\"\n", 400), ScheduledAt: &at,
		LateBy: input.Duration(time.Hour), By: "a person", Reason: "a reason\nof two lines",
	}
	return c
}
