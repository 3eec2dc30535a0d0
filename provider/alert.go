package provider

import (
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
)

// alerts is carillon_alert. Operators' mutes and active conditions change elsewhere: only the data source has them.
func alerts(c *connection) kind {
	return &definition[alert.Alert]{
		heading: heading{"alert", alertRows, importNested("alert", "billing/on-call"),
			"An alert: it tells people when jobs of its app fail, miss fires, are late, take too long, have not succeeded " +
				"for a time or burn their error budget, and when that ends. Each transition is told once. Import it by `app/alert`.\n\n" +
				"An alert selects jobs by `jobs`, by `labels`, or both. One that selects nothing is a **default of its app**: it applies to the " +
				"jobs that no other alert selects, also to those that are declared later.\n\n" +
				"Mutes by operators and acknowledgements are no part of the configuration. A plan neither shows nor ends them."},
		conn: c, check: alert.Alert.Validate,
		api: requests[alert.Alert]{
			(*client.Client).PutAlert, (*client.Client).Alert, (*client.Client).DeleteAlert,
			func(a alert.Alert) int64 { return a.Revision },
		},
		secrets: secretsOf[alert.Alert]{func(written, old alert.Alert) error {
			return atDestination(written.Destination.CheckKept(old.Destination))
		}, webhookKnown},
		bounds: func(bounds *target.Bounds, a alert.Alert) error {
			return atDestination(bounds.CheckDestination(a.App, a.Destination))
		},
		planning: (*plan.Plan).OfAlert,
		onWrite: func(c *connection, diags *diag.Diagnostics, a alert.Alert) {
			c.WarnOfMistakes(diags, a.App, a.Name, a.Warnings, "more alerts")
		},
	}
}

var alertRows = binding.Of(binding.Fresh[alert.Alert],
	definitionRows("alert", func(a *alert.Alert) *named { return &named{&a.App, &a.Name, &a.Description, &a.Revision} }),
	binding.Texts("jobs", func(a *alert.Alert) *[]string { return &a.Jobs }, binding.Optional, "Names of jobs, which need not exist "+
		"yet. Default: none.", binding.ThereInData, binding.Data("Names of the jobs that it selects. One that has neither jobs nor "+
		"labels is a default of its app.")),
	binding.Map("labels", func(a *alert.Alert) *input.Labels { return &a.Labels }, binding.Optional, "Labels: jobs that have all of "+
		"them are selected, in addition to `jobs`. Default: none.", binding.ThereInData, binding.Data("Labels of the jobs that it "+
		"selects in addition.")),
	binding.Block("failure", binding.Nested(func(a *alert.Alert) **alert.Failures { return &a.Failure }, failureRows), binding.Optional,
		"Tell when runs fail, time out or are lost. Write `failure {}` for the first failure. Default: nobody is told."),
	binding.Bool("missed", func(a *alert.Alert) *bool { return &a.Missed }, binding.Default, "Whether to tell when a fire is missed, "+
		"until a scheduled fire runs again.", orFailure),
	timeRow("late_after", func(a *alert.Alert) *input.Duration { return &a.LateAfter }, binding.Optional, "Tell when a scheduled "+
		"fire begins, or has not begun, later than this after its scheduled time, such as `5m`. Default: nobody is told.", orFailure),
	timeRow("overrun_after", func(a *alert.Alert) *input.Duration { return &a.OverrunAfter }, binding.Optional,
		"Tell when an attempt takes longer than this; at least `1m`. Default: nobody is told.", orFailure),
	timeRow("no_success_for", func(a *alert.Alert) *input.Duration { return &a.NoSuccessFor }, binding.Optional,
		"Tell when no run of a job has succeeded for this long, such as `26h`; at least `1m`. While no fire is scheduled for longer, "+
			"as on excluded days, the time does not count. Disabled and paused jobs are left out. Default: nobody is told.", orFailure),
	binding.Bool("objective", func(a *alert.Alert) *bool { return &a.Objective }, binding.Default, "Whether to tell when the error "+
		"budget of a job's `objective` burns at least 14.4 times as fast as it may over 1h and over 5m, or 6 times over 6h and over "+
		"30m. Jobs without an objective are left out.", orFailure),
	binding.Bool("blocked", func(a *alert.Alert) *bool { return &a.Blocked }, binding.Default, "Whether to tell when no fire of a job "+
		"runs, because one run has had its slot for ten minutes and for three times as long as its runs take.", orFailure),
	binding.Bool("recovery", func(a *alert.Alert) *bool { return &a.Recovery }, binding.Default, "Whether to tell when a condition "+
		"no longer holds."),
	binding.Blocks("mute", binding.Nested(func(a *alert.Alert) *[]alert.MuteWindow { return &a.Mutes }, muteRows), binding.Optional,
		"Times in which nobody is notified. Transitions are recorded, and what still holds at the end is notified then. Each has "+
			"`schedule` and `duration`, or `from` and `to`. At most 20. Default: none.", binding.Token("mutes")),
	binding.Part("destination", binding.Nested(func(a *alert.Alert) *target.AlertDestination { return &a.Destination }, destinationRows),
		binding.Required, "What gets the notifications: either `webhook` or `sns`."),
	binding.Part("retry", binding.Nested(func(a *alert.Alert) *run.Retry { return &a.Retry }, retryRows), binding.Optional,
		"When a notification is sent again that could not be delivered, under the same event id; as `retry` of a job, without "+
			"`stop_at_next_fire`. Default: for 24 hours, 15 minutes apart in the end."),
	binding.Whole("firing", func(a *alert.Alert) *int { return &a.Firing }, binding.InData, "Number of conditions of jobs that hold now."),
	binding.Bool("muted", func(a *alert.Alert) *bool { return new(a.Muted != nil) }, binding.InData, "Whether an operator has muted it."),
	binding.Shown("muted_by", func(a *alert.Alert) string { return muteOf(a).By }, binding.InData, "Who muted it; null if nobody did.",
		binding.EmptyIsNull),
	binding.Shown("mute_reason", func(a *alert.Alert) string { return muteOf(a).Reason }, binding.InData, "Why; null if nobody said so.",
		binding.EmptyIsNull),
	binding.Shown("muted_until", func(a *alert.Alert) string {
		if until := muteOf(a).Until; until != nil {
			return until.UTC().Format(time.RFC3339Nano)
		}
		return ""
	}, binding.InData, "When the mute ends; null if it has no end, or if there is none.", binding.EmptyIsNull),
)

