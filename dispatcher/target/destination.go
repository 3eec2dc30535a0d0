package target

import (
	"cmp"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// AlertDestination is where an alert sends its notifications. One of its fields is set. It is the target of the runs
// that deliver them, and never of a job.
type AlertDestination struct {
	Webhook *AlertWebhook `json:"webhook,omitempty"`
	SNS     *AlertTopic   `json:"sns,omitempty"`
}

// AlertWebhook is a webhook that gets a message for each notification.
type AlertWebhook struct {
	// Webhook describes the requests. Its templates use AlertTemplateFields. Only format template has a body.
	Webhook
	// Format is the form of the messages; empty means AlertFormatCarillon.
	Format AlertFormat `json:"format,omitempty"`
	// SecretURL is the whole URL, if it is a secret, as for an incoming webhook of Slack; nil if URL is the whole. It
	// has the scheme, host and port of URL, which limits, bounds and displays use.
	SecretURL *Secret `json:"secret_url,omitempty"`
	// RoutingKey is the integration key of a service of PagerDuty, only for format pagerduty, which requires it.
	RoutingKey *Secret `json:"routing_key,omitempty"`
	// Severity is the severity of incidents, only for format pagerduty; empty means AlertError.
	Severity AlertSeverity `json:"severity,omitempty"`
}

// SetDefaults gives a decoded webhook the values of fields that its JSON leaves out.
func (w *AlertWebhook) SetDefaults() {
	w.Webhook.SetDefaults()
	w.Format = AlertFormatCarillon
}

// Name names d for people: the URL of a webhook, which holds no secret, with its format, or the ARN of a topic.
func (d AlertDestination) Name() string {
	switch {
	case d.Webhook != nil:
		return d.Webhook.URL + " (" + string(cmp.Or(d.Webhook.Format, AlertFormatCarillon)) + ")"
	case d.SNS != nil:
		return d.SNS.TopicARN
	}
	return ""
}

// Groups reports whether one message to d may tell of several jobs. An incident of PagerDuty, a template and the attributes
// of a topic are about one job.
func (d AlertDestination) Groups() bool {
	return d.Webhook != nil && d.Webhook.Format != AlertFormatPagerDuty && d.Webhook.Format != AlertFormatTemplate
}

// Target returns d as the target of the runs that deliver notifications.
func (d AlertDestination) Target() Target { return Target{Alert: &d} }

// Validate returns everything wrong with d, as Problems with JSON pointers, or nil.
func (d AlertDestination) Validate() error {
	var problems input.Problems
	switch {
	case d.Webhook != nil && d.SNS != nil:
		problems.Add("/sns", input.CodeTargetKind, "destination has a webhook and an sns; an alert notifies one thing")
	case d.SNS != nil:
		problems.AddError("/sns", d.SNS.Validate())
	case d.Webhook == nil:
		problems.Add("/webhook", input.CodeRequired, "destination names nothing to notify; give it a webhook or an sns")
	default:
		problems.AddError("/webhook", d.Webhook.Validate())
	}
	return problems.Err()
}

// Validate returns everything wrong with w, as Problems with JSON pointers, or nil.
func (w *AlertWebhook) Validate() error {
	var problems input.Problems
	problems.AddError("", w.validate(sampleNotificationCall()))
	if w.Format != "" {
		input.CheckEnum(&problems, "/format", "format", w.Format, AlertFormats)
	}
	if w.sendsNoBody() {
		problems.Add("/method", input.CodeBodyMethod, "method %s sends no body, so nobody would read the notification; use POST", w.Method)
	}
	if w.Callback != nil {
		problems.Add("/callback", input.CodeAlertForm, "a notification is delivered once its receiver responds; leave callback out")
	}
	w.checkBody(&problems)
	w.checkSecretURL(&problems)
	w.checkPagerDuty(&problems)
	return problems.Err()
}

// checkBody reports a body that the format does not allow, or that does not have its content type.
func (w *AlertWebhook) checkBody(problems *input.Problems) {
	switch {
	case w.Format != AlertFormatTemplate && w.Body != "":
		problems.Add("/body", input.CodeAlertForm, "only format template has a body; leave it out, or choose that format")
	case w.Format == AlertFormatTemplate && w.Body == "":
		problems.Add("/body", input.CodeRequired, "format template has no body; give it one, or choose another format")
	case w.Format == AlertFormatTemplate && len(*problems) == 0 && !w.fillsJSON():
		problems.Add("/body", input.CodeJSONSyntax, "body is not JSON once its template is filled in; put texts in as {{json .Error}}, "+
			"or name another Content-Type in headers")
	}
	if w.CloudEvents != "" && (w.Format == AlertFormatSlack || w.Format == AlertFormatPagerDuty) {
		problems.Add("/cloud_events", input.CodeAlertForm, "format %s has a form of its own; leave cloud_events out", w.Format)
	}
}

// fillsJSON reports whether the body is JSON for every notification, unless its content type is another one. Errors
// contain quotes and line breaks, so a template that does not quote them would fail when it is needed.
func (w *AlertWebhook) fillsJSON() bool {
	for name, value := range w.Headers {
		if strings.EqualFold(name, "Content-Type") && !strings.HasPrefix(strings.ToLower(value), "application/json") {
			return true
		}
	}
	call := sampleNotificationCall()
	call.Target = Target{Webhook: &w.Webhook}
	for range 2 {
		var unread input.Problems
		call.Templates = w.templatesWith(&unread, AlertTemplateFields)
		if _, _, body, err := call.Request(); err != nil || !json.Valid(body) {
			return false
		}
		call.Notification = &AlertNotification{}
	}
	return true
}

func (w *AlertWebhook) checkSecretURL(problems *input.Problems) {
	if w.SecretURL == nil {
		switch u, err := url.Parse(w.URL); {
		case err != nil || u.Hostname() != "hooks.slack.com":
		case len(u.Path) > 1:
			problems.Add("/url", input.CodeAlertForm, "anyone who knows this URL can post to the channel; give it as secret_url, "+
				"and here only https://hooks.slack.com/")
		default:
			problems.Add("/secret_url", input.CodeRequired, "https://hooks.slack.com/ is the URL of no channel; give that of an incoming webhook "+
				"as secret_url")
		}
		return
	}
	w.SecretURL.check(problems, "/secret_url", func(value string) error {
		_, err := w.WithURL(value)
		return err
	})
	if w.Auth != nil && (w.Auth.SigV4 != nil || w.Auth.APIKey != nil && w.Auth.APIKey.Query != "") {
		problems.Add("/auth", input.CodeAlertForm, "auth of this kind signs or extends the URL, which is a secret; use bearer or basic")
	}
}

// WithURL returns the webhook with the text of its SecretURL as URL. The error is Problems without a path or any of
// the text.
func (w *AlertWebhook) WithURL(text string) (*Webhook, error) {
	var problems input.Problems
	checkURL(&problems, "", text)
	for i := range problems {
		problems[i].Message = "the secret URL is not a valid URL; write it as https://host/path"
	}
	actual := w.Webhook
	actual.URL = text
	switch {
	case len(problems) > 0:
		problems = problems[:1]
	case isTemplate(text):
		problems.Add("", input.CodeTemplateForm, "the secret URL has a template, which is not allowed")
	case actual.origin() != w.origin():
		problems.Add("", input.CodeSecretOrigin, "the secret URL has another scheme, host or port than url, which is %s", input.Echo(w.origin()))
	}
	return &actual, problems.Err()
}

func (w *AlertWebhook) checkPagerDuty(problems *input.Problems) {
	if w.Format != AlertFormatPagerDuty {
		if w.RoutingKey != nil {
			problems.Add("/routing_key", input.CodeAlertForm, "only format pagerduty has a routing_key; leave it out, or choose that format")
		}
		if w.Severity != "" {
			problems.Add("/severity", input.CodeAlertForm, "only format pagerduty has a severity; leave it out, or choose that format")
		}
		return
	}
	if w.RoutingKey == nil {
		problems.Add("/routing_key", input.CodeRequired, "routing_key is missing; it is the integration key of a service of PagerDuty")
	} else {
		w.RoutingKey.check(problems, "/routing_key", nil)
	}
	if w.Severity != "" {
		input.CheckEnum(problems, "/severity", "severity", w.Severity, AlertSeverities)
	}
}

// Message returns the body of a notification; payload is the same as JSON. It is nil for format template, because
// Call.Request returns that body.
func (w *AlertWebhook) Message(n AlertNotification, payload json.RawMessage, routingKey string) []byte {
	switch w.Format {
	case AlertFormatSlack:
		return n.Slack()
	case AlertFormatPagerDuty:
		return n.PagerDuty(routingKey, w.Severity)
	case AlertFormatTemplate:
		return nil
	default:
		return payload
	}
}

func (d *AlertDestination) kind() Kind { return KindAlert }

// one returns the destination as a target of its kind, or nil.
func (d *AlertDestination) one() callee {
	switch {
	case d.Webhook != nil:
		return &d.Webhook.Webhook
	case d.SNS != nil:
		return d.SNS.SNS()
	}
	return nil
}

func (d *AlertDestination) host() (name string, atOnce int) {
	if one := d.one(); one != nil {
		return one.host()
	}
	return "", 0
}

func (d *AlertDestination) origin() string {
	if one := d.one(); one != nil {
		return one.origin()
	}
	return ""
}

func (d *AlertDestination) timeout() time.Duration {
	if one := d.one(); one != nil {
		return one.timeout()
	}
	return 0
}

func (d *AlertDestination) templates(problems *input.Problems) *Templates {
	switch {
	case d.Webhook != nil:
		return d.Webhook.templatesWith(problems, AlertTemplateFields)
	case d.SNS != nil:
		return d.SNS.templates(problems)
	}
	return nil
}

func (d *AlertDestination) warn(json.RawMessage, *input.Problems) {}

// CheckKept returns a problem, with a pointer in d, for each secret that keeps the stored value of old but would go
// to another origin.
func (d AlertDestination) CheckKept(old AlertDestination) error {
	err := d.Target().CheckKept(old.Target())
	problems, _ := err.(input.Problems) //nolint:errorlint // CheckKept returns Problems
	for i := range problems {
		problems[i].Path = strings.TrimPrefix(problems[i].Path, "/alert")
	}
	return err
}

// DestinationAt is the pointer of the destination in an alert. All secrets of an alert are below it.
const DestinationAt = "/destination"

// CheckDestination returns, as Problems with JSON pointers in d or nil, where the destination of an alert is outside
// the bounds of its app.
func (b Bounds) CheckDestination(app string, d AlertDestination) error {
	var problems input.Problems
	b.checkSecrets(&problems, "", app, Secrets(d))
	if w := d.Webhook; w != nil {
		b.checkWebhook(&problems, "/webhook", app, &w.Webhook)
		b.checkTokenURL(&problems, "/webhook/auth/oauth2", app, w.Auth.oauth2())
	}
	if d.SNS != nil {
		b.checkTopic(&problems, "/sns", app, d.SNS.SNS())
	}
	return problems.Err()
}

// AlertTopic is an Amazon SNS topic that gets each notification, published with the credentials of the node: the title as
// subject, the notification as JSON, and attributes that subscribers can filter by.
type AlertTopic struct {
	// TopicARN, AssumeRole and Timeout are as in SNS. In a FIFO topic the messages of an alert are a group.
	TopicARN   string      `json:"topic_arn" schema:"required"`
	AssumeRole *AssumeRole `json:"assume_role,omitempty"`
	// Limit of one attempt, 100ms to 24h.
	Timeout input.Duration `json:"timeout,omitempty"`
}

// SetDefaults gives a decoded topic the values of fields that its JSON leaves out.
func (t *AlertTopic) SetDefaults() { t.Timeout = DefaultTimeout }

// SNS returns the topic as a target with templates that use AlertTemplateFields.
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
	role.Subject, role.Attributes = "", nil // which use fields of alerts
	return role.Validate()
}

