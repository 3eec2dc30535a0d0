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

// DedupKey names the subject of the alert: all notifications of one alert, job and condition have the same key, of at
// most 255 characters.
func (n AlertNotification) DedupKey() string {
	what := string(n.Condition)
	if n.Transition == AlertTest {
		what = string(AlertTest)
	}
	return strings.Join([]string{"carillon", n.App, n.Alert, n.Job, what}, "/")
}

// Title describes the event on one line.
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

// firing describes the problem, after the name of the job.
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
		return n.Error
	case AlertObjective:
		return "spends the error budget of its objective too fast"
	}
	return "needs attention: " + string(n.Condition)
}

// resolved describes the recovery, after the name of the job.
func (n AlertNotification) resolved() string {
	switch n.Condition {
	case AlertFailure, AlertNoSuccess:
		return "succeeds again"
	case AlertMissed:
		return "misses no fire any more"
	case AlertLate:
		return "is no longer late"
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

// facts returns the facts that the title does not contain, without those that have no value.
func (n AlertNotification) facts() []fact {
	labels := make([]string, 0, len(n.Labels))
	for _, key := range input.SortedKeys(n.Labels) {
		labels = append(labels, key+"="+n.Labels[key])
	}
	all := []fact{
		{"Alert", n.Alert}, {"Condition", string(n.Condition)}, {"Since", instantText(&n.Since)}, {"Trigger", n.Trigger}, {"Run", n.Run},
		{"Scheduled at", instantText(n.ScheduledAt)}, {"Class", string(n.Class)}, {"Labels", strings.Join(labels, ", ")}, {"Reason", n.Reason},
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

// AlertSeverity is how bad an incident is; empty means AlertError.
type AlertSeverity string

// The severities of PagerDuty.
const (
	AlertCritical AlertSeverity = "critical"
	AlertError    AlertSeverity = "error"
	AlertWarning  AlertSeverity = "warning"
	AlertInfo     AlertSeverity = "info"
)

// AlertSeverities are all severities.
var AlertSeverities = []AlertSeverity{AlertCritical, AlertError, AlertWarning, AlertInfo}

// Bounds of an event. PagerDuty allows 1,024 characters of summary and 512 KiB in all.
const (
	pagerDutySummary = 1024
	pagerDutyError   = 16 << 10
)

type pagerDutyEvent struct {
	RoutingKey  string            `json:"routing_key"`
	EventAction string            `json:"event_action"`
	DedupKey    string            `json:"dedup_key"`
	Client      string            `json:"client,omitempty"`
	Payload     *pagerDutyPayload `json:"payload,omitempty"`
}

type pagerDutyPayload struct {
	Summary       string            `json:"summary"`
	Source        string            `json:"source"`
	Severity      AlertSeverity     `json:"severity"`
	Timestamp     string            `json:"timestamp"`
	Component     string            `json:"component,omitempty"`
	Group         string            `json:"group,omitempty"`
	Class         string            `json:"class,omitempty"`
	CustomDetails AlertNotification `json:"custom_details"`
}

// PagerDuty returns an event of the Events API v2: trigger, acknowledge or resolve, with the same dedup_key for the
// same alert, job and condition. PagerDuty ignores a resolve event without an incident. See
// https://developer.pagerduty.com/docs/events-api-v2/trigger-events/.
func (n AlertNotification) PagerDuty(routingKey string, severity AlertSeverity) []byte {
	event := pagerDutyEvent{RoutingKey: routingKey, EventAction: "trigger", DedupKey: n.DedupKey()}
	switch n.Transition {
	case AlertResolved:
		event.EventAction = "resolve"
	case AlertAcknowledged:
		event.EventAction = "acknowledge"
	default:
		if severity == "" {
			severity = AlertError
		}
		if n.Transition == AlertTest {
			severity = AlertInfo
		}
		details := n
		details.Error = input.Cut(n.Error, pagerDutyError)
		event.Client = "Carillon"
		event.Payload = &pagerDutyPayload{
			Summary: input.Cut(input.OneLine(n.summary()), pagerDutySummary), Source: "carillon/" + n.App, Severity: severity,
			Timestamp: input.FormatInstant(n.At), Component: n.Job, Group: n.App, Class: string(n.Condition), CustomDetails: details,
		}
	}
	body, _ := json.Marshal(event) // its fields cannot fail
	return body
}

// summary is the title and, if the title does not have it, the error.
func (n AlertNotification) summary() string {
	title := n.Title()
	if n.Error == "" || strings.HasSuffix(title, n.Error) {
		return title
	}
	return title + ": " + n.Error
}

// Bounds of a message to Slack. Slack allows 3,000 characters in a section, 2,000 in a field of one, and some 13,000 in all
// blocks together, where it refuses the message as a whole. Texts are cut well below, after they are escaped.
const (
	slackTitle = 500
	slackField = 300
	slackError = 2000
)

type slackText struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Emoji *bool  `json:"emoji,omitempty"`
}

type slackBlock struct {
	Type   string      `json:"type"`
	Text   *slackText  `json:"text,omitempty"`
	Fields []slackText `json:"fields,omitempty"`
}

type slackAttachment struct {
	Color    string       `json:"color"`
	Fallback string       `json:"fallback"`
	Blocks   []slackBlock `json:"blocks"`
}

type slackMessage struct {
	Text        string            `json:"text"`
	Markdown    bool              `json:"mrkdwn"`
	Attachments []slackAttachment `json:"attachments"`
}

// Slack returns a message for an incoming webhook of Slack: the title as text, which notifications show, and the
// facts as blocks in an attachment with a colour for the transition.
//
// No text is read as mrkdwn, and control characters are escaped, so that neither a name nor an error can format the message,
// link to a page or notify a channel. See https://docs.slack.dev/messaging/formatting-message-text#escaping and
// https://docs.slack.dev/reference/block-kit/composition-objects/text-object.
func (n AlertNotification) Slack() []byte {
	look := n.slackLook()
	title := look.emoji + " " + n.Title()
	message := slackMessage{Text: slackEscape(title, slackTitle)}
	var fields []slackText
	for _, f := range n.facts() {
		fields = append(fields, plainText(f.name+": "+input.OneLine(f.value), slackField))
	}
	blocks := []slackBlock{{Type: "section", Fields: fields}}
	if n.Error != "" {
		text := plainText(n.Error, slackError)
		blocks = append(blocks, slackBlock{Type: "section", Text: &text})
	}
	message.Attachments = []slackAttachment{{Color: look.color, Fallback: message.Text, Blocks: blocks}}
	body, _ := json.Marshal(message) // its fields cannot fail
	return body
}

func plainText(text string, most int) slackText {
	return slackText{Type: "plain_text", Text: slackEscape(text, most), Emoji: new(false)}
}

type slackLook struct{ emoji, color string }

func (n AlertNotification) slackLook() slackLook {
	switch n.Transition {
	case AlertResolved:
		return slackLook{"🟢", "#2eb67d"}
	case AlertAcknowledged:
		return slackLook{"👀", "#ecb22e"}
	case AlertTest:
		return slackLook{"🔔", "#36c5f0"}
	default:
		return slackLook{"🔴", "#e01e5a"}
	}
}

// slackEscape escapes the three control characters of Slack, and returns at most most bytes, cut between two characters.
func slackEscape(text string, most int) string {
	const mark = "…"
	var b strings.Builder
	end := 0 // of the text that leaves room for the mark
	for _, r := range strings.ToValidUTF8(text, "\uFFFD") {
		switch r {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case 0:
			b.WriteRune('\uFFFD')
		default:
			b.WriteRune(r)
		}
		if b.Len() > most {
			return b.String()[:end] + mark
		}
		if b.Len() <= most-len(mark) {
			end = b.Len()
		}
	}
	return b.String()
}