// orFailure is for the other conditions: with one of them, failure is not required.
var orFailure = binding.Decides("failure")

// muteOf returns the mute of an operator, or an empty one.
func muteOf(a *alert.Alert) alert.Mute {
	if a.Muted == nil {
		return alert.Mute{}
	}
	return *a.Muted
}

var failureRows = binding.Of(binding.Fresh[alert.Failures],
	binding.Whole("after", func(f *alert.Failures) *int { return &f.After }, binding.Default, "How many runs in a row fail before "+
		"anybody is told, `1` to `1000`.", binding.Advice(input.CodeCountRange, "give a whole number, at least 1")),
	binding.Whole("repeat_every", func(f *alert.Failures) *int { return &f.RepeatEvery }, binding.Default, "Tell again after so many "+
		"further failures, up to `1000`; `0` for never.", binding.Advice(input.CodeCountRange, "give a whole number, or 0 for never")),
)

// muteRows are those of a recurring or a single window. Either form can be checked only when all of it is known.
var muteRows = binding.Of(binding.Fresh[alert.MuteWindow],
	binding.Text("schedule", func(m *alert.MuteWindow) *string { return &m.Schedule }, binding.Optional, "When the window begins, as "+
		"the `expression` of a trigger, such as `0 22 * * *`. Default: the window comes once, by `from` and `to`.", binding.Hides("")),
	timeRow("duration", func(m *alert.MuteWindow) *input.Duration { return &m.Duration }, binding.Optional,
		"How long the window lasts, from `1m` to `744h`. Default: none, which `schedule` does not allow."),
	binding.Text("timezone", func(m *alert.MuteWindow) *string { return &m.Timezone }, binding.Optional,
		"IANA time zone of `schedule`. Default: `UTC`."),
	binding.Instant("from", func(m *alert.MuteWindow) **time.Time { return &m.From }, binding.Optional, "When a window begins that "+
		"comes once. Default: it comes by `schedule`.", binding.Hides("")),
	binding.Instant("to", func(m *alert.MuteWindow) **time.Time { return &m.To }, binding.Optional, "When it ends. Default: it comes "+
		"by `schedule`.", binding.Hides("")),
)

