package target

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
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

// DedupKey names the subject of the alert: all notifications of one alert, job and condition of an installation have the
// same key, of at most 255 characters.
func (n AlertNotification) DedupKey() string {
	what := string(n.Condition)
	switch {
	case n.Job == "":
		what = string(AlertTest)
	case n.Transition == AlertFollowed: // a success ends the incident of the failure before
		what = string(AlertFollowed)
	}
	return strings.Join([]string{"carillon", n.Installation, n.App, n.Alert, n.Job, what}, "/")
}

// namedOthers is how many other jobs a title names.
const namedOthers = 5

// Title describes the event on one line, and of other jobs how many and the first ones.
func (n AlertNotification) Title() string {
	title := n.title()
	if len(n.Others) == 0 {
		return title
	}
	var names []string
	for _, other := range n.Others[:min(len(n.Others), namedOthers)] {
		names = append(names, other.Job)
	}
	if len(n.Others) > namedOthers {
		names = append(names, "…")
	}
	return fmt.Sprintf("%s; the same holds for %d more: %s", title, len(n.Others), strings.Join(names, ", "))
}

func (n AlertNotification) title() string {
	job := n.App + "/" + n.Job
	switch n.Transition {
	case AlertTest:
		return n.test()
	case AlertAcknowledged:
		return fmt.Sprintf("Alert %s of job %s (%s) was acknowledged by %s", n.Alert, job, n.Condition, input.OneLine(n.By))
	case AlertResolved:
		if n.Job == "" {
			return n.test() + " has ended"
		}
		if n.Reason != "" {
			return fmt.Sprintf("Alert %s of job %s (%s) has ended: %s", n.Alert, job, n.Condition, input.OneLine(n.Reason))
		}
		return "Job " + job + " " + n.resolved()
	default:
		return "Job " + job + " " + n.firing()
	}
}

// isGood reports whether a condition ended, or a run succeeded that the alert follows.
func (n AlertNotification) isGood() bool {
	return n.Transition == AlertResolved || n.Condition == AlertCondition(run.OnSuccess)
}

func (n AlertNotification) test() string { return "Test of alert " + n.App + "/" + n.Alert }

// firing describes the problem, after the name of the job.
func (n AlertNotification) firing() string {
	switch n.Condition {
	case AlertCondition(run.OnSuccess):
		return "succeeded"
	case AlertFailure, AlertCondition(run.OnFailure):
		switch {
		case n.Transition == AlertStillFiring:
			return fmt.Sprintf("still fails: %d times in a row", n.Count)
		case n.Count > 1:
			return fmt.Sprintf("failed %d times in a row", n.Count)
		}
		return "failed"
	case AlertMissed, AlertCondition(run.OnMisfire):
		if n.Count > 1 {
			return fmt.Sprintf("missed %d fires", n.Count) + n.why()
		}
		return "missed a fire" + n.why()
	case AlertLate:
		return "is late" + by(n.LateBy) + n.why()
	case AlertOverrun:
		return cmp.Or(n.Error, "runs too long")
	case AlertNoSuccess:
		return n.Error
	case AlertObjective:
		return "spends the error budget of its objective too fast"
	case AlertBlocked:
		return "does not run: one run has had its slot for " + input.Duration(n.LateBy.Std().Round(time.Second)).String()
	}
	return "needs attention: " + string(n.Condition)
}

// resolved describes the recovery, after the name of the job. It says what ended, because it may be the only message: one
// about a condition that ended at once is overtaken.
func (n AlertNotification) resolved() string {
	switch n.Condition {
	case AlertFailure:
		return "succeeds again after " + input.Count(n.Count, "failure")
	case AlertNoSuccess:
		return "succeeds again"
	case AlertMissed:
		return "missed " + input.Count(n.Count, "fire") + ", and misses no more"
	case AlertLate:
		return "was late, and is no longer"
	case AlertOverrun:
		return "ran too long, and no longer does"
	case AlertObjective:
		return "keeps to its objective again"
	case AlertBlocked:
		return "is no longer blocked"
	}
	return "is all right again: " + string(n.Condition)
}

