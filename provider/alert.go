package provider

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// alerts is carillon_alert. A mute of an operator and what fires now are in the data source only: both change without Terraform.
func alerts(c *connection) kind {
	return &definition[alert.Alert]{
		heading: heading{"alert", alertSchema, importNested("alert", "billing/on-call")}, conn: c,
		expand: expandedBy[alert.Alert](alertRows), flatten: flattenedBy[alert.Alert](alertRows), check: alert.Alert.Validate,
		api: requests[alert.Alert]{
			(*client.Client).PutAlert, (*client.Client).Alert, (*client.Client).DeleteAlert,
			func(a alert.Alert) int64 { return a.Revision },
		},
		secrets: secretsOf[alert.Alert]{alert.Alert.Secrets, alert.Alert.WithSecrets, checkKeptOfAlert, webhookKnown},
		bounds: func(bounds *target.Bounds, a alert.Alert) error {
			return atDestination(bounds.CheckDestination(a.App, a.Destination))
		},
		planning: warnOfUnknownJobs,
		onWrite: func(c *connection, diags *diag.Diagnostics, a alert.Alert) {
			c.warnOfMistakes(diags, a.App, a.Name, a.Warnings, "more alerts")
		},
	}
}

var alertRows = rowsOf(fresh[alert.Alert],
	definitionRows("alert", func(a *alert.Alert) *named { return &named{&a.App, &a.Name, &a.Description, &a.Revision} }),
	textsRow("jobs", func(a *alert.Alert) *[]string { return &a.Jobs }, optional, "Names of jobs, which need not exist yet. Default: none.",
		thereInData, shownAs("Names of the jobs that it selects. One that has neither jobs nor labels is a default of its app.")),
	mapRow("labels", func(a *alert.Alert) *input.Labels { return &a.Labels }, optional, "Labels: jobs that have all of them are selected, in "+
		"addition to `jobs`. Default: none.", thereInData, shownAs("Labels of the jobs that it selects in addition.")),
	blockRow("failure", func(a *alert.Alert) **alert.Failures { return &a.Failure }, failureRows, optional, "Tell when runs fail, time out or "+
		"are lost. Write `failure {}` for the first failure. Default: nobody is told."),
	boolRow("missed", func(a *alert.Alert) *bool { return &a.Missed }, standard, "Whether to tell when a fire is missed, until a scheduled "+
		"fire runs again.", orFailure),
	timeRow("late_after", func(a *alert.Alert) *input.Duration { return &a.LateAfter }, optional, "Tell when a scheduled fire begins, or has "+
		"not begun, later than this after its scheduled time, such as `5m`. Default: nobody is told.", orFailure),
	timeRow("overrun_after", func(a *alert.Alert) *input.Duration { return &a.OverrunAfter }, optional, "Tell when an attempt takes longer "+
		"than this; at least `1m`. Default: nobody is told.", orFailure),
	timeRow("no_success_for", func(a *alert.Alert) *input.Duration { return &a.NoSuccessFor }, optional, "Tell when no run of a job has "+
		"succeeded for this long, such as `26h`; at least `1m`. Disabled and paused jobs are left out. Default: nobody is told.", orFailure),
	boolRow("objective", func(a *alert.Alert) *bool { return &a.Objective }, standard, "Whether to tell when the error budget of a job's "+
		"`objective` burns at least 14.4 times as fast as it may over 1h and over 5m, or 6 times over 6h and over 30m. Jobs without an "+
		"objective are left out.", orFailure),
	boolRow("recovery", func(a *alert.Alert) *bool { return &a.Recovery }, standard, "Whether to tell when a condition no longer holds."),
	blocksRow("mute", func(a *alert.Alert) *[]alert.MuteWindow { return &a.Mutes }, muteRows, optional, "Times in which nobody is notified. "+
		"Transitions are recorded, and what still holds at the end is notified then. Each has `schedule` and `duration`, or `from` and "+
		"`to`. At most 20. Default: none.", token("mutes")),
	partRow("destination", func(a *alert.Alert) *target.AlertDestination { return &a.Destination }, destinationRows, required, "What gets the "+
		"notifications: either `webhook` or `sns`."),
	partRow("retry", func(a *alert.Alert) *run.Retry { return &a.Retry }, retryRows, optional, "When a notification is sent again that could "+
		"not be delivered, under the same event id; as `retry` of a job, without `stop_at_next_fire`. Default: for 24 hours, 15 minutes "+
		"apart in the end."),
	wholeRow("firing", func(a *alert.Alert) *int { return &a.Firing }, inData, "Number of conditions of jobs that hold now."),
	boolRow("muted", func(a *alert.Alert) *bool { return new(a.Muted != nil) }, inData, "Whether an operator has muted it."),
	shownRow("muted_by", func(a *alert.Alert) string { return muteOf(a).By }, inData, "Who muted it; null if nobody did.", emptyIsNull),
	shownRow("mute_reason", func(a *alert.Alert) string { return muteOf(a).Reason }, inData, "Why; null if nobody said so.", emptyIsNull),
	shownRow("muted_until", func(a *alert.Alert) string { return unmutedAt(muteOf(a)) }, inData, "When the mute "+
		"ends; null if it has no end, or if there is none.", emptyIsNull),
)

