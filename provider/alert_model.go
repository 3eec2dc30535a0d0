package provider

import (
	"context"
	"reflect"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// alertModel is a carillon_alert in configuration, plan and state. A mute of an operator and what fires now are not in it:
// both change without Terraform.
type alertModel struct {
	definitionModel
	Jobs         types.List     `tfsdk:"jobs"`
	Labels       types.Map      `tfsdk:"labels"`
	Failure      types.Object   `tfsdk:"failure"`
	Missed       types.Bool     `tfsdk:"missed"`
	LateAfter    durationString `tfsdk:"late_after"`
	OverrunAfter durationString `tfsdk:"overrun_after"`
	NoSuccessFor durationString `tfsdk:"no_success_for"`
	Objective    types.Bool     `tfsdk:"objective"`
	Recovery     types.Bool     `tfsdk:"recovery"`
	Mutes        types.List     `tfsdk:"mute"`
	Destination  types.Object   `tfsdk:"destination"`
	Retry        types.Object   `tfsdk:"retry"`
}

type alertFailureModel struct {
	After       types.Number `tfsdk:"after"`
	RepeatEvery types.Number `tfsdk:"repeat_every"`
}

type muteModel struct {
	Schedule types.String   `tfsdk:"schedule"`
	Duration durationString `tfsdk:"duration"`
	Timezone types.String   `tfsdk:"timezone"`
	From     instantString  `tfsdk:"from"`
	To       instantString  `tfsdk:"to"`
}

type alertDestinationModel struct {
	Webhook types.Object `tfsdk:"webhook"`
	SNS     types.Object `tfsdk:"sns"`
}

type alertTopicModel struct {
	TopicARN   types.String   `tfsdk:"topic_arn"`
	AssumeRole types.Object   `tfsdk:"assume_role"`
	Timeout    durationString `tfsdk:"timeout"`
}

// expandAlert returns the alert that a model describes.
func expandAlert(ctx context.Context, e *expander, m alertModel) alert.Alert {
	var a alert.Alert
	a.SetDefaults()
	a.App = e.string("/app", m.App)
	a.Name = e.string("/name", m.Name)
	a.Description = e.string("/description", m.Description)
	a.Jobs = e.stringList("/jobs", m.Jobs)
	a.Labels = e.stringMap("/labels", m.Labels)
	a.Failure = expandFailures(ctx, e, m.Failure)
	a.Missed = e.bool("/missed", m.Missed, false)
	a.LateAfter = e.optionalTime("/late_after", m.LateAfter)
	a.OverrunAfter = e.optionalTime("/overrun_after", m.OverrunAfter)
	a.NoSuccessFor = e.optionalTime("/no_success_for", m.NoSuccessFor)
	a.Objective = e.bool("/objective", m.Objective, false)
	a.Recovery = e.bool("/recovery", m.Recovery, a.Recovery)
	if m.Missed.IsUnknown() || m.LateAfter.IsUnknown() || m.OverrunAfter.IsUnknown() || m.NoSuccessFor.IsUnknown() ||
		m.Objective.IsUnknown() {
		e.incomplete = append(e.incomplete, "/failure") // it may be the only condition
	}
	for i, element := range e.list("/mutes", m.Mutes) {
		object, _ := element.(types.Object)
		a.Mutes = append(a.Mutes, expandMute(ctx, e, "/mutes/"+strconv.Itoa(i), object))
	}
	var d alertDestinationModel
	if e.object(ctx, "/destination", m.Destination, &d) {
		a.Destination.Webhook = expandAlertWebhook(ctx, e, "/destination/webhook", d.Webhook)
		a.Destination.SNS = expandAlertTopic(ctx, e, "/destination/sns", d.SNS)
		if d.Webhook.IsUnknown() || d.SNS.IsUnknown() { // one of them must be there
			e.incomplete = append(e.incomplete, "/destination/webhook", "/destination/sns")
		}
	}
	if !m.Retry.IsNull() {
		a.Retry = expandRetry(ctx, e, "/retry", m.Retry)
	}
	return a
}

func expandAlertTopic(ctx context.Context, e *expander, pointer string, object types.Object) *target.AlertTopic {
	var m alertTopicModel
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	var t target.AlertTopic
	t.SetDefaults()
	t.TopicARN = e.required(pointer+"/topic_arn", m.TopicARN)
	t.AssumeRole = expandAssumeRole(ctx, e, pointer+"/assume_role", m.AssumeRole)
	t.Timeout = e.duration(pointer+"/timeout", m.Timeout, t.Timeout)
	e.ofResource(pointer, m.TopicARN)
	return &t
}

func flattenAlertTopic(ctx context.Context, diags *diag.Diagnostics, t *target.AlertTopic, prior types.Object) types.Object {
	of := alertTopicAttribute().GetType().(types.ObjectType)
	if t == nil {
		return nullObject(of)
	}
	var before alertTopicModel
	(&expander{}).object(ctx, "", prior, &before)
	return flattenObject(ctx, diags, of, alertTopicModel{
		TopicARN:   types.StringValue(t.TopicARN),
		AssumeRole: flattenAssumeRole(ctx, diags, of, t.AssumeRole, before.AssumeRole),
		Timeout:    flattenDuration(t.Timeout),
	})
}

func expandFailures(ctx context.Context, e *expander, object types.Object) *alert.Failures {
	var m alertFailureModel
	if !e.object(ctx, "/failure", object, &m) {
		return nil
	}
	var f alert.Failures
	f.SetDefaults()
	f.After = e.whole("/failure/after", m.After, f.After, input.CodeCountRange, "give a whole number, at least 1")
	f.RepeatEvery = e.whole("/failure/repeat_every", m.RepeatEvery, 0, input.CodeCountRange, "give a whole number, or 0 for never")
	return &f
}

func expandMute(ctx context.Context, e *expander, pointer string, object types.Object) alert.MuteWindow {
	var m muteModel
	var w alert.MuteWindow
	if !e.object(ctx, pointer, object, &m) {
		return w
	}
	expandOptional(e, pointer+"/schedule", m.Schedule, &w.Schedule)
	w.Duration = e.optionalTime(pointer+"/duration", m.Duration)
	expandOptional(e, pointer+"/timezone", m.Timezone, &w.Timezone)
	w.From, w.To = e.instant(pointer+"/from", m.From), e.instant(pointer+"/to", m.To)
	if m.Schedule.IsUnknown() || m.From.IsUnknown() || m.To.IsUnknown() { // they decide which of them must be there
		e.unknown = append(e.unknown, pointer)
	}
	return w
}

// optionalTime is someTime for a duration that has no default.
func (e *expander) optionalTime(pointer string, v durationString) input.Duration {
	if v.IsNull() {
		return 0
	}
	return e.someTime(pointer, v, 0)
}

// flattenAlert returns the model of an alert from the API. prior is the plan or state that it replaces; flatten.go says why
// that matters.
func flattenAlert(ctx context.Context, diags *diag.Diagnostics, a alert.Alert, prior alertModel) alertModel {
	var before alertDestinationModel
	(&expander{}).object(ctx, "", prior.Destination, &before)
	var leftOut alert.Alert
	leftOut.SetDefaults()
	return alertModel{
		definitionModel: flattenDefinition(a.App, a.Name, a.Description, a.Revision),
		Jobs:            flattenStrings(ctx, diags, a.Jobs, prior.Jobs),
		Labels:          flattenStringMap(ctx, diags, a.Labels, prior.Labels),
		Failure:         flattenFailures(ctx, diags, a.Failure),
		Missed:          types.BoolValue(a.Missed),
		LateAfter:       flattenSomeTime(a.LateAfter),
		OverrunAfter:    flattenSomeTime(a.OverrunAfter),
		NoSuccessFor:    flattenSomeTime(a.NoSuccessFor),
		Objective:       types.BoolValue(a.Objective),
		Recovery:        types.BoolValue(a.Recovery),
		Mutes:           flattenMutes(ctx, diags, a.Mutes, prior.Mutes),
		Destination: flattenObject(ctx, diags, destinationAttribute().GetType().(types.ObjectType), alertDestinationModel{
			Webhook: flattenAlertWebhook(ctx, diags, a.Destination.Webhook, before.Webhook),
			SNS:     flattenAlertTopic(ctx, diags, a.Destination.SNS, before.SNS),
		}),
		Retry: flattenAlertRetry(ctx, diags, a.Retry, prior.Retry, leftOut.Retry),
	}
}

// flattenAlertRetry is flattenRetry, whose prior is null unless somebody wrote one.
func flattenAlertRetry(
	ctx context.Context, diags *diag.Diagnostics, r run.Retry, prior types.Object, leftOut run.Retry,
) types.Object {
	if prior.IsNull() && reflect.DeepEqual(r, leftOut) {
		return nullObject(retryType())
	}
	return flattenRetry(ctx, diags, r, prior, leftOut)
}

// flattenSomeTime is flattenDuration for a duration of which zero stands for none.
func flattenSomeTime(d input.Duration) durationString {
	if d == 0 {
		return durationString{types.StringNull()}
	}
	return flattenDuration(d)
}

func flattenFailures(ctx context.Context, diags *diag.Diagnostics, f *alert.Failures) types.Object {
	of := failureAttribute().GetType().(types.ObjectType)
	if f == nil {
		return nullObject(of)
	}
	return flattenObject(ctx, diags, of, alertFailureModel{
		After: flattenNumber(max(f.After, 1)), RepeatEvery: flattenNumber(f.RepeatEvery),
	})
}

func flattenMutes(
	ctx context.Context, diags *diag.Diagnostics, mutes []alert.MuteWindow, prior types.List,
) types.List {
	of := mutesAttribute().GetType().(types.ListType).ElemType
	if len(mutes) == 0 && (prior.IsNull() || prior.IsUnknown() || len(prior.Elements()) > 0) {
		return types.ListNull(of)
	}
	models := make([]muteModel, 0, len(mutes))
	for _, w := range mutes {
		models = append(models, muteModel{
			Schedule: flattenOptional(w.Schedule), Duration: flattenSomeTime(w.Duration), Timezone: flattenOptional(w.Timezone),
			From: flattenInstant(w.From), To: flattenInstant(w.To),
		})
	}
	return flattenList(ctx, diags, of, models)
}