// why returns the error in words that follow the problem.
func (n AlertNotification) why() string { return strings.TrimSuffix(": "+input.OneLine(n.Error), ": ") }

func by(late input.Duration) string {
	if late <= 0 {
		return ""
	}
	return " by " + late.Rounded()
}

// fact is a line of a message for people.
type fact struct{ name, value string }

// facts returns the facts that the title does not contain, without those that have no value.
func (n AlertNotification) facts() []fact {
	labels := make([]string, 0, len(n.Labels))
	for _, key := range input.SortedKeys(n.Labels) {
		labels = append(labels, key+"="+n.Labels[key])
	}
	success := instantText(n.LastSuccess)
	if n.DeclaredAt != nil {
		success = "never, since it was declared at " + instantText(n.DeclaredAt)
	}
	return given(fact{"Alert", n.Alert}, fact{"Condition", string(n.Condition)}, fact{"Since", instantText(&n.Since)},
		fact{"Trigger", n.Trigger}, fact{"Run", n.Run}, fact{"Scheduled at", instantText(n.ScheduledAt)},
		fact{"Class", string(n.Class)}, fact{"Last success", success},
		fact{"Labels", strings.Join(labels, ", ")}, fact{"Reason", n.Reason})
}

// given returns the facts that have a value.
func given(all ...fact) []fact {
	return slices.DeleteFunc(all, func(f fact) bool { return f.value == "" })
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

// AlertSeverities are all severities, the worst first.
var AlertSeverities = []AlertSeverity{AlertCritical, AlertError, AlertWarning, AlertInfo}

// Rank is 0 for the worst severity.
func (s AlertSeverity) Rank() int { return slices.Index(AlertSeverities, cmp.Or(s, AlertError)) }

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
	ClientURL   string            `json:"client_url,omitempty"`
	Links       []pagerDutyLink   `json:"links,omitempty"`
	Payload     *pagerDutyPayload `json:"payload,omitempty"`
}

type pagerDutyLink struct {
	Href string `json:"href"`
	Text string `json:"text"`
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
	switch {
	case n.isGood():
		event.EventAction = "resolve"
	case n.Transition == AlertAcknowledged:
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
		for _, l := range n.links() {
			event.Links = append(event.Links, pagerDutyLink{l.value, l.name})
		}
		if n.Links != nil {
			event.ClientURL = cmp.Or(n.Links.Run, n.Links.Job, n.Links.Alert)
		}
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
	return strings.TrimSuffix(n.Title()+": "+n.untitled(), ": ")
}

// untitled returns the error, unless the title has it.
func (n AlertNotification) untitled() string {
	if strings.HasSuffix(n.Title(), n.Error) {
		return ""
	}
	return n.Error
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
// Only the links are read as mrkdwn, and control characters are escaped, so that neither a name nor an error can format the
// message, link to a page or notify a channel. See https://docs.slack.dev/messaging/formatting-message-text#escaping and
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
	add := func(text slackText) { blocks = append(blocks, slackBlock{Type: "section", Text: &text}) }
	for _, f := range given(fact{"", n.untitled()}, fact{"Response: ", n.Response}, fact{"", n.JobDescription}) {
		add(plainText(f.name+f.value, slackError))
	}
	var links []string
	for _, l := range n.links() {
		links = append(links, "<"+slackLink.Replace(l.value)+"|"+l.name+">")
	}
	if len(links) > 0 {
		add(slackText{Type: "mrkdwn", Text: strings.Join(links, " · ")})
	}
	message.Attachments = []slackAttachment{{Color: look.color, Fallback: message.Text, Blocks: blocks}}
	body, _ := json.Marshal(message) // its fields cannot fail
	return body
}

// slackLink escapes a URL in a link.
var slackLink = strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C")

func plainText(text string, most int) slackText {
	return slackText{Type: "plain_text", Text: slackEscape(text, most), Emoji: new(false)}
}

type slackLook struct{ emoji, color string }

func (n AlertNotification) slackLook() slackLook {
	switch {
	case n.isGood():
		return slackLook{"🟢", "#2eb67d"}
	case n.Transition == AlertAcknowledged:
		return slackLook{"👀", "#ecb22e"}
	case n.Transition == AlertTest:
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
