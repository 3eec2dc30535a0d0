package target

import (
	"encoding/json"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

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

// PagerDuty returns an event of the Events API v2: trigger, acknowledge or resolve, with the same dedup_key for all that
// concerns the same alert, job and condition. PagerDuty ignores what resolves no incident. See
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
	body, _ := json.Marshal(event) // no field of it can fail
	return body
}

// summary is the title and, if there is one, the error.
func (n AlertNotification) summary() string {
	if n.Error == "" {
		return n.Title()
	}
	return n.Title() + ": " + n.Error
}
