package dispatcher

import "github.com/carillon-dev/carillon/dispatcher/input"

// AlertTopic is an Amazon SNS topic that gets each notification, published with the credentials of the node: the title as
// subject, the notification as JSON, and attributes that subscribers can filter by.
type AlertTopic struct {
	// TopicARN, AssumeRole and Timeout are as those of SNS. The messages of an alert are a group of a FIFO topic.
	TopicARN   string         `json:"topic_arn"`
	AssumeRole *AssumeRole    `json:"assume_role,omitempty"`
	Timeout    input.Duration `json:"timeout,omitempty"`
}

// SetDefaults gives a decoded topic the values of fields that its JSON leaves out.
func (t *AlertTopic) SetDefaults() { t.Timeout = DefaultTimeout }

// SNS returns the topic as a target, whose templates use AlertTemplateFields.
func (t *AlertTopic) SNS() *SNS {
	return &SNS{
		TopicARN: t.TopicARN, AssumeRole: t.AssumeRole, Timeout: t.Timeout, Subject: "{{.Title}}",
		Attributes: map[string]string{
			"carillon_app": "{{.App}}", "carillon_alert": "{{.Alert}}", "carillon_job": "{{.Job}}",
			"carillon_condition": "{{.Condition}}", "carillon_transition": "{{.Transition}}",
		},
	}
}

// templates reads the texts of the messages.
func (t *AlertTopic) templates(problems *input.Problems) *Templates {
	return t.SNS().message().templatesWith(problems, AlertTemplateFields)
}

// Validate returns everything wrong with t, as Problems with JSON pointers, or nil.
func (t *AlertTopic) Validate() error {
	role := t.SNS()
	role.Subject, role.Attributes = "", nil // which have fields of alerts
	return role.Validate()
}