// orFailure is for what is a condition, so that failure need not be the only one.
var orFailure = decides("failure")

// muteOf returns the mute of an operator, an empty one if there is none.
func muteOf(a *alert.Alert) alert.Mute {
	if a.Muted == nil {
		return alert.Mute{}
	}
	return *a.Muted
}

// unmutedAt returns when a mute ends, as text; empty: it has no end.
func unmutedAt(m alert.Mute) string {
	if m.Until == nil {
		return ""
	}
	return m.Until.UTC().Format(time.RFC3339Nano)
}

var failureRows = rowsOf(fresh[alert.Failures],
	wholeRow("after", func(f *alert.Failures) *int { return &f.After }, standard, "How many runs in a row fail before anybody is told, `1` to "+
		"`1000`.", advice(input.CodeCountRange, "give a whole number, at least 1")),
	wholeRow("repeat_every", func(f *alert.Failures) *int { return &f.RepeatEvery }, standard, "Tell again after so many further failures, up "+
		"to `1000`; `0` for never.", advice(input.CodeCountRange, "give a whole number, or 0 for never")),
)

// muteRows are either those of a schedule or those of one window, as long as all is known.
var muteRows = rowsOf(fresh[alert.MuteWindow],
	textRow("schedule", func(m *alert.MuteWindow) *string { return &m.Schedule }, optional, "When the window begins, as the `expression` of a "+
		"trigger, such as `0 22 * * *`. Default: the window comes once, by `from` and `to`.", hides("")),
	timeRow("duration", func(m *alert.MuteWindow) *input.Duration { return &m.Duration }, optional, "How long the window lasts, from `1m` to "+
		"`744h`. Default: none, which `schedule` does not allow."),
	textRow("timezone", func(m *alert.MuteWindow) *string { return &m.Timezone }, optional, "IANA time zone of `schedule`. Default: `UTC`."),
	instantRow("from", func(m *alert.MuteWindow) **time.Time { return &m.From }, optional, "When a window begins that comes once. Default: it "+
		"comes by `schedule`.", hides("")),
	instantRow("to", func(m *alert.MuteWindow) **time.Time { return &m.To }, optional, "When it ends. Default: it comes by `schedule`.",
		hides("")),
)

var destinationRows = rowsOf(fresh[target.AlertDestination], // one of them must be there
	blockRow("webhook", func(d *target.AlertDestination) **target.AlertWebhook { return &d.Webhook }, alertWebhookRows, optional, "An HTTP "+
		"request for each notification. Default: the destination is an `sns`.", decides("webhook", "sns")),
	blockRow("sns", func(d *target.AlertDestination) **target.AlertTopic { return &d.SNS }, alertTopicRows, optional, "An Amazon SNS topic, "+
		"which gets each notification: its title as subject, the notification as JSON, and the attributes `carillon_app`, "+
		"`carillon_alert`, `carillon_job`, `carillon_condition` and `carillon_transition`. The bounds of the app must allow the topic. "+
		"Default: the destination is a webhook.", decides("webhook", "sns")),
)

var alertTopicRows = rowsOf(fresh[target.AlertTopic],
	textRow("topic_arn", func(t *target.AlertTopic) *string { return &t.TopicARN }, required, "ARN of the topic, such as "+
		"`aws_sns_topic.on_call.arn`.", decidesOfResource),
	roleRow("publish the message", func(t *target.AlertTopic) **target.AssumeRole { return &t.AssumeRole }),
	messageTimeoutRow(func(t *target.AlertTopic) *input.Duration { return &t.Timeout }),
)