// FollowDestination is where a job delivers what happened to it; at most one of its fields is set. Its JSON has the
// form of a target with few settings, so the pointers of its problems and secrets are those of its Target.
type FollowDestination struct {
	Webhook *FollowWebhook `json:"webhook,omitempty"`
	Lambda  *FollowLambda  `json:"lambda,omitempty"`
	// SQS is a queue, and SNS is a topic, that gets a message.
	SQS *FollowQueue `json:"sqs,omitempty"`
	SNS *FollowTopic `json:"sns,omitempty"`
}

// FollowWebhook is an HTTP request with method POST.
type FollowWebhook struct {
	// URL and Signing are as in Webhook.
	URL     string   `json:"url" schema:"required,max=2048"`
	Signing *Signing `json:"signing,omitempty"`
}

// FollowLambda is a function to invoke.
type FollowLambda struct {
	// Function is as in Lambda.
	Function string `json:"function" schema:"required"`
}

// FollowQueue is an Amazon SQS queue.
type FollowQueue struct {
	// QueueARN is as in SQS.
	QueueARN string `json:"queue_arn" schema:"required"`
}

// FollowTopic is an Amazon SNS topic.
type FollowTopic struct {
	// TopicARN is as in SNS.
	TopicARN string `json:"topic_arn" schema:"required"`
}

// Target returns the destination as a target with the defaults of its kind; nil if there is none.
func (d FollowDestination) Target() *Target {
	if d == (FollowDestination{}) {
		return nil
	}
	var t Target
	if w := d.Webhook; w != nil {
		t.Webhook = &Webhook{URL: w.URL, Signing: w.Signing}
		t.Webhook.SetDefaults()
	}
	if l := d.Lambda; l != nil {
		t.Lambda = &Lambda{Function: l.Function}
		t.Lambda.SetDefaults()
	}
	if q := d.SQS; q != nil {
		t.SQS = &SQS{QueueARN: q.QueueARN}
		t.SQS.SetDefaults()
	}
	if topic := d.SNS; topic != nil {
		t.SNS = &SNS{TopicARN: topic.TopicARN}
		t.SNS.SetDefaults()
	}
	return &t
}