var destinationRows = binding.Of(binding.Fresh[target.AlertDestination], // exactly one is required
	binding.Block("webhook", binding.Nested(func(d *target.AlertDestination) **target.AlertWebhook { return &d.Webhook }, alertWebhookRows),
		binding.Optional, "An HTTP request for each notification. Default: the destination is an `sns`.", binding.Decides("webhook", "sns")),
	binding.Block("sns", binding.Nested(func(d *target.AlertDestination) **target.AlertTopic { return &d.SNS }, alertTopicRows),
		binding.Optional, "An Amazon SNS topic, which gets each notification: its title as subject, the notification as JSON, and the "+
			"attributes `carillon_app`, `carillon_alert`, `carillon_job`, `carillon_condition` and `carillon_transition`. The bounds of the "+
			"app must allow the topic. Default: the destination is a webhook.", binding.Decides("webhook", "sns")),
)

var alertTopicRows = binding.Of(binding.Fresh[target.AlertTopic],
	binding.Text("topic_arn", func(t *target.AlertTopic) *string { return &t.TopicARN }, binding.Required, "ARN of the topic, such as "+
		"`aws_sns_topic.on_call.arn`.", decidesOfResource),
	roleRow("publish the message", func(t *target.AlertTopic) **target.AssumeRole { return &t.AssumeRole }),
	messageTimeoutRow(func(t *target.AlertTopic) *input.Duration { return &t.Timeout }),
)

var alertWebhookRows = binding.Of(binding.Fresh[target.AlertWebhook],
	binding.Text("url", func(w *target.AlertWebhook) *string { return &w.URL }, binding.Required,
		"Absolute URL, `http` or `https`. If the URL is a secret, "+
			"as that of an incoming webhook of Slack is, give only its beginning here, such as `https://hooks.slack.com/`, and all of it in "+
			"`secret_url`.", binding.Decides("url", "secret_url/value")), // both must have the same origin
	binding.Within(func(w *target.AlertWebhook) *request { return requestOf(&w.Webhook) }, requestRows("HTTP method: `POST`, `PUT`, "+
		"`PATCH` or `DELETE`.", "A template for the body, only with `template`. These actions insert values: "+
		either(templateActions(target.AlertTemplateFields))+". Write texts as JSON, such as `{\"text\": {{json .Title}}}`: errors "+
		"have quotes and line breaks. The result is JSON unless `headers` name another `Content-Type`. Default: the format makes the "+
		"body.")),
	binding.Within(func(w *target.AlertWebhook) *protected { return protectedBy(&w.Webhook) }, protectionRows()),
	binding.Text("format", func(w *target.AlertWebhook) *target.AlertFormat { return &w.Format }, binding.Default,
		"Form of the messages: `carillon` for the notification as JSON, `slack` for an incoming webhook of Slack, `pagerduty` for "+
			"PagerDuty's Events API v2 at `https://events.pagerduty.com/v2/enqueue`, or `template` for `body`.", binding.Decides("body",
			"routing_key", "severity", "cloud_events")),
	binding.Text("severity", func(w *target.AlertWebhook) *target.AlertSeverity { return &w.Severity }, binding.Optional,
		"Severity of incidents of PagerDuty: "+either(target.AlertSeverities)+". Default: `error`."),
	binding.Block("secret_url", binding.Nested(func(w *target.AlertWebhook) **target.Secret { return &w.SecretURL }, binding.Secrets),
		binding.Optional, "The whole URL, if it is a secret. It has the scheme, host and port of `url`. Default: it is `url`.",
		binding.Decides("url", "secret_url/value")),
	binding.Block("routing_key", binding.Nested(func(w *target.AlertWebhook) **target.Secret { return &w.RoutingKey }, binding.Secrets),
		binding.Optional, "Integration key of a service of PagerDuty. `pagerduty` needs it. Default: none."),
	binding.Rule(func(e *binding.Expander, at string, v binding.Values, _ any) {
		if v.Map("headers").IsUnknown() { // they decide whether the body is JSON
			e.Incomplete = append(e.Incomplete, at+"/body")
		}
	}),
)

// alertSource is carillon_alert: an alert of another configuration, with its current states.
var alertSource = dataSource{
	name: "alert", attributes: alertRows.DataAttributes, read: readNamed("alert", alertRows, (*client.Client).Alert, nil),
	text: "An alert: which jobs it selects, how many conditions hold now, and whether an operator has muted it. A plan " +
		"fails if it does not exist.",
}

// atDestination prefixes the pointers of a destination's problems with that of the destination.
func atDestination(err error) error {
	var problems input.Problems
	problems.AddError(target.DestinationAt, err)
	return problems.Err()
}