var alertWebhookRows = rowsOf(fresh[target.AlertWebhook],
	textRow("url", func(w *target.AlertWebhook) *string { return &w.URL }, required, "Absolute URL, `http` or `https`. If the URL is a secret, "+
		"as that of an incoming webhook of Slack is, give only its beginning here, such as `https://hooks.slack.com/`, and all of it in "+
		"`secret_url`.", decides("url", "secret_url/value")), // they must have the same origin
	within(func(w *target.AlertWebhook) *request { return requestOf(&w.Webhook) },
		requestRows("HTTP method: `POST`, `PUT`, `PATCH` or `DELETE`.", "A template for the body, only with `template`. These actions insert "+
			"values: "+either(templateActions(target.AlertTemplateFields))+". Write texts as JSON, such as `{\"text\": {{json .Title}}}`: errors "+
			"have quotes and line breaks. The result is JSON unless `headers` name another `Content-Type`. Default: the format makes the "+
			"body.")),
	within(func(w *target.AlertWebhook) *protected { return protectedBy(&w.Webhook) }, protectionRows()),
	textRow("format", func(w *target.AlertWebhook) *target.AlertFormat { return &w.Format }, standard, "Form of the messages: `carillon` for "+
		"the notification as JSON, `slack` for an incoming webhook of Slack, `pagerduty` for PagerDuty's Events API v2 at "+
		"`https://events.pagerduty.com/v2/enqueue`, or `template` for `body`.", decides("body", "routing_key", "severity", "cloud_events")),
	textRow("severity", func(w *target.AlertWebhook) *target.AlertSeverity { return &w.Severity }, optional, "Severity of incidents of "+
		"PagerDuty: "+either(target.AlertSeverities)+". Default: `error`."),
	blockRow("secret_url", func(w *target.AlertWebhook) **target.Secret { return &w.SecretURL }, secretRows, optional, "The whole URL, if it is "+
		"a secret. It has the scheme, host and port of `url`. Default: it is `url`.", decides("url", "secret_url/value")),
	blockRow("routing_key", func(w *target.AlertWebhook) **target.Secret { return &w.RoutingKey }, secretRows, optional, "Integration key of a "+
		"service of PagerDuty. `pagerduty` needs it. Default: none."),
	rule(func(e *expander, at string, v values, _ any) {
		if v.mapOf("headers").IsUnknown() { // they say whether the body is JSON
			e.incomplete = append(e.incomplete, at+"/body")
		}
	}),
)

func alertSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "An alert: it tells people when jobs of its app fail, miss fires, are late, take too long, have not succeeded " +
			"for a time or burn their error budget, and when that ends. Each transition is told once. Import it by `app/alert`.\n\n" +
			"An alert selects jobs by `jobs`, by `labels`, or both. One that selects nothing is a **default of its app**: it applies to the " +
			"jobs that no other alert selects, also to those that are declared later.\n\n" +
			"Mutes by operators and acknowledgements are no part of the configuration. A plan neither shows nor ends them.",
		Attributes: alertRows.attributes(),
	}
}

// newAlertDataSource returns carillon_alert: an alert that somebody else declares, and what it knows now.
func newAlertDataSource() datasource.DataSource {
	return &dataSource{name: "alert", read: readAlert, schema: func() dataschema.Schema {
		return dataschema.Schema{
			MarkdownDescription: "An alert: which jobs it selects, how many conditions hold now, and whether an operator has muted it. A plan " +
				"fails if it does not exist.",
			Attributes: alertRows.dataAttributes(),
		}
	}}
}

func readAlert(ctx context.Context, c *connection, diags *diag.Diagnostics, m values) values {
	app, name := m.text("app"), m.text("name")
	if !validNames(diags, app, name) {
		return m
	}
	a, err := c.Alert(ctx, app.ValueString(), name.ValueString())
	if err != nil {
		c.report(diags, fmt.Sprintf("read alert %q", importID(app, name)), err)
		return m
	}
	return alertRows.shown(diags, &a)
}

func checkKeptOfAlert(written, old alert.Alert) error {
	return atDestination(written.Destination.CheckKept(old.Destination))
}

// atDestination returns problems of a destination with their pointers in its alert.
func atDestination(err error) error {
	var problems input.Problems
	problems.AddError(target.DestinationAt, err)
	return problems.Err()
}

// warnOfUnknownJobs warns of names in an alert that no job has, neither in the plan nor on the server. The API says at apply which
// labels no job has.
func warnOfUnknownJobs(ctx context.Context, c *connection, diags *diag.Diagnostics, p planned[alert.Alert]) {
	alert := p.declared
	if len(c.unknown) > 0 || alert.App == "" || alert.Name == "" || diags.HasError() {
		return
	}
	var problems input.Problems
	for i, name := range alert.Jobs {
		at := input.Pointer("jobs", strconv.Itoa(i))
		if p.e.isUnknown(at) || name == "" {
			continue
		}
		if _, exists, _, known := c.followersOf(ctx, alert.App, name); known && !exists {
			addUnknownName(&problems, at, input.CodeAlertJobUnknown, "job", alert.App, name, c.someJobs(ctx, alert.App))
		}
	}
	c.warnOfMistakes(diags, alert.App, alert.Name, p.e.aboutKnown(problems), "more alerts")
}
