package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// policiesDataModel are the parts of a job that say how its runs are made and what follows them.
type policiesDataModel struct {
	Delivery          types.String      `tfsdk:"delivery"`
	ConcurrencyPolicy types.String      `tfsdk:"concurrency_policy"`
	MaxConcurrency    types.Int64       `tfsdk:"max_concurrency"`
	QueueLimit        types.Int64       `tfsdk:"queue_limit"`
	CarryState        types.Bool        `tfsdk:"carry_state"`
	DeleteAfter       types.String      `tfsdk:"delete_after_completion"`
	NodeLabels        map[string]string `tfsdk:"node_labels"`
	Acknowledge       []string          `tfsdk:"acknowledge"`
	Retry             *retryDataModel   `tfsdk:"retry"`
	Target            *targetDataModel  `tfsdk:"target"`
	Payload           types.String      `tfsdk:"payload"`
	OnSuccess         *followDataModel  `tfsdk:"on_success"`
	OnFailure         *followDataModel  `tfsdk:"on_failure"`
	OnMisfire         *followDataModel  `tfsdk:"on_misfire"`
}

type retryDataModel struct {
	MaxAttempts    types.Int64  `tfsdk:"max_attempts"`
	Base           types.String `tfsdk:"base"`
	Cap            types.String `tfsdk:"cap"`
	Delays         []string     `tfsdk:"delays"`
	MaxAge         types.String `tfsdk:"max_age"`
	StopAtNextFire types.Bool   `tfsdk:"stop_at_next_fire"`
}

// targetDataModel says what is called, in short: its secrets do not come out of the API, and most of the rest is of no use to
// other resources.
type targetDataModel struct {
	Kind types.String `tfsdk:"kind"`
	Name types.String `tfsdk:"name"`
}

type followDataModel struct {
	Jobs    []string         `tfsdk:"jobs"`
	Payload types.String     `tfsdk:"payload"`
	Target  *targetDataModel `tfsdk:"target"`
}

func policiesDataAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"delivery": computedString("What happens to an attempt whose outcome is unknown: `at_least_once` repeats it, `at_most_once` " +
			"does not."),
		"concurrency_policy": computedString("What happens to a fire while other runs of the job are under way: " +
			either(run.ConcurrencyPolicies) + "."),
		"max_concurrency": computedInt("How many runs of the job there may be at once, unless `concurrency_policy` is `allow`."),
		"queue_limit":     computedInt("How many runs of the job may wait for others."),
		"carry_state":     computedBool("Whether a run hands a state to the next one."),
		"delete_after_completion": computedString("Time from the job's completion until Carillon deletes it; null if it is never " +
			"deleted."),
		"node_labels": schema.MapAttribute{
			Computed: true, ElementType: types.StringType,
			MarkdownDescription: "Labels that a node must have to run the job; null if there are none.",
		},
		"acknowledge": computedStrings("Codes of warnings that are meant; null if there are none."),
		"retry": schema.SingleNestedAttribute{
			Computed: true, MarkdownDescription: "Whether and when a failed run is attempted again.",
			Attributes: map[string]schema.Attribute{
				"max_attempts":      computedInt("How many attempts may fail, including the first."),
				"base":              computedString("Upper bound of the wait before the second attempt. It doubles for each further one."),
				"cap":               computedString("The longest wait."),
				"delays":            computedStrings("Fixed waits that replace `base` and its doubling; null if there are none."),
				"max_age":           computedString("How long after its first attempt a run may be attempted."),
				"stop_at_next_fire": computedBool("Whether the run ends instead of making an attempt at or after the next fire."),
			},
		},
		"target": targetDataAttribute("What the job calls."),
		"payload": computedString("JSON that is sent as the request's body; null if the job has none and a description of the fire is " +
			"sent."),
		"on_success": followDataAttribute("a run that succeeded"),
		"on_failure": followDataAttribute("a run that failed, timed out or was lost, after its last attempt"),
		"on_misfire": followDataAttribute("a decision about fires that were missed"),
	}
}

