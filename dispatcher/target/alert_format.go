package target

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// AlertFormat is the form of an alert's messages; empty means AlertFormatCarillon.
type AlertFormat string

// The formats.
const (
	AlertFormatCarillon  AlertFormat = "carillon"  // the notification as JSON
	AlertFormatSlack     AlertFormat = "slack"     // a message to an incoming webhook
	AlertFormatPagerDuty AlertFormat = "pagerduty" // an event of the Events API v2
	AlertFormatTemplate  AlertFormat = "template"  // the body that the alert declares
)

// AlertFormats are all formats.
var AlertFormats = []AlertFormat{AlertFormatCarillon, AlertFormatSlack, AlertFormatPagerDuty, AlertFormatTemplate}

// ParseAlertNotification reads the input of a run that delivers a notification.
func ParseAlertNotification(input json.RawMessage) (n AlertNotification, err error) {
	if err := json.Unmarshal(input, &n); err != nil {
		return n, fmt.Errorf("read the notification of an alert: %w", err)
	}
	return n, nil
}

// DedupKey names what the alert is about: all notifications of one alert, job and condition have the same key, of at most
// 255 characters.
func (n AlertNotification) DedupKey() string {
	what := string(n.Condition)
	if n.Transition == AlertTest {
		what = string(AlertTest)
	}
	return strings.Join([]string{"carillon", n.App, n.Alert, n.Job, what}, "/")
}

// Title says on one line what happened.
func (n AlertNotification) Title() string {
	job := n.App + "/" + n.Job
	switch n.Transition {
	case AlertTest:
		return "Test of alert " + n.App + "/" + n.Alert
	case AlertAcknowledged:
		return fmt.Sprintf("Alert %s of job %s (%s) was acknowledged by %s", n.Alert, job, n.Condition, input.OneLine(n.By))
	case AlertResolved:
		return "Job " + job + " " + n.resolved()
	default:
		return "Job " + job + " " + n.firing()
	}
}

// firing says what is wrong, after the name of the job.
func (n AlertNotification) firing() string {
	switch n.Condition {
	case AlertFailure:
		switch {
		case n.Transition == AlertStillFiring:
			return fmt.Sprintf("still fails: %d times in a row", n.Count)
		case n.Count > 1:
			return fmt.Sprintf("failed %d times in a row", n.Count)
		}
		return "failed"
	case AlertMissed:
		if n.Count > 1 {
			return fmt.Sprintf("missed %d fires", n.Count)
		}
		return "missed a fire"
	case AlertLate:
		return "is late" + by(n.LateBy)
	case AlertOverrun:
		return "runs too long" + by(n.LateBy)
	case AlertNoSuccess:
		return "has not succeeded since " + input.FormatInstant(n.Since)
	case AlertObjective:
		return "spends the error budget of its objective too fast"
	}
	return "needs attention: " + string(n.Condition)
}

// resolved says that it is right again, after the name of the job.
func (n AlertNotification) resolved() string {
	switch n.Condition {
	case AlertFailure, AlertNoSuccess:
		return "succeeds again"
	case AlertMissed:
		return "misses no fire any more"
	case AlertLate:
		return "is on time again"
	case AlertOverrun:
		return "no longer runs too long"
	case AlertObjective:
		return "keeps to its objective again"
	}
	return "is all right again: " + string(n.Condition)
}

func by(late input.Duration) string {
	if late <= 0 {
		return ""
	}
	return " by " + input.Duration(late.Std().Round(time.Millisecond)).String()
}

// fact is a line of a message for people.
type fact struct{ name, value string }

// facts are what the title does not say; those without a value are left out.
func (n AlertNotification) facts() []fact {
	all := []fact{
		{"Alert", n.Alert}, {"Condition", string(n.Condition)}, {"Since", instantText(&n.Since)}, {"Trigger", n.Trigger}, {"Run", n.Run},
		{"Scheduled at", instantText(n.ScheduledAt)}, {"Class", string(n.Class)}, {"Labels", n.labels()}, {"Reason", n.Reason},
	}
	some := all[:0]
	for _, f := range all {
		if f.value != "" {
			some = append(some, f)
		}
	}
	return some
}

func instantText(at *time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return input.FormatInstant(*at)
}

func (n AlertNotification) labels() string {
	words := make([]string, 0, len(n.Labels))
	for _, key := range input.SortedKeys(n.Labels) {
		words = append(words, key+"="+n.Labels[key])
	}
	return strings.Join(words, ", ")
}
