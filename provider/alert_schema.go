package provider

import (
	"maps"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

func alertSchema() schema.Schema {
	retry := retryAttribute()
	retry.MarkdownDescription = "When a notification is sent again that could not be delivered, under the same event id; as `retry` of a " +
		"job, without `stop_at_next_fire`. Default: for 24 hours, 15 minutes apart in the end."
	return schema.Schema{
		MarkdownDescription: "An alert: it tells people when jobs of its app fail, miss fires, are late, take too long, have not succeeded " +
			"for a time or burn their error budget, and when that ends. Each transition is told once. Import it by `app/alert`.\n\n" +
			"An alert selects jobs by `jobs`, by `labels`, or both. One that selects nothing is a **default of its app**: it applies to the " +
			"jobs that no other alert selects, also to those that are declared later.\n\n" +
			"Mutes by operators and acknowledgements are no part of the configuration. A plan neither shows nor ends them.",
		Attributes: rememberTypes(map[string]schema.Attribute{
			"id":          idAttribute("alert", planImportID{}),
			"app":         appAttribute("alert"),
			"name":        nameAttribute("alert", ""),
			"description": descriptionAttribute(),
			"jobs": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Names of jobs, which need not exist yet. Default: none.",
			},
			"labels":  optionalStringMap("Labels: jobs that have all of them are selected, in addition to `jobs`. Default: none."),
			"failure": failureAttribute(),
			"missed":  boolWithDefault(false, "Whether to tell when a fire is missed, until a scheduled fire runs again."),
			"late_after": optionalEquivalent[durations]("Tell when a scheduled fire begins, or has not begun, later than this after its " +
				"scheduled time, such as `5m`. Default: nobody is told."),
			"overrun_after": optionalEquivalent[durations]("Tell when an attempt takes longer than this; at least `1m`. Default: nobody is told."),
			"no_success_for": optionalEquivalent[durations]("Tell when no run of a job has succeeded for this long, such as `26h`; at least " +
				"`1m`. Disabled and paused jobs are left out. Default: nobody is told."),
			"objective": boolWithDefault(false, "Whether to tell when the error budget of a job's `objective` burns at least 14.4 times as fast as "+
				"it may over 1h and over 5m, or 6 times over 6h and over 30m. Jobs without an objective are left out."),
			"recovery":    boolWithDefault(true, "Whether to tell when a condition no longer holds."),
			"mute":        mutesAttribute(),
			"destination": destinationAttribute(),
			"retry":       retry,
			"revision":    revisionAttribute("alert", ""),
		}),
	}
}

func failureAttribute() schema.SingleNestedAttribute {
	return optionalObject("Tell when runs fail, time out or are lost. Write `failure {}` for the first failure. Default: nobody is told.",
		map[string]schema.Attribute{
			"after":        numberWithDefault(1, "How many runs in a row fail before anybody is told, `1` to `1000`."),
			"repeat_every": numberWithDefault(0, "Tell again after so many further failures, up to `1000`; `0` for never."),
		})
}

func mutesAttribute() schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Optional: true,
		MarkdownDescription: "Times in which nobody is notified. Transitions are recorded, and what still holds at the end is notified then. " +
			"Each has `schedule` and `duration`, or `from` and `to`. At most 20. Default: none.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"schedule": optionalString("When the window begins, as the `expression` of a trigger, such as `0 22 * * *`. Default: the window comes " +
				"once, by `from` and `to`."),
			"duration": optionalEquivalent[durations]("How long the window lasts, from `1m` to `744h`. Default: none, which `schedule` does not " +
				"allow."),
			"timezone": optionalString("IANA time zone of `schedule`. Default: `UTC`."),
			"from":     optionalEquivalent[instants]("When a window begins that comes once. Default: it comes by `schedule`."),
			"to":       optionalEquivalent[instants]("When it ends. Default: it comes by `schedule`."),
		}},
	}
}

func destinationAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Required: true, MarkdownDescription: "What gets the notifications: either `webhook` or `sns`.",
		Attributes: map[string]schema.Attribute{"webhook": alertWebhookAttribute(), "sns": alertTopicAttribute()},
	}
}

func alertTopicAttribute() schema.SingleNestedAttribute {
	attributes := messageAttributes("topic", "publish the message")
	// The notification makes them, and nobody follows its trace.
	for _, made := range []string{"body", "attributes", "message_group_id", "trace_context"} {
		delete(attributes, made)
	}
	attributes["topic_arn"] = requiredString("ARN of the topic, such as `aws_sns_topic.on_call.arn`.")
	return optionalObject("An Amazon SNS topic, which gets each notification: its title as subject, the notification as JSON, and the "+
		"attributes `carillon_app`, `carillon_alert`, `carillon_job`, `carillon_condition` and `carillon_transition`. The bounds of the "+
		"app must allow the topic. Default: the destination is a webhook.", attributes)
}

func alertWebhookAttribute() schema.SingleNestedAttribute {
	var defaults target.AlertWebhook
	defaults.SetDefaults()
	attributes := requestAttributes(defaults.Webhook)
	delete(attributes, "callback") // a notification is delivered once its receiver responds
	maps.Copy(attributes, map[string]schema.Attribute{
		"url": requiredString("Absolute URL, `http` or `https`. If the URL is a secret, as that of an incoming webhook of Slack is, give " +
			"only its beginning here, such as `https://hooks.slack.com/`, and all of it in `secret_url`."),
		"secret_url": optionalObject("The whole URL, if it is a secret. It has the scheme, host and port of `url`. Default: it is `url`.",
			secretAttributes()),
		"format": stringWithDefault(target.AlertFormatCarillon, "Form of the messages: `carillon` for the notification as JSON, `slack` for "+
			"an incoming webhook of Slack, `pagerduty` for PagerDuty's Events API v2 at `https://events.pagerduty.com/v2/enqueue`, or "+
			"`template` for `body`."),
		"routing_key": optionalObject("Integration key of a service of PagerDuty. `pagerduty` needs it. Default: none.", secretAttributes()),
		"severity":    optionalString("Severity of incidents of PagerDuty: " + either(target.AlertSeverities) + ". Default: `error`."),
		"method":      stringWithDefault(defaults.Method, "HTTP method: `POST`, `PUT`, `PATCH` or `DELETE`."),
		"body": optionalString("A template for the body, only with `template`. These actions insert values: " + either(alertActions()) +
			". Write texts as JSON, such as `{\"text\": {{json .Title}}}`: errors have quotes and line breaks. The result is JSON unless " +
			"`headers` name another `Content-Type`. Default: the format makes the body."),
		"signing": signingAttribute(),
		"auth":    authAttribute(),
		"tls":     tlsAttribute(),
	})
	return optionalObject("An HTTP request for each notification. Default: the destination is an `sns`.", attributes)
}

// alertActions are the fields of templates of alerts as a user writes them.
func alertActions() []string {
	var all []string
	for _, field := range target.AlertTemplateFields {
		all = append(all, strings.Replace("{{."+field+"}}", ".Payload", "json .Payload", 1))
	}
	return all
}