func targetDataAttribute(description string) schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed: true, MarkdownDescription: description,
		Attributes: map[string]schema.Attribute{
			"kind": computedString("`webhook`, `lambda`, `group`, `sqs` or `sns`."),
			"name": computedString("The host of a webhook, with its port unless that is the scheme's, or the name of the function, group, " +
				"queue or topic."),
		},
	}
}

func followDataAttribute(after string) schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed: true, MarkdownDescription: "What follows " + after + "; null if nothing does.",
		Attributes: map[string]schema.Attribute{
			"jobs":    computedStrings("Names of jobs of the app that run then; null if there are none."),
			"payload": computedString("What these jobs get: `own` or `result`."),
			"target":  targetDataAttribute("What is told; null if nothing is."),
		},
	}
}

func computedStrings(description string) schema.Attribute {
	return schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: description}
}

func flattenPolicies(job dispatcher.Job) policiesDataModel {
	return policiesDataModel{
		Delivery: types.StringValue(string(job.Delivery)), ConcurrencyPolicy: types.StringValue(string(job.ConcurrencyPolicy)),
		MaxConcurrency: types.Int64Value(int64(job.MaxConcurrency)), QueueLimit: types.Int64Value(int64(job.QueueLimit)),
		CarryState: types.BoolValue(job.CarryState), DeleteAfter: flattenDeleteAfter(job.DeleteAfterCompletion).StringValue,
		NodeLabels: job.NodeLabels, Acknowledge: job.Acknowledge, Payload: flattenJSON(job.Payload).StringValue,
		Retry: &retryDataModel{
			MaxAttempts: types.Int64Value(int64(job.Retry.MaxAttempts)), Base: flattenDuration(job.Retry.Base).StringValue,
			Cap: flattenDuration(job.Retry.Cap).StringValue, Delays: durationTexts(job.Retry.Delays),
			MaxAge: flattenDuration(job.Retry.MaxAge).StringValue, StopAtNextFire: types.BoolValue(job.Retry.StopAtNextFire),
		},
		Target: flattenTargetData(job.Target), OnSuccess: flattenFollowData(job.OnSuccess),
		OnFailure: flattenFollowData(job.OnFailure), OnMisfire: flattenFollowData(job.OnMisfire),
	}
}

func flattenTargetData(t target.Target) *targetDataModel {
	s := t.Summary()
	return &targetDataModel{Kind: types.StringValue(string(s.Kind)), Name: types.StringValue(s.Name)}
}

func flattenFollowData(f *dispatcher.Follow) *followDataModel {
	if f == nil {
		return nil
	}
	m := followDataModel{Jobs: f.Jobs, Payload: types.StringValue(string(f.Payload))}
	if f.Target != nil {
		m.Target = flattenTargetData(*f.Target)
	}
	return &m
}

// triggerDataAttributes are those of a trigger as it is now.
func triggerDataAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"state":           computedString("`waiting`, `paused`, `complete` (no fire is left) or `error`."),
		"error":           computedString("The reason of the state `error`; null in all others."),
		"prev_fire_time":  computedTime("Its latest fire; null before the first one."),
		"next_fire_time":  computedTime("Its next fire; null if there is none."),
		"expression":      computedString("When it fires."),
		"dialect":         computedString("How `expression` is read."),
		"timezone":        computedString("Time zone of the expression's wall clock."),
		"start_at":        computedTime("First instant at which it may fire; null if there is none."),
		"end_at":          computedTime("Last instant at which it may fire; null if there is none."),
		"repeat_count":    computedInt("How many times it fires in total; `0` means no limit."),
		"gap":             computedString("What happens at local times that do not exist because the clock goes forward."),
		"overlap":         computedString("What happens at local times that occur twice because the clock goes back."),
		"drift_hour":      computedBool("Whether a calendar interval of days or longer keeps the UTC offset of its start."),
		"calendar":        computedString("Name of the calendar whose exclusions apply; null if there is none."),
		"on_excluded":     computedString("What happens to fires that `calendar` excludes; null without one."),
		"jitter":          computedString("How much later than scheduled it fires at most."),
		"misfire_after":   computedString("How late a fire may be before it is a misfire."),
		"misfire_policy":  computedString("What happens to misfires."),
		"catch_up_window": computedString("How old a misfire may be to be caught up."),
		"enabled":         computedBool("Whether it fires."),
	}
}
